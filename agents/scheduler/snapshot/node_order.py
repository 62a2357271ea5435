"""The order in which nodes are tried: one of each zone in turn."""

from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import (
    BETA_REGION_LABEL,
    BETA_ZONE_LABEL,
    REGION_LABEL,
    ZONE_LABEL,
)

_ZONES: Final = (BETA_ZONE_LABEL, ZONE_LABEL)
_REGIONS: Final = (BETA_REGION_LABEL, REGION_LABEL)


def zone_of(node: Object) -> tuple[str, str]:
    """Return region and zone of a node; empty: it has none."""
    labels = node["metadata"].get("labels") or {}
    return _first(labels, _REGIONS), _first(labels, _ZONES)


def interleaved(zones: dict[int, tuple[str, str]]) -> list[int]:
    """Return the slots, given in order of arrival with their zones: one of each zone in turn."""
    by_zone: dict[tuple[str, str], list[int]] = {}
    for slot, zone in zones.items():
        by_zone.setdefault(zone, []).append(slot)
    lists = list(by_zone.values())
    longest = max(map(len, lists), default=0)
    return [
        slots[position] for position in range(longest) for slots in lists if position < len(slots)
    ]


def _first(labels: dict[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        if labels.get(name):
            return labels[name]
    return ""
