"""The current usage of nodes and containers, from the last two readings of each.

    points = Points(resolution_s=15)
    points.take("n1", reading)
    points.node("n1")                    Rate, or None
    points.pod("n1", "default", "web")   PodRate, or None

The rate of a container is computed from two readings without a restart in between, or from one and
the start of a new container. A pod has no rate if one of its containers has none. Readings are kept
by node: callers use them only for pods that are bound to that node.
"""

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from kvstack.agents.metrics.readings import Reading, Usage

FRESH_MS_MIN: Final = 4_000
"""So long must a container have run whose first reading is enough."""


class Rate(NamedTuple):
    """The current usage."""

    time_ms: int
    """The time of the reading."""
    window_ms: int
    """The time that the rate of CPU is of."""
    cpu_nano: int
    """Nanoseconds of cores a second."""
    memory_bytes: int


class PodRate(NamedTuple):
    """The current usage of a pod."""

    time_ms: int
    window_ms: int
    containers: Sequence[tuple[str, Rate]]

    @property
    def cpu_nano(self) -> int:
        """The sum of all containers."""
        return sum(each.cpu_nano for _, each in self.containers)

    @property
    def memory_bytes(self) -> int:
        """The sum of all containers."""
        return sum(each.memory_bytes for _, each in self.containers)


class _Pair(NamedTuple):
    """The last reading, and the one that its rate is counted from; None: there is none yet."""

    last: Usage
    before: Usage | None

    def rate(self) -> Rate | None:
        last, before = self.last, self.before
        if before is None or last.cpu_ns < before.cpu_ns or last.time_ms <= before.time_ms:
            return None
        window_ms = last.time_ms - before.time_ms
        cpu_nano = (last.cpu_ns - before.cpu_ns) * 1000 // window_ms
        return Rate(last.time_ms, window_ms, cpu_nano, last.memory_bytes)


class _Node:
    __slots__ = ("own", "pods")

    def __init__(self) -> None:
        self.own: _Pair | None = None
        self.pods: dict[tuple[str, str], dict[str, _Pair]] = {}


class Points:
    """The readings of all nodes."""

    def __init__(self, resolution_s: float) -> None:
        """resolution_s: from one reading of a node to the next."""
        self._resolution_ms = int(resolution_s * 1000)
        self._fresh_ms = min(FRESH_MS_MIN, self._resolution_ms // 2)
        self._nodes: dict[str, _Node] = {}

    def take(self, name: str, reading: Reading) -> None:
        """Store the reading of a node; containers that are not in it are removed."""
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node()
        if reading.node.is_whole:
            node.own = self._next(node.own, reading.node)
        pods: dict[tuple[str, str], dict[str, _Pair]] = {}
        for key, containers in groupby(reading.containers, key=lambda each: each[:2]):
            told = {each.container: each.usage for each in containers}
            if not all(each.is_whole for each in told.values()):
                continue  # without one of its containers a pod would seem to use little
            old = node.pods.get(key, {})
            pods[key] = {each: self._next(old.get(each), usage) for each, usage in told.items()}
        node.pods = pods

    def keep(self, names: Collection[str]) -> None:
        """Forget all nodes but these."""
        for name in self._nodes.keys() - names:
            del self._nodes[name]

    def forget(self, name: str) -> None:
        """Forget a node and its pods."""
        self._nodes.pop(name, None)

    def node(self, name: str) -> Rate | None:
        """Return what a node uses; None: it is not known."""
        node = self._nodes.get(name)
        return None if node is None or node.own is None else node.own.rate()

    def pod(self, node_name: str, namespace: str, name: str) -> PodRate | None:
        """Return what a pod of a node uses; None: it is not known of every container."""
        node = self._nodes.get(node_name)
        pairs = None if node is None else node.pods.get((namespace, name))
        if not pairs:
            return None
        rates: list[tuple[str, Rate]] = []
        for container, pair in pairs.items():
            rate = pair.rate()
            if rate is None:
                return None
            rates.append((container, rate))
        earliest = min((rate for _, rate in rates), key=lambda each: each.time_ms)
        return PodRate(earliest.time_ms, earliest.window_ms, rates)

    @property
    def count(self) -> int:
        """The number of containers."""
        return sum(len(pod) for node in self._nodes.values() for pod in node.pods.values())

    def _next(self, old: _Pair | None, new: Usage) -> _Pair:
        started_ms = new.started_ms
        age_ms = new.time_ms - started_ms
        if started_ms and self._fresh_ms <= age_ms < self._resolution_ms:
            return _Pair(new, Usage(started_ms, started_ms, 0, 0))
        if old is None or started_ms > old.last.time_ms:
            return _Pair(new, None)
        if new.time_ms > old.last.time_ms:
            return _Pair(new, old.last)
        return _Pair(new, old.before)  # the same reading came twice
