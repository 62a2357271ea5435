"""Common parts of ValidatingAdmissionPolicies and MutatingAdmissionPolicies."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.field_errors import child, index, invalid, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_identifier
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.admissionregistration.match_conditions import check_match_conditions
from kvstack.apiserver.kinds.admissionregistration.match_resources import (
    check_match_resources,
    default_match_resources,
)
from kvstack.apiserver.kinds.admissionregistration.params import check_param_kind
from kvstack.apiserver.kinds.admissionregistration.webhooks import FAILURE_POLICIES
from kvstack.apiserver.kinds.expressions import AdmissionExpression, Use, Variable
from kvstack.apiserver.kinds.rules import Errors, all_of, inside, not_nil, one_of
from kvstack.apiserver.kinds.strategy import Context

_RESERVED: Final = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function",
    "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
"""Reserved words of CEL."""


class Scope(NamedTuple):
    """The scope of a policy's expressions."""

    context: Context
    has_params: bool
    variables: tuple[Variable, ...] | None = None
    """None: the policy has none."""

    def check(
        self, text: str, use: Use, path: str, errors: Errors, *, is_stored: bool, printed: str = ""
    ) -> None:
        """Check an expression; printed: the value in errors, if not the text itself."""
        expression = AdmissionExpression(
            text=text,
            use=use,
            has_params=self.has_params,
            has_authorizer=use is not Use.MESSAGE,
            variables=self.variables,
            is_stored=is_stored,
        )
        problem = self.context.expressions.check(expression)
        if problem is not None:
            errors.append(problem.error(path, printed or text))


def default_policy(spec: Object) -> None:
    """Set the defaults of both kinds."""
    if spec.get("failurePolicy") is None:
        spec["failurePolicy"] = "Fail"
    default_match_resources(spec.get("matchConstraints"))


_check_failure_policy: Final = all_of(
    not_nil("failurePolicy"), one_of("failurePolicy", FAILURE_POLICIES)
)
_check_param_kind: Final = inside("paramKind", check_param_kind)


def check_constraints(spec: Object, path: str, errors: Errors) -> None:
    """Check the match constraints, and the paramKind."""
    _check_failure_policy(spec, path, errors)
    _check_param_kind(spec, path, errors)
    match, match_path = spec.get("matchConstraints"), child(path, "matchConstraints")
    if match is None:
        errors.append(required(match_path))
        return
    check_match_resources(match, match_path, errors)
    if not match.get("resourceRules"):
        errors.append(required(child(match_path, "resourceRules")))


def check_conditions(
    spec: Object, old: Object | None, path: str, errors: Errors, context: Context
) -> None:
    """Check the match conditions, if they or their scope changed."""
    conditions, before = spec.get("matchConditions") or [], (old or {}).get("matchConditions") or []
    if old is not None and conditions == before and spec.get("paramKind") == old.get("paramKind"):
        return
    has_params = spec.get("paramKind") is not None
    where = child(path, "matchConditions")
    check_match_conditions(conditions, where, errors, context, stored=before, has_params=has_params)


def check_variables(
    spec: Object, stored: set[str], path: str, errors: Errors, context: Context
) -> Scope:
    """Check the variables; return the scope of later expressions.

    stored: expressions of validations before the update.
    """
    scope = Scope(context, spec.get("paramKind") is not None)
    if spec.get("variables"):
        scope = scope._replace(variables=())
    for position, variable in enumerate(spec.get("variables") or ()):
        where = index(child(path, "variables"), position)
        name, text = variable.get("name", ""), variable.get("expression", "")
        if not name.strip():
            errors.append(required(child(where, "name"), "name is not specified"))
        elif check_identifier(name) or name in _RESERVED:
            errors.append(invalid(child(where, "name"), name, "must be a valid CEL identifier"))
        if not text.strip():
            detail = "expression is not specified"
            errors.append(required(child(where, "expression"), detail))
            continue
        is_stored = text in stored
        scope.check(text, Use.VARIABLE, child(where, "expression"), errors, is_stored=is_stored)
        scope = scope._replace(variables=(*(scope.variables or ()), Variable(name, text)))
    return scope


def policy_cells(counted: str) -> Callable[[Object, float], list[Any]]:
    """Return the function that makes the row of a policy; `counted`: the list that it counts."""

    def cells(obj: Object, now: float) -> list[Any]:
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        kind = spec.get("paramKind")
        shown = (
            "<unset>" if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"
        )
        created = metadata.get("creationTimestamp")
        return [metadata["name"], len(spec.get(counted) or ()), shown, age(created, now)]

    return cells
