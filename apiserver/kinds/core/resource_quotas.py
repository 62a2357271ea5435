"""ResourceQuotas: limits of a namespace, optionally for some pods or claims."""

from collections.abc import Iterable
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    invalid,
    key,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE
from kvstack.apimachinery.objects.quantity import ZERO, parse
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.amounts import round_up_amounts
from kvstack.apiserver.kinds.resource_names import (
    check_amount,
    check_quota_resource_name,
    is_quota_resource,
)
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.status_metadata import begin_without_status, keep_spec, keep_status
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status

_POD_OBJECTS: Final = frozenset({"pods"})
_POD_RESOURCES: Final = _POD_OBJECTS | {
    "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory",
}  # fmt: skip
_SCOPES: Final = {
    "Terminating": _POD_RESOURCES,
    "NotTerminating": _POD_RESOURCES,
    "BestEffort": _POD_OBJECTS,
    "NotBestEffort": _POD_RESOURCES,
    "PriorityClass": _POD_RESOURCES,
    "CrossNamespacePodAffinity": _POD_RESOURCES,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""The standard resources that a quota with the scope can limit."""

_ONLY_EXISTS: Final = frozenset({
    "BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity",
})  # fmt: skip
_OPPOSITES: Final = (
    frozenset({"BestEffort", "NotBestEffort"}),
    frozenset({"Terminating", "NotTerminating"}),
)

_WARNED: Final = ("cpu", "memory", "storage", "ephemeral-storage")


def _default(obj: Object) -> None:
    round_up_amounts(obj.get("spec", {}).get("hard"))
    status = obj.get("status")
    if status:
        round_up_amounts(status.get("hard"))
        round_up_amounts(status.get("used"))


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    spec: Object = obj.get("spec", {})
    _check_amounts(errors, "spec.hard", spec.get("hard"))
    _check_scopes(errors, spec)
    _check_selector(errors, spec)
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = _validate(new, context)
    scopes = new.get("spec", {}).get("scopes")
    if set(scopes or ()) != set(old.get("spec", {}).get("scopes") or ()):
        errors.append(invalid("spec.scopes", scopes, IMMUTABLE))
    return errors


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    if not new["metadata"].get("resourceVersion"):
        errors.append(required("resourceVersion"))
    for each in ("hard", "used"):
        _check_amounts(errors, child("status", each), new["status"].get(each))
    return errors


def _check_amounts(errors: Errors, path: str, amounts: dict[str, str] | None) -> None:
    for name, amount in (amounts or {}).items():
        field = key(path, name)
        check_quota_resource_name(errors, field, name)
        check_amount(errors, field, name, amount)


def _check_scopes(errors: Errors, spec: Object) -> None:
    scopes: list[str] = spec.get("scopes") or []
    for scope in scopes:
        if scope not in _SCOPES:
            errors.append(invalid("spec.scopes", scopes, "unsupported scope"))
        for _ in _unlimited(scope, spec):
            errors.append(invalid("spec.scopes", scopes, "unsupported scope applied to resource"))
    _check_opposites(errors, scopes, scopes)


def _check_selector(errors: Errors, spec: Object) -> None:
    selector = spec.get("scopeSelector")
    if selector is None:
        return
    path = "spec.scopeSelector.matchExpressions"
    expressions: list[Object] = selector.get("matchExpressions") or []
    for each in expressions:
        scope: str = each.get("scopeName", "")
        if scope not in _SCOPES:
            errors.append(invalid(child(path, "scopeName"), JsonText(scope), "unsupported scope"))
        for _ in _unlimited(scope, spec):
            detail = "unsupported scope applied to resource"
            errors.append(invalid(path, _internal_selector(expressions), detail))
        _check_expression(errors, path, each, scope)
    _check_opposites(
        errors, (each.get("scopeName", "") for each in expressions), spec.get("scopes")
    )


def _check_expression(errors: Errors, path: str, expression: Object, scope: str) -> None:
    operator: str = expression.get("operator", "")
    values: list[str] = expression.get("values") or []
    if scope in _ONLY_EXISTS and operator != "Exists":
        errors.append(
            invalid(
                child(path, "operator"),
                JsonText(operator),
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating,"
                " ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort,"
                " ResourceQuotaScopeNotBestEffort or"
                " ResourceQuotaScopeCrossNamespacePodAffinity",
            )
        )
    if operator in {"In", "NotIn"}:
        if not values:
            detail = (
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            )
            errors.append(required(child(path, "values"), detail))
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            detail = (
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            )
            errors.append(invalid(child(path, "values"), values, detail))
    else:
        detail = "not a valid selector operator"
        errors.append(invalid(child(path, "operator"), JsonText(operator), detail))


def _unlimited(scope: str, spec: Object) -> Iterable[str]:
    """Return the standard resources of the quota that the scope does not apply to."""
    limited = _SCOPES.get(scope)
    if limited is None:
        return ()
    hard: dict[str, str] = spec.get("hard") or {}
    return [each for each in hard if is_quota_resource(each) and each not in limited]


def _check_opposites(errors: Errors, scopes: Iterable[str], shown: list[str] | None) -> None:
    present = set(scopes)
    for pair in _OPPOSITES:
        if pair <= present:
            errors.append(invalid("spec.scopes", shown or None, "conflicting scopes"))


def _internal_selector(expressions: list[Object]) -> Object:
    """Return the selector with the names of Go's fields, as in errors."""
    return {
        "MatchExpressions": [
            {
                "ScopeName": each.get("scopeName", ""),
                "Operator": each.get("operator", ""),
                "Values": each.get("values"),
            }
            for each in expressions
        ]
        or None
    }


def _warnings(obj: Object, _context: Context) -> list[str]:
    hard: dict[str, str] = obj.get("spec", {}).get("hard") or {}
    warnings: list[str] = []
    for each in _WARNED:
        request, limit = f"requests.{each}", f"limits.{each}"
        if request not in hard and each in {"cpu", "memory"}:
            request = each
        if request in hard and limit in hard and parse(hard[request]) > parse(hard[limit]):
            warnings.append(
                f"ResourceQuota {request} ({hard[request]}) should be less than"
                f" {limit} ({hard[limit]})"
            )
    return warnings


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    status = obj.get("status", {})
    used = status.get("used") or {}
    requests: list[str] = []
    limits: list[str] = []
    for name, hard in sorted((status.get("hard") or {}).items()):
        column = limits if name.startswith("limits.") else requests
        column.append(f"{name}: {used.get(name, ZERO)}/{hard}")
    return [
        metadata["name"],
        ", ".join(requests),
        ", ".join(limits),
        age(metadata.get("creationTimestamp"), now),
    ]


RESOURCE_QUOTAS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=begin_without_status,
        prepare_update=keep_status,
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        cells=_cells,
    ),
    prepare_update=keep_spec,
    validate_update=_validate_status,
)
