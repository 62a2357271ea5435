"""Constraints of a claim: devices with the same value of an attribute, or distinct ones.

They are monotonic: once a device is refused, more devices do not make it fit.
"""

from typing import Protocol

from kvstack.agents.scheduler.devices.pools import Candidate
from kvstack.agents.scheduler.devices.requests import DeviceError, Request
from kvstack.apimachinery.objects.json_object import Object


class Constraint(Protocol):
    """A constraint on the devices of a claim."""

    def add(self, request: Request, candidate: Candidate) -> bool:
        """Add a device; return False, without adding it, if it does not fit."""
        ...

    def remove(self, request: Request) -> None:
        """Give back the device that was taken last."""
        ...


class _Attribute:
    """Values of an attribute of the devices taken so far."""

    def __init__(self, name: str, requests: list[str], *, is_distinct: bool) -> None:
        self._name = name
        self._requests = requests
        self._is_distinct = is_distinct
        self._values: list[Object] = []

    def add(self, request: Request, candidate: Candidate) -> bool:
        if not request.is_named_by(self._requests):
            return True
        value = _value_of(candidate, self._name)
        if value is None:
            return False
        if self._is_distinct:
            if value in self._values:
                return False
        elif self._values and value != self._values[0]:
            return False
        self._values.append(value)
        return True

    def remove(self, request: Request) -> None:
        if request.is_named_by(self._requests):
            self._values.pop()


def constraints_of(claim: Object) -> list[Constraint]:
    """Return the constraints of a claim; raises DeviceError."""
    constraints: list[Constraint] = []
    for number, one in enumerate((claim["spec"].get("devices") or {}).get("constraints") or ()):
        requests = one.get("requests") or []
        if one.get("matchAttribute"):
            constraints.append(_Attribute(one["matchAttribute"], requests, is_distinct=False))
        elif one.get("distinctAttribute"):
            constraints.append(_Attribute(one["distinctAttribute"], requests, is_distinct=True))
        else:
            meta = claim["metadata"]
            raise DeviceError(
                f"claim {meta['namespace']}/{meta['name']}, constraint #{number}:"
                " empty constraint (unsupported constraint type?)"
            )
    return constraints


def _value_of(candidate: Candidate, name: str) -> Object | None:
    """Return an attribute by its full name, or by the short one if the domain is the driver's."""
    attributes = candidate.device.get("attributes") or {}
    found: Object | None = attributes.get(name)
    if found is None:
        domain, _, short = name.partition("/")
        found = attributes.get(short) if domain == candidate.id.driver else None
    return found
