"""The requests of a claim, each for devices of a class, with alternatives in order.

    requests_of(claim, devices)     → [[Request], [Request "gpu/big", Request "gpu/small"]]

An alternative is tried when those before it cannot be had.
"""

from dataclasses import dataclass, field
from typing import Final

from kvstack.agents.scheduler.snapshot.devices import Devices
from kvstack.apimachinery.objects.json_object import Object

DEVICES_MAX: Final = 32
"""Devices of one claim."""
ALL: Final = "All"
_EXACT: Final = "ExactCount"


class DeviceError(Exception):
    """Claims, classes or slices that make no sense: no node is of use. Users see the message."""


@dataclass(slots=True, eq=False)
class Request:
    """Devices of one class."""

    claim: str
    """`namespace/name`."""
    base: str
    """The name of the request."""
    alternative: str
    """Empty: it has none."""
    device_class: Object
    takes_all: bool
    count: int
    spec: Object = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name in results and constraints."""
        return f"{self.base}/{self.alternative}" if self.alternative else self.base

    @property
    def own_name(self) -> str:
        """The name in errors."""
        return self.alternative or self.base

    @property
    def is_admin(self) -> bool:
        """Whether it has admin access: devices in use will do."""
        return bool(self.spec.get("adminAccess"))

    @property
    def capacity(self) -> dict[str, str]:
        """The requested capacity of a shared device."""
        return (self.spec.get("capacity") or {}).get("requests") or {}

    def is_named_by(self, names: list[str]) -> bool:
        """Whether a list of names (empty: all) includes it."""
        return not names or self.base in names or self.name in names


def requests_of(claim: Object, devices: Devices) -> list[list[Request]]:
    """Return the requests of a claim with their alternatives; raises DeviceError."""
    meta = claim["metadata"]
    key = f"{meta['namespace']}/{meta['name']}"
    alternatives: list[list[Request]] = []
    for one in (claim["spec"].get("devices") or {}).get("requests") or ():
        parts = one.get("firstAvailable") or [one.get("exactly") or {}]
        is_choice = bool(one.get("firstAvailable"))
        alternatives.append(
            [
                _request(key, one["name"], part.get("name", "") if is_choice else "", part, devices)
                for part in parts
            ]
        )
    return alternatives


def missing_class(claim: Object, devices: Devices) -> str:
    """Return the message about a class that is not there; empty: all are."""
    for one in (claim["spec"].get("devices") or {}).get("requests") or ():
        choices = one.get("firstAvailable") or ()
        for part in choices or [one.get("exactly") or {}]:
            name = f"{one['name']}/{part['name']}" if choices else one["name"]
            wanted = part.get("deviceClassName") or ""
            if wanted not in devices.classes:
                return f"request {name}: device class {wanted} does not exist"
    return ""


def _request(key: str, base: str, alternative: str, spec: Object, devices: Devices) -> Request:
    subject = f"claim {key}, request {alternative or base}"
    for number, selector in enumerate(spec.get("selectors") or ()):
        if not selector.get("cel"):
            raise DeviceError(
                f"{subject}, selector #{number}: CEL expression empty (unsupported selector type?)"
            )
    name = spec.get("deviceClassName") or ""
    if not name:
        raise DeviceError(f"{subject}: missing device class name (unsupported request type?)")
    device_class = devices.classes.get(name)
    if device_class is None:
        raise DeviceError(f"{subject}: could not retrieve device class {name}: not found")
    mode = spec.get("allocationMode") or _EXACT
    if mode not in (ALL, _EXACT):
        raise DeviceError(f"{subject}: unsupported count mode {mode}")
    takes_all = mode == ALL
    count = 0 if takes_all else spec.get("count") or 1
    return Request(key, base, alternative, device_class, takes_all, count, spec)
