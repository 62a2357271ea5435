"""Bindings of admission policies."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    duplicate,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import struct_text
from kvstack.apimachinery.objects.names import check_dns_subdomain
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.admissionregistration.match_resources import (
    check_match_resources,
    default_match_resources,
)
from kvstack.apiserver.kinds.admissionregistration.params import (
    check_param_reference,
    param_reference_denial,
)
from kvstack.apiserver.kinds.admissionregistration.reserved_names import (
    reserved_name_errors,
    reserved_name_warnings,
)
from kvstack.apiserver.kinds.admissionregistration.resource_rules import check_mutated
from kvstack.apiserver.kinds.declared import Declared, DeclaredRules
from kvstack.apiserver.kinds.generation import raise_generation, set_first_generation
from kvstack.apiserver.kinds.rules import Errors, add_invalid, inside
from kvstack.apiserver.kinds.strategy import Context, Strategy

_TYPES: Final = "io.k8s.api.admissionregistration.v1"
_ACTIONS: Final = enum_values(f"{_TYPES}.ValidatingAdmissionPolicyBindingSpec", "validationActions")
_ACTIONS_PATH: Final = "spec.validationActions"
_DUPLICATE_ACTIONS: Final = (
    "must not contain both Deny and Warn (repeating the same validation failure information in the"
    " API response and headers serves no purpose)"
)
_DECLARED: Final = DeclaredRules(
    {
        f"{_TYPES}.ValidatingAdmissionPolicyBindingSpec": {
            "policyName": Declared(is_required=True),
            "validationActions": Declared(is_required=True),
        }
    }
)

_check_reference: Final = inside("paramRef", check_param_reference)
_check_match: Final = inside("matchResources", check_match_resources)
_check_operations: Final = check_mutated("matchResources")


def _default(obj: Object) -> None:
    default_match_resources(obj.setdefault("spec", {}).get("matchResources"))


def _own_errors(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = obj["spec"]
    name = spec.get("policyName", "")
    if name:
        add_invalid(errors, "spec.policyName", name, check_dns_subdomain(name))
    else:
        errors.append(required("spec.policyName")._replace(covered=True))
    _check_reference(spec, "spec", errors)
    _check_match(spec, "spec", errors)
    return errors


def _validating_errors(obj: Object, old: Object | None) -> list[FieldError]:
    errors = _own_errors(obj)
    _check_actions(obj["spec"].get("validationActions") or [], errors)
    return _DECLARED.merge(errors, obj, old, f"{_TYPES}.ValidatingAdmissionPolicyBinding")


def _check_actions(actions: list[str], errors: Errors) -> None:
    seen: set[str] = set()
    for position, action in enumerate(actions):
        path = index(_ACTIONS_PATH, position)
        if action not in _ACTIONS:
            errors.append(not_supported(path, JsonText(action), _ACTIONS))
        if action in seen:
            errors.append(duplicate(path, JsonText(action)))
        seen.add(action)
    if seen >= {"Deny", "Warn"}:
        errors.append(invalid(_ACTIONS_PATH, actions, _DUPLICATE_ACTIONS))
    if not actions:
        detail = "at least one validation action is required"
        errors.append(required(_ACTIONS_PATH, detail)._replace(covered=True))


def _mutating_errors(obj: Object, _old: Object | None) -> list[FieldError]:
    errors = _own_errors(obj)
    _check_operations(obj["spec"], "spec", errors)
    return errors


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    return [
        metadata["name"],
        spec.get("policyName", ""),
        _params(spec.get("paramRef")),
        age(metadata.get("creationTimestamp"), now),
    ]


def _params(reference: Object | None) -> str:
    name = (reference or {}).get("name", "")
    if reference is None or (not name and reference.get("selector") is None):
        return "<unset>"
    if name:
        return f"{reference.get('namespace') or '*'}/{name}"
    return struct_text(reference["selector"])


def _strategy(kind: str, policies: str) -> Strategy:
    """Return the hooks of a kind of binding; policies: the resource that it binds."""
    spec_type = f"{_TYPES}.{kind}Spec"
    errors_of = _mutating_errors if kind.startswith("Mutating") else _validating_errors

    def prepare_update(new: Object, old: Object, _context: Context) -> None:
        raise_generation(new, old, spec_type)

    def validate(obj: Object, context: Context) -> list[FieldError]:
        errors = errors_of(obj, None) + reserved_name_errors(obj)
        return errors or param_reference_denial(obj, policies, context)

    def validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
        return errors_of(new, old) or param_reference_denial(new, policies, context)

    def update_warnings(new: Object, _old: Object, _context: Context) -> list[str]:
        return reserved_name_warnings(new)

    return Strategy(
        allows_any_finalizer=True,
        default=_default,
        prepare_create=set_first_generation,
        prepare_update=prepare_update,
        validate=validate,
        validate_update=validate_update,
        update_warnings=update_warnings,
        allows_unconditional_update=False,
        has_generation=True,
        cells=_cells,
    )


VALIDATING_BINDINGS: Final = _strategy(
    "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicies"
)
MUTATING_BINDINGS: Final = _strategy("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicies")
