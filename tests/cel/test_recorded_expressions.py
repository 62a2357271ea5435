"""What kube-apiserver said of expressions, without a server."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kvstack.cel.checker.scope import Scope
from kvstack.cel.checker.types import DYN, struct
from kvstack.cel.errors import CelError, CompileError
from kvstack.cel.library.table import COMPATIBLE
from kvstack.cel.programs import compile_expression
from kvstack.cel.syntax.macros import MACROS
from kvstack.cel.syntax.parser import parse

RECORDED = Path(__file__).parents[1] / "apiserver" / "recorded" / "expressions.jsonl.gz"
SCOPE = Scope(
    functions=COMPATIBLE,
    variables={
        **dict.fromkeys(("object", "oldObject", "request", "namespaceObject"), DYN),
        "authorizer": struct("kubernetes.authorization.Authorizer"),
    },
)


def rows(stage: str) -> list[dict[str, Any]]:
    """Return the recorded rows of a stage."""
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        return [row for line in lines if (row := json.loads(line))["stage"] == stage]


def test_syntax_errors_are_reported_as_upstream_reports_them() -> None:
    found = rows("parse")
    assert len(found) > 40
    for row in found:
        with pytest.raises(CompileError) as caught:
            parse(row["expression"], MACROS)
        assert str(caught.value) == row["told"]


def test_expressions_are_checked_as_upstream_checks_them() -> None:
    found = rows("check")
    assert len(found) > 70
    for row in found:
        try:
            compile_expression(row["expression"], SCOPE)
            told = ""
        except CompileError as error:
            told = str(error)
        assert told == row["told"], row["expression"]


def outcome(validation: dict[str, Any], bindings: dict[str, Any]) -> str:
    """Return what is said of a validation that is not met."""
    text = validation["expression"]
    try:
        if compile_expression(text, SCOPE).evaluate(bindings).value is True:
            return "met"
        message = validation.get("messageExpression")
        if message:
            return str(compile_expression(message, SCOPE).evaluate(bindings).value).strip()
        return str(validation["message"]).strip()
    except CelError as error:
        return f"expression '{text}' resulted in error: {error}".strip()


@pytest.mark.parametrize("row", rows("evaluate"), ids=lambda row: str(row["name"]))
def test_values_are_those_of_upstream(row: dict[str, Any]) -> None:
    name = row["namespace"]
    bindings = {
        "object": row["object"],
        "oldObject": None,
        "request": {"options": {"kind": "CreateOptions"}},
        "namespaceObject": {
            "metadata": {"name": name, "labels": {"cel": name}},
            "status": {"phase": "Active"},
            "spec": {"finalizers": ["kubernetes"]},
        },
    }
    told = list(dict.fromkeys(outcome(each, bindings) for each in row["validations"]))
    assert told == row["told"]
