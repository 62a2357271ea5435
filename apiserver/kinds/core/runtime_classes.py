"""RuntimeClasses: handler, overhead and node selection."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    duplicate,
    index,
    invalid,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.metadata import validate_labels
from kvstack.apimachinery.objects.names import IMMUTABLE, check_dns_label
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.amounts import round_up_amounts
from kvstack.apiserver.kinds.deprecations import deprecated_node_label
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.pods.resources import check_container_requirements
from kvstack.apiserver.kinds.pods.scheduling import check_toleration_list
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.pods.tolerances import Tolerances
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.strategy import Context, Strategy

_TOLERATION: Final = "io.k8s.api.core.v1.Toleration"
_IDENTITY: Final = ("key", "operator", "value", "effect")


def _default(obj: Object) -> None:
    round_up_amounts((obj.get("overhead") or {}).get("podFixed"))


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    overhead, scheduling = obj.get("overhead"), obj.get("scheduling")
    if overhead is not None:
        _check_overhead(errors, overhead)
    if scheduling is not None:
        selector = scheduling.get("nodeSelector")
        if selector:
            errors.extend(validate_labels("scheduling.nodeSelector", selector))
        _check_tolerations(errors, scheduling.get("tolerations") or [])
    # Errors of the schema come last.
    return errors + _handler_errors(obj.get("handler", ""))


def _check_overhead(errors: Errors, overhead: Object) -> None:
    scope = SpecScope({}, "", errors=errors, tolerances=Tolerances(), is_pod=False)
    limits = {"limits": overhead.get("podFixed")}
    check_container_requirements(scope, limits, "overhead")


def _check_tolerations(errors: Errors, tolerations: list[Object]) -> None:
    path = "scheduling.tolerations"
    check_toleration_list(errors, tolerations, path)
    seen: set[tuple[str, ...]] = set()
    for position, toleration in enumerate(tolerations):
        identity = tuple(toleration.get(each, "") for each in _IDENTITY)
        if identity in seen:
            shown = internal_value(toleration, _TOLERATION)
            errors.append(duplicate(index(path, position), shown))
        seen.add(identity)


def _handler_errors(handler: str) -> list[FieldError]:
    if not handler:
        return [required("handler")]
    return [invalid("handler", handler, each) for each in check_dns_label(handler)]


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = _validate(new, context)
    if new.get("handler", "") != old.get("handler", ""):
        errors.append(invalid("handler", None, IMMUTABLE))
    return errors


def _warnings(obj: Object, _context: Context) -> list[str]:
    selector = (obj.get("scheduling") or {}).get("nodeSelector") or {}
    messages = map(deprecated_node_label, selector)
    return [f"scheduling.nodeSelector: {each}" for each in messages if each]


def _update_warnings(new: Object, _old: Object, context: Context) -> list[str]:
    return _warnings(new, context)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [
        metadata["name"],
        obj.get("handler", ""),
        age(metadata.get("creationTimestamp"), now),
    ]


RUNTIME_CLASSES: Final = Strategy(
    default=_default,
    validate=_validate,
    validate_update=_validate_update,
    warnings=_warnings,
    update_warnings=_update_warnings,
    allows_any_finalizer=True,
    allows_create_on_update=True,
    allows_unconditional_update=False,
    cells=_cells,
)
