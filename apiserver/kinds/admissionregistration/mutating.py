"""MutatingAdmissionPolicies: expressions that change written objects."""

from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.admissionregistration.params import param_kind_denial
from kvstack.apiserver.kinds.admissionregistration.policies import (
    Scope,
    check_conditions,
    check_constraints,
    check_variables,
    default_policy,
    policy_cells,
)
from kvstack.apiserver.kinds.admissionregistration.reserved_names import (
    reserved_name_errors,
    reserved_name_warnings,
)
from kvstack.apiserver.kinds.admissionregistration.resource_rules import check_mutated
from kvstack.apiserver.kinds.admissionregistration.webhooks import REINVOCATION_POLICIES
from kvstack.apiserver.kinds.expressions import Use
from kvstack.apiserver.kinds.generation import raise_generation, set_first_generation
from kvstack.apiserver.kinds.rules import Errors, needs_one_of
from kvstack.apiserver.kinds.strategy import Context, Strategy

_SPEC: Final = "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicySpec"
_PATCHES: Final = {
    "ApplyConfiguration": ("applyConfiguration", Use.APPLY_CONFIGURATION),
    "JSONPatch": ("jsonPatch", Use.JSON_PATCH),
}
"""The field of each type of patch."""


def _default(obj: Object) -> None:
    default_policy(obj.setdefault("spec", {}))


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    raise_generation(new, old, _SPEC)


def _validate(obj: Object, context: Context) -> list[FieldError]:
    errors = _errors(obj, None, context) + reserved_name_errors(obj)
    return errors or param_kind_denial(obj, None, context)


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    return _errors(new, old, context) or param_kind_denial(new, old, context)


_check_operations: Final = check_mutated("matchConstraints")
_check_reinvocation: Final = needs_one_of("reinvocationPolicy", REINVOCATION_POLICIES)


def _errors(obj: Object, old: Object | None, context: Context) -> list[FieldError]:
    errors: Errors = []
    spec, before = obj["spec"], None if old is None else old["spec"]
    check_constraints(spec, "spec", errors)
    _check_operations(spec, "spec", errors)
    check_conditions(spec, before, "spec", errors, context)
    scope = check_variables(spec, set(), "spec", errors, context)
    mutations = spec.get("mutations") or []
    if not mutations:
        errors.append(required("spec.mutations", "mutations must contain at least one item"))
    stored = {
        (each.get("applyConfiguration") or {}).get("expression", "")
        for each in (before or {}).get("mutations") or ()
    }
    for position, mutation in enumerate(mutations):
        _check_mutation(mutation, index("spec.mutations", position), errors, scope, stored)
    _check_reinvocation(spec, "spec", errors)
    return errors


def _check_mutation(
    mutation: Object, path: str, errors: Errors, scope: Scope, stored: set[str]
) -> None:
    """Check a mutation; `stored` are the expressions before the update."""
    kind = mutation.get("patchType", "")
    if not kind:
        errors.append(required(child(path, "patchType")))
        return
    if kind not in _PATCHES:
        errors.append(not_supported(child(path, "patchType"), JsonText(kind), _PATCHES))
        return
    field, use = _PATCHES[kind]
    patch, patch_path = mutation.get(field), child(path, field)
    if patch is None:
        detail = f"must be specified when patchType is {kind}"
        errors.append(required(patch_path, detail))
    else:
        whole, where = patch.get("expression", ""), child(patch_path, "expression")
        if text := whole.strip():
            scope.check(text, use, where, errors, is_stored=whole in stored)
        else:
            errors.append(required(where))
    for other, _ in _PATCHES.values():
        if other != field and mutation.get(other) is not None:
            detail = f"must not be specified when patchType is {kind}"
            errors.append(invalid(child(path, other), f"{{{other}}}", detail))


def _update_warnings(new: Object, _old: Object, _context: Context) -> list[str]:
    return reserved_name_warnings(new)


MUTATING_POLICIES: Final = Strategy(
    allows_any_finalizer=True,
    default=_default,
    prepare_create=set_first_generation,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    update_warnings=_update_warnings,
    allows_unconditional_update=False,
    has_generation=True,
    cells=policy_cells("mutations"),
)
