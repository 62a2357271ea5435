"""Leases: holder and duration. Coordinated leader election is off by default."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, forbidden, invalid, not_supported
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import NEGATIVE, check_label_key
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.strategy import Context, Strategy

_GATED: Final = ("strategy", "preferredHolder")
_STRATEGIES: Final = ("OldestEmulationVersion",)


def _prepare_create(obj: Object, _context: Context) -> None:
    spec: Object = obj.get("spec", {})
    for each in _GATED:
        spec.pop(each, None)


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    spec: Object = new.get("spec", {})
    for each in _GATED:
        if each not in old.get("spec", {}):
            spec.pop(each, None)


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    spec: Object = obj.get("spec", {})
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errors.append(invalid("spec.leaseTransitions", transitions, NEGATIVE))
    strategy = spec.get("strategy")
    if strategy is not None:
        errors += _strategy_errors(strategy)
    if spec.get("preferredHolder") and not strategy:
        detail = "may only be specified if `strategy` is defined"
        errors.append(forbidden("spec.preferredHolder", detail))
    return errors


def _strategy_errors(strategy: str) -> list[FieldError]:
    path = "spec.strategy"
    if "/" in strategy:
        return [invalid(path, JsonText(strategy), each) for each in check_label_key(strategy)]
    if strategy in _STRATEGIES:
        return []
    return [not_supported(path, JsonText(strategy), _STRATEGIES)]


def _validate_update(new: Object, _old: Object, context: Context) -> list[FieldError]:
    return _validate(new, context)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [
        metadata["name"],
        obj.get("spec", {}).get("holderIdentity", ""),
        age(metadata.get("creationTimestamp"), now),
    ]


LEASES: Final = Strategy(
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    allows_any_finalizer=True,
    allows_create_on_update=True,
    allows_unconditional_update=False,
    cells=_cells,
)
