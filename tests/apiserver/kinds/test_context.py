"""A context that does not say who checks permission and expressions lets neither pass."""

from typing import TYPE_CHECKING, Any, Final

from kvstack.apiserver.apiextensions.customresourcedefinitions.defaults import default_errors
from kvstack.apiserver.apiextensions.customresourcedefinitions.schema_rules import (
    Options,
    check_schema,
)
from kvstack.apiserver.kinds.access import AccessRequest
from kvstack.apiserver.kinds.admissionregistration.match_conditions import check_match_conditions
from kvstack.apiserver.kinds.admissionregistration.params import param_kind_denial
from kvstack.apiserver.kinds.strategy import Context

if TYPE_CHECKING:
    from kvstack.apiserver.kinds.rules import Errors

_CONTEXT: Final = Context("2026-01-02T03:04:05Z")
_UNCHECKED: Final = "expressions cannot be checked here"


def test_nothing_is_allowed() -> None:
    assert not _CONTEXT.access.is_allowed(AccessRequest("get", "", "v1", "configmaps"))
    policy = {"spec": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}}
    [error] = param_kind_denial(policy, None, _CONTEXT)
    assert error.field == "spec.paramKind"


def test_no_expression_is_taken() -> None:
    errors: Errors = []
    condition = {"name": "a", "expression": "true"}
    check_match_conditions([condition], "matchConditions", errors, _CONTEXT)
    assert [str(each) for each in errors] == [
        f"matchConditions[0].expression: Internal error: {_UNCHECKED}"
    ]


def test_no_rule_of_a_schema_is_taken() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "x-kubernetes-validations": [{"rule": "self.a == 1", "message": "m"}],
        "properties": {"a": {"type": "integer", "default": 1}},
    }
    errors = check_schema(schema, "s", Options(_CONTEXT.expressions)).errors
    [error] = [each for each in errors if _UNCHECKED in str(each)]
    assert error.field == "s.x-kubernetes-validations[0].rule"
    assert any(_UNCHECKED in str(each) for each in default_errors(schema, "s"))
