"""PriorityClasses: names of pod priorities."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, forbidden, invalid
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.schema.load import enum_in_order
from kvstack.apiserver.kinds.rules import wrong_choice
from kvstack.apiserver.kinds.strategy import Context, Deletion, Strategy

SYSTEM_PREFIX: Final = "system-"
USER_VALUE_MAX: Final = 1_000_000_000
SYSTEM_CLASSES: Final = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}
"""The system's classes, none of which is the default."""

PREEMPTION_POLICIES: Final = enum_in_order(
    "io.k8s.api.scheduling.v1.PriorityClass", "preemptionPolicy", "PreemptLowerPriority", "Never"
)


def _default(obj: Object) -> None:
    obj.setdefault("preemptionPolicy", PREEMPTION_POLICIES[0])


def _prepare_create(obj: Object, _context: Context) -> None:
    obj["metadata"]["generation"] = 1


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    if name.startswith(SYSTEM_PREFIX):
        problem = _system_problem(name, value, is_default=obj.get("globalDefault", False))
        if problem:
            detail = (
                "priority class names with 'system-' prefix are reserved for system use only."
                f" error: {problem}"
            )
            errors.append(forbidden("metadata.name", detail))
    elif value > USER_VALUE_MAX:
        detail = f"maximum allowed value of a user defined priority is {USER_VALUE_MAX}"
        errors.append(forbidden("value", detail))
    policy = obj.get("preemptionPolicy")
    if policy is not None and policy not in PREEMPTION_POLICIES:
        errors.append(wrong_choice("preemptionPolicy", policy, PREEMPTION_POLICIES))
    return errors


def _system_problem(name: str, value: int, *, is_default: bool) -> str:
    expected = SYSTEM_CLASSES.get(name)
    if expected is None:
        return f"{name} is not a known system priority class"
    if value != expected:
        return f"value of {name} PriorityClass must be {expected}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    if new.get("value", 0) != old.get("value", 0):
        errors.append(forbidden("value", "may not be changed in an update."))
    policy = new.get("preemptionPolicy")
    if policy != old.get("preemptionPolicy"):
        shown = None if policy is None else JsonText(policy)
        errors.append(invalid("preemptionPolicy", shown, IMMUTABLE))
    return errors


def _keeps(name: str) -> str:
    is_system = name in SYSTEM_CLASSES
    return "this is a system priority class and cannot be deleted" if is_system else ""


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [
        metadata["name"],
        obj.get("value", 0),
        obj.get("globalDefault", False),
        age(metadata.get("creationTimestamp"), now),
        obj.get("preemptionPolicy", ""),
    ]


PRIORITY_CLASSES: Final = Strategy(
    default=_default,
    prepare_create=_prepare_create,
    validate=_validate,
    validate_update=_validate_update,
    has_generation=True,
    deletion=Deletion(refusal=_keeps),
    cells=_cells,
)
