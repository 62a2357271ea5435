"""The Scale of custom resources, by the paths of the definition.

scaling = scaling_of({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"})

An object without desired replicas has no readable Scale, but a writable one. A value at a path that
is not a number is an error. The replicas are validated as part of the object.
"""

from collections.abc import Sequence
from typing import Any, Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import go_plain, quote
from kvstack.apiserver.kinds.strategy import Scaling
from kvstack.apiserver.kinds.workloads.scales import scale_object

UNSET: Final = -(2**31)
"""The replicas of the Scale that a change starts with if the object has none."""
_GO_TYPES: Final = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    type(None): "<nil>",
}


def scaling_of(given: Object) -> Scaling:
    """Return the scaling of a definition."""
    path = given["specReplicasPath"]
    desired, current = _steps(path), _steps(given["statusReplicasPath"])
    selector_path = given.get("labelSelectorPath")
    selector = _steps(selector_path) if selector_path else ()

    def scale_of(obj: Object) -> Object:
        return _scale(obj, _number(obj, desired, 0))

    def read(obj: Object) -> Object:
        if _value_at(obj, desired) is _MISSING:
            raise status.internal_error(f"the spec replicas field {quote(path)} does not exist")
        return scale_of(obj)

    def before(obj: Object) -> Object:
        return _scale(obj, _number(obj, desired, UNSET))

    def _scale(obj: Object, replicas: int) -> Object:
        text = _text(obj, selector) if selector else ""
        return scale_object(obj, replicas, _number(obj, current, 0), text)

    def set_replicas(obj: Object, scale: Object) -> None:
        replicas: int = (scale.get("spec") or {}).get("replicas", 0)
        if replicas == UNSET:
            raise status.bad_request(f"the spec replicas field {quote(path)} cannot be empty")
        _set(obj, desired, replicas)

    return Scaling(
        path=desired, scale_of=scale_of, set_replicas=set_replicas, read=read, before=before
    )


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.removeprefix(".").split("."))


_MISSING: Final = object()


def _value_at(obj: Object, steps: Sequence[str]) -> Any:  # noqa: ANN401 — any JSON value
    """Return the value at a path, or _MISSING; raises ApiError if a step is not an object."""
    value: Any = obj
    for number, step in enumerate(steps):
        if value is None:
            return _MISSING
        if not isinstance(value, dict):
            raise _misfit(steps[: number + 1], value, "map[string]interface{}")
        if step not in value:
            return _MISSING
        value = value[step]
    return value


def _number(obj: Object, steps: Sequence[str], default: int) -> int:
    value = _value_at(obj, steps)
    if value is _MISSING:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise _misfit(steps, value, "int64")
    return value


def _text(obj: Object, steps: Sequence[str]) -> str:
    value = _value_at(obj, steps)
    if value is _MISSING:
        return ""
    if not isinstance(value, str):
        raise _misfit(steps, value, "string")
    return value


def _misfit(steps: Sequence[str], value: object, expected: str) -> status.ApiError:
    found = _GO_TYPES.get(type(value), type(value).__name__)
    return status.unknown(
        f".{'.'.join(steps)} accessor error: {go_plain(value)} is of the type {found}, expected"
        f" {expected}"
    )


def _set(obj: Object, steps: Sequence[str], value: int) -> None:
    """Set a number at a path; raises ApiError if a step is not an object."""
    holder = obj
    for number, step in enumerate(steps[:-1]):
        below = holder.setdefault(step, {})
        if not isinstance(below, dict):
            where = ".".join(steps[: number + 1])
            raise status.unknown(
                f"value cannot be set because .{where} is not a map[string]interface{{}}"
            )
        holder = below
    holder[steps[-1]] = value
