"""ValidatingAdmissionPolicies: expressions that must be true of a write."""

from typing import Final

from kvstack.apimachinery.objects.field_checks import conditions
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    index,
    invalid,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_label_key, length
from kvstack.apimachinery.objects.text import json_path
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
from kvstack.apiserver.kinds.expressions import Use
from kvstack.apiserver.kinds.generation import raise_generation
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.rules import Errors, add_invalid, one_of
from kvstack.apiserver.kinds.status_metadata import keep_all_but_status
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status

_TYPES: Final = "io.k8s.api.admissionregistration.v1"
_SPEC: Final = f"{_TYPES}.ValidatingAdmissionPolicySpec"
_ANNOTATIONS_MAX: Final = 20
_VALUE_EXPRESSION_BYTES_MAX: Final = 5 * 1024
_ONE_AT_LEAST: Final = "validations or auditAnnotations must contain at least one item"
_NOT_EMPTY: Final = "must be non-empty if specified"


def _default(obj: Object) -> None:
    default_policy(obj.setdefault("spec", {}))


def _prepare_create(obj: Object, _context: Context) -> None:
    obj["status"] = {}
    obj["metadata"]["generation"] = 1


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    new["status"] = old.get("status") or {}
    raise_generation(new, old, _SPEC)


def _validate(obj: Object, context: Context) -> list[FieldError]:
    errors = _errors(obj, None, context) + reserved_name_errors(obj)
    return errors or param_kind_denial(obj, None, context)


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    return _errors(new, old, context) or param_kind_denial(new, old, context)


def _errors(obj: Object, old: Object | None, context: Context) -> list[FieldError]:
    errors: Errors = []
    spec, before = obj["spec"], None if old is None else old["spec"]
    check_constraints(spec, "spec", errors)
    check_conditions(spec, before, "spec", errors, context)
    stored = _stored(before, "validations", "expression")
    scope = check_variables(spec, stored, "spec", errors, context)
    validations, annotations = spec.get("validations") or [], spec.get("auditAnnotations") or []
    if not validations and not annotations:
        errors.append(required("spec.validations", _ONE_AT_LEAST))
        errors.append(required("spec.auditAnnotations", _ONE_AT_LEAST))
        return errors
    messages = _stored(before, "validations", "messageExpression")
    for position, validation in enumerate(validations):
        path = index("spec.validations", position)
        _check_validation(validation, path, errors, scope, stored, messages)
    values = _stored(before, "auditAnnotations", "valueExpression")
    _check_annotations(obj["metadata"].get("name", ""), annotations, errors, scope, values)
    return errors


def _stored(spec: Object | None, items: str, name: str) -> set[str]:
    return {each.get(name, "") for each in (spec or {}).get(items) or ()}


_check_reason: Final = one_of("reason", ("Forbidden", "Invalid", "RequestEntityTooLarge"))


def _check_validation(
    validation: Object,
    path: str,
    errors: Errors,
    scope: Scope,
    stored: set[str],
    stored_messages: set[str],
) -> None:
    text, where = validation.get("expression", ""), child(path, "expression")
    if text.strip():
        scope.check(text, Use.VALIDATION, where, errors, is_stored=text in stored)
    else:
        errors.append(required(where, "expression is not specified"))
    text, where = validation.get("messageExpression", ""), child(path, "messageExpression")
    if text.strip():
        scope.check(text, Use.MESSAGE, where, errors, is_stored=text in stored_messages)
    elif text:
        errors.append(invalid(where, text, _NOT_EMPTY))
    message, where = validation.get("message", ""), child(path, "message")
    if message and not message.strip():
        errors.append(invalid(where, message, _NOT_EMPTY))
    elif "\n" in message.strip() or "\r" in message.strip():
        errors.append(invalid(where, message, "must not contain line breaks"))
    _check_reason(validation, path, errors)


def _check_annotations(
    policy: str, annotations: list[Object], errors: Errors, scope: Scope, stored: set[str]
) -> None:
    path = "spec.auditAnnotations"
    if len(annotations) > _ANNOTATIONS_MAX:
        value = internal_value(annotations, f"{_TYPES}.AuditAnnotation")
        detail = f"must not have more than {_ANNOTATIONS_MAX} auditAnnotations"
        errors.append(invalid(path, value, detail))
    seen: set[str] = set()
    for position, annotation in enumerate(annotations):
        where = index(path, position)
        name, name_path = annotation.get("key", ""), child(where, "key")
        if policy:
            whole = f"{policy}/{name}"
            add_invalid(errors, name_path, whole, check_label_key(whole))
        else:
            detail = "requires metadata.name be non-empty"
            errors.append(invalid(name_path, name, detail))
        _check_value(annotation, child(where, "valueExpression"), errors, scope, stored)
        if name in seen:
            errors.append(duplicate(name_path, name))
        seen.add(name)


def _check_value(
    annotation: Object, path: str, errors: Errors, scope: Scope, stored: set[str]
) -> None:
    whole = annotation.get("valueExpression", "")
    text = whole.strip()
    if not text:
        errors.append(required(path, "valueExpression is not specified"))
    elif length(text) > _VALUE_EXPRESSION_BYTES_MAX:
        detail = f"must not exceed {_VALUE_EXPRESSION_BYTES_MAX} bytes in length"
        errors.append(required(path, detail))
    else:
        use, is_stored = Use.AUDIT_ANNOTATION, whole in stored
        scope.check(text, use, path, errors, is_stored=is_stored, printed=whole)


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    errors: Errors = []
    status = new.get("status") or {}
    warnings = (status.get("typeChecking") or {}).get("expressionWarnings") or ()
    for position, warning in enumerate(warnings):
        path = index("status.typeChecking.expressionWarnings", position)
        if not warning.get("warning"):
            errors.append(required(child(path, "warning")))
        _check_field_reference(warning.get("fieldRef", "").strip(), child(path, "fieldRef"), errors)
    return errors + conditions("status.conditions", status.get("conditions") or [])


def _check_field_reference(reference: str, path: str, errors: Errors) -> None:
    if not reference:
        errors.append(required(path))
        return
    try:
        json_path.parse(f"{{{reference}}}")
    except json_path.JsonPathError as error:
        errors.append(invalid(path, reference, f"invalid JSONPath: {error}"))


def _update_warnings(new: Object, _old: Object, _context: Context) -> list[str]:
    return reserved_name_warnings(new)


_cells: Final = policy_cells("validations")

VALIDATING_POLICIES: Final = with_status(
    Strategy(
        allows_any_finalizer=True,
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        update_warnings=_update_warnings,
        allows_unconditional_update=False,
        has_generation=True,
        cells=_cells,
    ),
    prepare_update=keep_all_but_status,
    validate_update=_validate_status,
    reset_fields=(("spec",), ("metadata",)),
    update_warnings=_update_warnings,
)
