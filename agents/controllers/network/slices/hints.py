"""Topology hints of endpoints: the zones and nodes that should use each.

    trafficDistribution: PreferClose, PreferSameZone   each ready endpoint is for its own zone
    trafficDistribution: PreferSameNode                and for its own node
    annotation topology-mode: Auto                     zones get endpoints by their share of CPU

The automatic mode needs ready nodes in two zones at least, and as many endpoints as zones; it gives
up, with an event, where some zone's endpoints would get a fifth more than their share of traffic.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kvstack.agents.controllers.network.slices.packing import Changes
from kvstack.apimachinery.objects.core.node_status import is_ready
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.well_known import (
    CONTROL_PLANE_LABEL,
    MASTER_LABEL,
    TOPOLOGY_HINTS_ANNOTATION,
    TOPOLOGY_MODE_ANNOTATION,
    ZONE_LABEL,
)

_AUTO_ANNOTATIONS: Final = (
    TOPOLOGY_HINTS_ANNOTATION,
    TOPOLOGY_MODE_ANNOTATION,
)
_AUTO: Final = frozenset(("Auto", "auto"))
_CLOSE: Final = frozenset(("PreferClose", "PreferSameZone", "PreferSameNode"))
_SAME_NODE: Final = "PreferSameNode"
_EXCLUDED: Final = (CONTROL_PLANE_LABEL, MASTER_LABEL)
_OVERLOAD: Final = 0.2

_NO_ZONE: Final = "One or more endpoints do not have a zone specified"
_NO_NODES: Final = (
    "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
)
_TOO_FEW: Final = "Insufficient number of endpoints"
_OVERLOADED: Final = (
    "Unable to allocate minimum required endpoints to each zone without exceeding overload"
    " threshold"
)
_ENABLED: Final = "Topology Aware Hints has been enabled"
_DISABLED: Final = "Topology Aware Hints has been disabled"


class HintEvent(NamedTuple):
    """An event about the automatic mode."""

    type: str
    reason: str
    message: str


class _Share(NamedTuple):
    """The endpoints of a zone."""

    least: int
    most: int
    desired: float


class _UnfitError(Exception):
    """The automatic mode cannot work now."""


def is_automatic(service: Object) -> bool:
    """Whether an annotation enables the automatic mode; the older one counts first."""
    annotations = service["metadata"].get("annotations") or {}
    for name in _AUTO_ANNOTATIONS:
        if name in annotations:
            return annotations[name] in _AUTO
    return False


def capacity_of(node: Object | None) -> tuple[str, str] | None:
    """Return zone and CPU of a ready node that pods are meant for; None: it does not count."""
    if node is None:
        return None
    labels = node["metadata"].get("labels") or {}
    status = node.get("status") or {}
    if any(each in labels for each in _EXCLUDED):
        return None
    if not is_ready(node):
        return None
    return labels.get(ZONE_LABEL, ""), (status.get("allocatable") or {}).get("cpu", "0")


def cpu_shares(nodes: Iterable[Object]) -> dict[str, float]:
    """Return each zone's share of the CPU of ready nodes; empty: not enough is known."""
    by_zone: dict[str, int] = {}
    for node in nodes:
        found = capacity_of(node)
        if found is None:
            continue
        zone, cpu = found[0], parse(found[1]).milli_value()
        if not zone or not cpu:
            return {}
        by_zone[zone] = by_zone.get(zone, 0) + cpu
    total = sum(by_zone.values())
    return {zone: cpu / total for zone, cpu in by_zone.items()} if len(by_zone) > 1 else {}


class Hints:
    """Decides on hints, and remembers which services have some of the automatic mode."""

    def __init__(self) -> None:
        self._hinted: set[str] = set()

    def forget(self, key: str) -> None:
        """Forget a service."""
        self._hinted.discard(key)

    def apply(
        self,
        key: str,
        service: Object,
        address_type: str,
        changes: Changes,
        slices: Iterable[Object],
        nodes: Iterable[Object],
    ) -> list[HintEvent]:
        """Set the hints of all slices of a type; those that change with them are added."""
        unchanged = changes.unchanged(slices)
        if is_automatic(service):
            return self._apply_shares(key, address_type, changes, unchanged, cpu_shares(nodes))
        events = []
        if key in self._hinted:
            self._hinted.discard(key)
            events.append(_warning(_DISABLED, address_type))
        mode = service["spec"].get("trafficDistribution")
        _set(changes, unchanged, mode if mode in _CLOSE else "")
        return events

    def _apply_shares(
        self,
        key: str,
        address_type: str,
        changes: Changes,
        unchanged: list[Object],
        ratios: Mapping[str, float],
    ) -> list[HintEvent]:
        try:
            _share_out(changes, unchanged, ratios)
        except _UnfitError as error:
            self._hinted.discard(key)
            _set(changes, unchanged, "")
            return [_warning(str(error), address_type)]
        if key in self._hinted:
            return []
        self._hinted.add(key)
        text = f"{_ENABLED}, addressType: {address_type}"
        return [HintEvent("Normal", "TopologyAwareHintsEnabled", text)]


def _warning(text: str, address_type: str) -> HintEvent:
    message = f"{text}, addressType: {address_type}"
    return HintEvent("Warning", "TopologyAwareHintsDisabled", message)


def _is_ready(endpoint: Object) -> bool:
    return (endpoint.get("conditions") or {}).get("ready") is True


# Hints of each endpoint's own zone and node.


def _set(changes: Changes, unchanged: Iterable[Object], mode: str) -> None:
    """Give each ready endpoint the hints of a mode; without a mode take all hints away."""
    for each in unchanged:
        hinted = _hinted(each, mode)
        if hinted != (each.get("endpoints") or []):
            changes.update.append({**each, "endpoints": hinted})
    unchanged_names = {each["metadata"]["name"] for each in unchanged}
    for each in (*changes.create, *changes.update):
        if each["metadata"].get("name") not in unchanged_names:
            each["endpoints"] = _hinted(each, mode)


def _hinted(each: Object, mode: str) -> list[Object]:
    return [
        endpoint if mode and not _is_ready(endpoint) else _with_own_topology(endpoint, mode)
        for endpoint in each.get("endpoints") or ()
    ]


def _with_own_topology(endpoint: Object, mode: str) -> Object:
    hints: Object = {}
    if mode and endpoint.get("zone"):
        hints["forZones"] = [{"name": endpoint["zone"]}]
    if mode == _SAME_NODE and endpoint.get("nodeName"):
        hints["forNodes"] = [{"name": endpoint["nodeName"]}]
    return _with_hints(endpoint, hints)


def _with_hints(endpoint: Object, hints: Object) -> Object:
    if hints == (endpoint.get("hints") or {}):
        return endpoint
    rest = {name: value for name, value in endpoint.items() if name != "hints"}
    return {**rest, "hints": hints} if hints else rest


# Shares of zones.


def _share_out(changes: Changes, unchanged: list[Object], ratios: Mapping[str, float]) -> None:
    """Give ready endpoints to zones by their shares; raises _UnfitError."""
    everything = (*changes.create, *changes.update, *unchanged)
    count = sum(
        map(_is_ready, (each for found in everything for each in found.get("endpoints") or ()))
    )
    shares = _shares(ratios, count)
    hinted_by_zone: dict[str, int] = {}
    moved: list[Object] = []
    for each in unchanged:
        known = _known_hints(each, hinted_by_zone, shares)
        if known is None:
            moved.append({**each, "endpoints": list(each.get("endpoints") or ())})
            continue
        for zone, number in known.items():
            hinted_by_zone[zone] = hinted_by_zone.get(zone, 0) + number
    changed = [*changes.create, *changes.update, *moved]
    for each in changed:
        for endpoint in each["endpoints"]:
            if _is_ready(endpoint):
                zone = endpoint.get("zone")
                if not zone:
                    raise _UnfitError(_NO_ZONE)
                hinted_by_zone[zone] = hinted_by_zone.get(zone, 0) + 1
    if not hinted_by_zone:
        raise _UnfitError("No hints allocated for zones")
    changes.update += moved
    gives, takes = _transfers(shares, hinted_by_zone)
    for each in changed:
        each["endpoints"] = [
            _for_zone(endpoint, gives, takes) if _is_ready(endpoint) else endpoint
            for endpoint in each["endpoints"]
        ]


def _shares(ratios: Mapping[str, float], count: int) -> dict[str, _Share]:
    if not ratios:
        raise _UnfitError(_NO_NODES)
    at = f"({count} endpoints, {len(ratios)} zones)"
    if len(ratios) > count:
        raise _UnfitError(f"{_TOO_FEW} {at}")
    least = {
        zone: math.ceil(ratio * count * (1 / (1 + _OVERLOAD))) for zone, ratio in ratios.items()
    }
    spare = count - sum(least.values())
    if spare < 0:
        raise _UnfitError(f"{_OVERLOADED} {at}")
    return {
        zone: _Share(least[zone], least[zone] + spare, max(ratio * count, least[zone]))
        for zone, ratio in ratios.items()
    }


def _known_hints(
    each: Object, given: Mapping[str, int], shares: Mapping[str, _Share]
) -> dict[str, int] | None:
    """Return the hints that a slice has, by zone; None: it has to change."""
    by_zone: dict[str, int] = {}
    for endpoint in each.get("endpoints") or ():
        if not _is_ready(endpoint):
            continue
        zones = (endpoint.get("hints") or {}).get("forZones")
        if not zones or any(zone["name"] not in shares for zone in zones):
            return None
        for zone in zones:
            by_zone[zone["name"]] = by_zone.get(zone["name"], 0) + 1
    if any(number + given.get(zone, 0) > shares[zone].most for zone, number in by_zone.items()):
        return None
    return by_zone


def _transfers(
    shares: Mapping[str, _Share], given: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many endpoints zones give to others, and take."""
    over = {zone: given.get(zone, 0) - share.desired for zone, share in shares.items()}
    surplus = {zone: number for zone, number in over.items() if number > 0}
    lack = {zone: -number for zone, number in over.items() if number < 0}
    gives: dict[str, int] = {}
    takes: dict[str, int] = {}
    while surplus and lack:
        giver = max(surplus, key=lambda zone: (surplus[zone], zone))
        taker = max(lack, key=lambda zone: (lack[zone], zone))
        if max(surplus[giver], lack[taker]) < 1.0 or min(surplus[giver], lack[taker]) < 0.5:
            break
        gives[giver] = gives.get(giver, 0) + 1
        takes[taker] = takes.get(taker, 0) + 1
        surplus[giver] -= 1
        lack[taker] -= 1
    return gives, takes


def _for_zone(endpoint: Object, gives: dict[str, int], takes: dict[str, int]) -> Object:
    zone = endpoint["zone"]
    if gives.get(zone):
        taker = next((each for each, number in sorted(takes.items()) if number), None)
        if taker is not None:
            gives[zone] -= 1
            takes[taker] -= 1
            zone = taker
    return _with_hints(endpoint, {"forZones": [{"name": zone}]})
