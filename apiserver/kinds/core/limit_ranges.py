"""LimitRanges: minimum, maximum and default quantities for pods and claims.

For one resource: min ≤ defaultRequest ≤ default ≤ max.
"""

from typing import TYPE_CHECKING, Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    key,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_label_key
from kvstack.apimachinery.objects.quantity import Quantity, parse
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.amounts import round_up_amounts
from kvstack.apiserver.kinds.resource_names import (
    can_be_overcommitted,
    check_container_resource_name,
    check_resource_name,
)
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.strategy import Context, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable

POD: Final = "Pod"
CONTAINER: Final = "Container"
CLAIM: Final = "PersistentVolumeClaim"

_AMOUNTS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_ONE: Final = parse("1")
_MILLI_MAX: Final = (2**63 - 1) // 1000
_ORDERED: Final = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    (
        "min", "defaultRequest", "defaultRequest", "defaultRequest",
        "min value {} is greater than default request value {}",
    ),
    (
        "defaultRequest", "max", "defaultRequest", "defaultRequest",
        "default request value {} is greater than max value {}",
    ),
    (
        "defaultRequest", "default", "defaultRequest", "defaultRequest",
        "default request value {} is greater than default limit value {}",
    ),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)  # fmt: skip
"""The smaller quantity, the larger one, whose field the error names, whose value it shows, text."""


def _default(obj: Object) -> None:
    for item in obj.get("spec", {}).get("limits") or ():
        for each in _AMOUNTS:
            round_up_amounts(item.get(each))
        if item.get("type") == CONTAINER:
            _default_container(item)


def _default_container(item: Object) -> None:
    limits = (item.get("max") or {}) | (item.get("default") or {})
    requests = (item.get("min") or {}) | limits | (item.get("defaultRequest") or {})
    if limits:
        item["default"] = limits
    if requests:
        item["defaultRequest"] = requests


def _prepare_create(obj: Object, context: Context) -> None:
    metadata = obj["metadata"]
    if not metadata.get("name"):
        metadata["name"] = context.new_uid()


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    types: set[str] = set()
    for position, item in enumerate(obj.get("spec", {}).get("limits") or ()):
        path = index("spec.limits", position)
        kind = item.get("type", "")
        _check_type(errors, child(path, "type"), kind)
        if kind in types:
            errors.append(duplicate(child(path, "type"), JsonText(kind)))
        types.add(kind)
        _check_item(errors, path, item, kind)
    return errors


def _validate_update(new: Object, _old: Object, context: Context) -> list[FieldError]:
    return _validate(new, context)


def _check_type(errors: Errors, path: str, kind: str) -> None:
    messages = check_label_key(kind)
    if not messages and "/" not in kind and kind not in {POD, CONTAINER, CLAIM}:
        messages = ["must be a standard limit type or fully qualified"]
    errors.extend(invalid(path, JsonText(kind), each) for each in messages)


def _check_item(errors: Errors, path: str, item: Object, kind: str) -> None:
    check_name: Callable[[Errors, str, str], None] = (
        check_container_resource_name if kind in {POD, CONTAINER} else check_resource_name
    )
    amounts: dict[str, dict[str, Quantity]] = {}
    for name in _AMOUNTS:
        amounts_of_name: dict[str, str] = item.get(name) or {}
        if kind == POD and name in {"default", "defaultRequest"}:
            if amounts_of_name:
                detail = "may not be specified when `type` is 'Pod'"
                errors.append(forbidden(child(path, name), detail))
            amounts_of_name = {}
        if kind == CLAIM and name == "maxLimitRequestRatio":
            _check_claim(errors, path, item)
        for each in amounts_of_name:
            check_name(errors, key(child(path, name), each), each)
        amounts[name] = {each: parse(text) for each, text in amounts_of_name.items()}
    for resource in dict.fromkeys(each for name in _AMOUNTS for each in amounts[name]):
        of_resource = {
            name: amounts[name][resource] for name in _AMOUNTS if resource in amounts[name]
        }
        _check_order(errors, path, resource, of_resource)
        _check_ratio(errors, path, resource, of_resource)
        _check_overcommitted(errors, path, resource, of_resource)


def _check_claim(errors: Errors, path: str, item: Object) -> None:
    if "storage" not in (item.get("min") or {}) and "storage" not in (item.get("max") or {}):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        errors.append(required(child(path, "limits"), detail))


def _check_order(errors: Errors, path: str, resource: str, amounts: dict[str, Quantity]) -> None:
    for low, high, field, shown, text in _ORDERED:
        if low in amounts and high in amounts and amounts[low] > amounts[high]:
            detail = text.format(amounts[low], amounts[high])
            errors.append(invalid(key(child(path, field), resource), str(amounts[shown]), detail))


def _check_ratio(errors: Errors, path: str, resource: str, amounts: dict[str, Quantity]) -> None:
    ratio = amounts.get("maxLimitRequestRatio")
    if ratio is None:
        return
    field = key(child(path, "maxLimitRequestRatio"), resource)
    if ratio < _ONE:
        errors.append(invalid(field, str(ratio), f"ratio {ratio} is less than 1"))
    if "min" not in amounts or "max" not in amounts:
        return
    low, high = amounts["min"], amounts["max"]
    if all(each.value() < _MILLI_MAX for each in (ratio, low, high)):
        value = ratio.milli_value() / 1000
        least, most = low.milli_value(), high.milli_value()
    else:
        value, least, most = float(ratio.value()), low.value(), high.value()
    bound = _divide(most, least)
    if value > bound:
        detail = f"ratio {ratio} is greater than max/min = {_six_digits(bound)}"
        errors.append(invalid(field, str(ratio), detail))


def _check_overcommitted(
    errors: Errors, path: str, resource: str, amounts: dict[str, Quantity]
) -> None:
    limit, request = amounts.get("default"), amounts.get("defaultRequest")
    if limit is None or request is None or limit == request or can_be_overcommitted(resource):
        return
    detail = f"default value {limit} must equal to defaultRequest value {request} in {resource}"
    errors.append(invalid(key(child(path, "defaultRequest"), resource), str(request), detail))


def _divide(most: int, least: int) -> float:
    """Divide like floats: division by zero gives an infinity or NaN."""
    if least:
        return most / least
    return float("inf") * most if most else float("nan")


def _six_digits(value: float) -> str:
    if value in {float("inf"), float("-inf")}:
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:f}"


def _cells(obj: Object, _now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [metadata["name"], metadata.get("creationTimestamp")]


LIMIT_RANGES: Final = Strategy(
    default=_default,
    prepare_create=_prepare_create,
    validate=_validate,
    validate_update=_validate_update,
    allows_create_on_update=True,
    cells=_cells,
)
