"""The values of enumerations are the schema's, also where errors list them in another order."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kvstack.apimachinery.schema.load import built_in_types, enum_in_order, enum_values

ROOT: Final = Path(__file__).resolve().parents[3]
_FOLDERS: Final = ("apiserver/kinds", "apiserver/apiextensions", "apiserver/verbs")
_OPERATORS: Final = frozenset(("In", "NotIn"))
"""Two of the operators of selectors, and by chance all of one enumeration."""
_POD_SPEC: Final = "io.k8s.api.core.v1.PodSpec"


def test_values_keep_the_order_of_upstream() -> None:
    order = "Always", "OnFailure", "Never"
    assert enum_in_order(_POD_SPEC, "restartPolicy", *order) == order
    assert enum_values(_POD_SPEC, "restartPolicy") == ("Always", "Never", "OnFailure")


@pytest.mark.parametrize(
    "order", [(), ("Always", "Never"), ("Always", "OnFailure", "Never", "Never"), ("A", "B", "C")]
)
def test_values_that_are_not_the_schema_s_are_refused(order: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="the values of the field restartPolicy are"):
        enum_in_order(_POD_SPEC, "restartPolicy", *order)


def test_no_enumeration_is_typed_again() -> None:
    enumerations = _enumerations()
    assert frozenset(("TCP", "UDP", "SCTP")) in enumerations
    typed = {
        f"{path.relative_to(ROOT)}:{line}"
        for folder in _FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, values in lists_of_texts(ast.parse(path.read_bytes()))
        if values in enumerations and values != _OPERATORS
    }
    assert not typed, "take the values from enum_values or enum_in_order"


@pytest.mark.parametrize(
    "text",
    [
        '("UDP", "TCP")',
        '{"TCP", "UDP"}',
        'A = "TCP"\nB = ["UDP", A]',
        'A: Final = "TCP"\n{A, "UDP"}',
    ],
)
def test_lists_are_detected_in_every_notation(text: str) -> None:
    assert [values for _, values in lists_of_texts(ast.parse(text))] == [{"TCP", "UDP"}]


def _enumerations() -> set[frozenset[str]]:
    found = set()
    for type_ in built_in_types().values():
        for field in (type_.fields or {}).values():
            value = field.type
            while value.element is not None:
                value = value.element
            found.add(frozenset(value.enum) - {""})
    return {each for each in found if len(each) > 1}


def lists_of_texts(tree: ast.Module) -> Iterator[tuple[int, frozenset[str]]]:
    """Yield the lists, tuples and sets of texts and constants, with their lines."""
    constants = {
        target.id: value.value
        for target, value in _assignments(tree)
        if isinstance(target, ast.Name)
        and isinstance(value, ast.Constant)
        and isinstance(value.value, str)
    }
    for inner in ast.walk(tree):
        if isinstance(inner, ast.Tuple | ast.List | ast.Set):
            values = [_text(each, constants) for each in inner.elts]
            if values and all(isinstance(each, str) for each in values):
                yield inner.lineno, frozenset(filter(None, values))


def _assignments(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    for node in tree.body:
        if isinstance(node, ast.AnnAssign):
            yield node.target, node.value
        elif isinstance(node, ast.Assign):
            yield node.targets[0], node.value


def _text(node: ast.expr, constants: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
