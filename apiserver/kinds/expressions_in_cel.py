"""Compiles CEL expressions of objects; see `kinds.expressions.Expressions`.

CEL.check(AdmissionExpression(text="1 +", use=Use.VALIDATION))
→ Problem(INVALID, "compilation failed: ERROR: <input>:1:4: Syntax error: …")
"""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FORBIDDEN, INTERNAL, INVALID, FieldError
from kvstack.apiserver.apiextensions.customresources.rules import RuleChecks, has_rules
from kvstack.apiserver.kinds.expressions import (
    AdmissionExpression,
    Problem,
    RuleFindings,
    SchemaRule,
    Use,
    Variable,
)
from kvstack.cel.admission import (
    BOOLEANS,
    OBJECTS,
    PATCH_LISTS,
    TEXTS,
    TEXTS_OR_NULL,
    Declared,
    compile_admission,
    stored_type,
)
from kvstack.cel.checker.types import Type
from kvstack.cel.devices import check_device_selector
from kvstack.cel.schemas.declared import declare
from kvstack.cel.schemas.rules import compile_message, compile_rule

_RETURNS: Final[dict[Use, tuple[Type, ...] | None]] = {
    Use.MATCH_CONDITION: BOOLEANS,
    Use.VALIDATION: BOOLEANS,
    Use.MESSAGE: TEXTS,
    Use.AUDIT_ANNOTATION: TEXTS_OR_NULL,
    Use.VARIABLE: None,
    Use.APPLY_CONFIGURATION: OBJECTS,
    Use.JSON_PATCH: PATCH_LISTS,
}
_PATCHES: Final = frozenset((Use.APPLY_CONFIGURATION, Use.JSON_PATCH))


class CelExpressions:
    """Compiles expressions."""

    def check(self, expression: AdmissionExpression) -> Problem | None:
        """Return why an expression does not compile, if it does not."""
        if expression.use is Use.DEVICE_SELECTOR:
            return _device_problem(expression.text)
        declared = Declared(
            has_params=expression.has_params,
            has_authorizer=expression.has_authorizer,
            has_patches=expression.use in _PATCHES,
            is_stored=expression.is_stored,
        )
        if expression.variables is not None:
            declared = with_variables(declared, expression.variables)
        compiled = compile_admission(declared, expression.text, _RETURNS[expression.use])
        if not compiled.problem:
            return None
        return Problem(INTERNAL if compiled.is_internal else INVALID, compiled.problem)

    def check_rule(self, rule: SchemaRule) -> RuleFindings:
        """Return the findings about a rule of a schema."""
        declared = declare(rule.schema, is_resource=rule.is_resource)
        if declared is None:
            problem = "failed to convert to declType for CEL validation rules"
            return RuleFindings(Problem(INVALID, problem))
        given = rule.schema["x-kubernetes-validations"][rule.position]
        compiled = compile_rule(declared, given, is_stored=rule.is_stored)
        if compiled.program is None:
            problem = compiled.problem
            return RuleFindings(Problem(INVALID, problem) if problem else None)
        message = compile_message(declared, given, is_stored=rule.is_message_stored)
        return RuleFindings(
            message_problem=Problem(INVALID, message.problem) if message.problem else None,
            cost=compiled.cost,
            cardinality=declared.cardinality,
            message_cost=message.cost,
            uses_old_self=compiled.uses_old_self,
        )

    def check_default(
        self,
        schema: dict[str, Any],
        value: Any,  # noqa: ANN401
        path: str,
        *,
        is_resource: bool,
    ) -> list[FieldError]:
        """Return the violations by a default: as an update of itself if possible, else as new."""
        if not has_rules(schema):
            return []
        rules = RuleChecks(schema, is_resource=is_resource)
        return rules.errors(value, value, [], path=path, is_ratcheting=False) or rules.errors(
            value, None, [], path=path
        )


def with_variables(declared: Declared, variables: tuple[Variable, ...]) -> Declared:
    """Return declarations with variables, each of the type that its expression returns."""
    types: dict[str, Type] = {}
    for each in variables:
        before = declared._replace(has_patches=False, variables=tuple(types.items()))
        types[each.name] = stored_type(compile_admission(before, each.text.strip()).type)
    return declared._replace(variables=tuple(types.items()))


def _device_problem(text: str) -> Problem | None:
    found = check_device_selector(text)
    if found is None:
        return None
    reason, detail = found
    return Problem({"forbidden": FORBIDDEN, "internal": INTERNAL}.get(reason, INVALID), detail)


CEL: Final = CelExpressions()
