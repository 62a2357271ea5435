"""Consumable capacity: how much of a shared device a request consumes, and what is left.

consumed_of(request, device)     → {"memory": Quantity}; None: it cannot be had
fits(consumed, device, used)     whether that much is left
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import Quantity, parse

Capacities: TypeAlias = Mapping[str, Quantity]


def consumed_of(requested: Mapping[str, str], device: Object) -> dict[str, Quantity] | None:
    """Return what a request takes of each capacity, rounded up as the device's policy says.

    None: it names what the device has not, or a policy does not allow it.
    """
    capacities = device.get("capacity") or {}
    if requested.keys() - capacities.keys():
        return None
    consumed: dict[str, Quantity] = {}
    for name, capacity in capacities.items():
        policy = capacity.get("requestPolicy") or {}
        text = requested.get(name)
        if text is None:
            consumed[name] = parse(policy.get("default") or capacity["value"])
        else:
            consumed[name] = _rounded(parse(text), policy)
        if not _is_allowed(consumed[name], policy):
            return None
    return consumed


def fits(consumed: Capacities, device: Object, used: Iterable[Capacities]) -> bool:
    """Whether the remaining capacity of a device suffices."""
    used = list(used)
    for name, capacity in (device.get("capacity") or {}).items():
        total = consumed[name]
        for amounts in used:
            if name in amounts:
                total = total + amounts[name]
        if total > parse(capacity["value"]):
            return False
    return True


def _rounded(requested: Quantity, policy: Object) -> Quantity:
    limits = policy.get("validRange") or {}
    if limits.get("min"):
        least = parse(limits["min"])
        if requested < least:
            return least
        if not limits.get("step"):
            return requested
        step, over = parse(limits["step"]), requested - least
        steps = -(-over.milli_value() // step.milli_value())
        return least + step * steps
    for text in policy.get("validValues") or ():
        value = parse(text)
        if requested <= value:
            return value
    return requested


def _is_allowed(amount: Quantity, policy: Object) -> bool:
    if policy.get("default") and amount == parse(policy["default"]):
        return True
    limits = policy.get("validRange")
    if limits:
        if limits.get("max") and amount > parse(limits["max"]):
            return False
        if limits.get("step"):
            over = (amount - parse(limits["min"])).milli_value()
            return over % parse(limits["step"]).milli_value() == 0
        return True
    values = policy.get("validValues")
    return not values or any(amount == parse(text) for text in values)
