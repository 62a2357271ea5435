"""Zones of nodes: their state by the share of unready nodes, and their eviction rates.

normal                0.1 nodes a second
partly disrupted      0.01 in a large zone, none in a small one
fully disrupted       0.1; but where all zones are, none, and taints are taken back: rather the
                      control plane is cut off than everything else
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from kvstack.agents.controllers.options import NodeLifecycleOptions
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import REGION_LABEL, ZONE_LABEL

_EXCLUDED: Final = "node.kubernetes.io/exclude-disruption"
_PARTIAL_MIN: Final = 3


class State(Enum):
    """The state of a zone."""

    INITIAL = "Initial"
    NORMAL = "Normal"
    FULL = "FullDisruption"
    PARTIAL = "PartialDisruption"


class Change(Enum):
    """The change of all zones together."""

    NONE = 0
    ALL_LOST = 1
    """Taints are to be taken back."""
    SOME_BACK = 2
    """Nodes are to be given time to report."""


def zone_of(node: Object) -> str:
    """Return the zone of a node; all nodes without one are in the same."""
    labels = node["metadata"].get("labels") or {}
    region, zone = labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, "")
    return f"{region}:\0:{zone}" if region or zone else ""


def counts(node: Object) -> bool:
    """Whether a node counts for the state of its zone."""
    return _EXCLUDED not in (node["metadata"].get("labels") or {})


class Zone:
    """One zone: its state, and the nodes that are to be tainted, at its rate."""

    def __init__(self, rate: float) -> None:
        self.state = State.INITIAL
        self.rate = rate
        self.waiting: dict[str, None] = {}
        self._tokens = 1.0
        self._filled_s = 0.0

    def take(self, now_s: float) -> bool:
        """Take a token to taint a node; False: not yet."""
        self._fill(now_s)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def wait_s(self, now_s: float) -> float | None:
        """Return how long until the next right; None: never, at this rate."""
        self._fill(now_s)
        if self._tokens >= 1.0:
            return 0.0
        return (1.0 - self._tokens) / self.rate if self.rate else None

    def set_rate(self, rate: float, now_s: float) -> None:
        """Go on at another rate."""
        self._fill(now_s)
        self.rate = rate

    def _fill(self, now_s: float) -> None:
        passed_s = max(now_s - self._filled_s, 0.0)
        self._tokens = min(self._tokens + passed_s * self.rate, 1.0)
        if not self.rate:
            self._tokens = 0.0
        self._filled_s = now_s


class Zones:
    """All zones."""

    def __init__(self, options: NodeLifecycleOptions) -> None:
        self._options = options
        self._zones: dict[str, Zone] = {}

    def of(self, node: Object) -> Zone:
        """Return the zone of a node."""
        name = zone_of(node)
        zone = self._zones.get(name)
        if zone is None:
            zone = self._zones[name] = Zone(self._options.eviction_rate)
        return zone

    def all(self) -> Iterable[Zone]:
        """Return all zones."""
        return list(self._zones.values())

    def judge(self, ready_by_zone: Mapping[str, list[bool]], now_s: float) -> Change:
        """Set states and rates by which nodes are ready."""
        states = {name: self._state(ready) for name, ready in ready_by_zone.items()}
        are_all_lost = all(state is State.FULL for state in states.values())
        were_all_lost = all(
            zone.state is State.FULL for name, zone in self._zones.items() if name in states
        )
        for name in self._zones.keys() - states.keys():
            self._zones[name].state = State.INITIAL
        if are_all_lost and were_all_lost:
            return Change.NONE
        for name, state in states.items():
            zone = self._zones[name]
            is_other = zone.state is not state
            zone.state = state
            if are_all_lost:
                zone.set_rate(0.0, now_s)
            elif is_other or were_all_lost:
                zone.set_rate(self._rate(state, len(ready_by_zone[name])), now_s)
        if are_all_lost:
            return Change.ALL_LOST
        return Change.SOME_BACK if were_all_lost else Change.NONE

    def _state(self, ready: list[bool]) -> State:
        lost = ready.count(False)
        if lost == len(ready):
            return State.FULL
        share = lost / len(ready)
        if lost >= _PARTIAL_MIN and share >= self._options.unhealthy_zone_threshold:
            return State.PARTIAL
        return State.NORMAL

    def _rate(self, state: State, size: int) -> float:
        if state is not State.PARTIAL:
            return self._options.eviction_rate
        is_large = size > self._options.large_cluster_size
        return self._options.secondary_eviction_rate if is_large else 0.0
