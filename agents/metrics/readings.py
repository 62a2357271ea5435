"""A kubelet's metrics of its node and containers at a time.

    reading = read_resource_page(text, now_ms)      of /metrics/resource
    reading.node.cpu_ns, reading.containers[0].memory_bytes

Times are milliseconds since 1970, amounts of CPU the nanoseconds of cores that were used since a
container started or its node did. Containers of one pod follow one another.
"""

import asyncio
from collections.abc import Sequence
from math import isfinite
from typing import Final, NamedTuple

from kvstack.agents.metrics.exposition_reader import PageReader, ReadingError, pieces

CONTAINERS_MAX: Final = 5_000
"""The maximum number of containers of a node."""

_NODE_CPU: Final = "node_cpu_usage_seconds_total"
_NODE_MEMORY: Final = "node_memory_working_set_bytes"
_CPU: Final = "container_cpu_usage_seconds_total"
_MEMORY: Final = "container_memory_working_set_bytes"
_STARTED: Final = "container_start_time_seconds"
_SAMPLE_NAMES: Final = frozenset((_NODE_CPU, _NODE_MEMORY, _CPU, _MEMORY, _STARTED))
_LARGEST: Final = 1e18


class Usage(NamedTuple):
    """The usage at a time; 0: unknown."""

    time_ms: int
    started_ms: int
    """0: unknown."""
    cpu_ns: int
    memory_bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether both amounts are known."""
        return self.cpu_ns > 0 and self.memory_bytes > 0


class ContainerUsage(NamedTuple):
    """The usage of a container."""

    namespace: str
    pod: str
    container: str
    usage: Usage


class Reading(NamedTuple):
    """The reading of a kubelet."""

    node: Usage
    containers: Sequence[ContainerUsage]


class _Samples:
    """The samples read so far of a container, or of the node."""

    __slots__ = ("cpu_ns", "memory_bytes", "started_ms", "time_ms")

    def __init__(self) -> None:
        self.cpu_ns = self.memory_bytes = self.started_ms = self.time_ms = 0

    def usage(self, now_ms: int) -> Usage:
        return Usage(self.time_ms or now_ms, self.started_ms, self.cpu_ns, self.memory_bytes)


def read_resource_page(text: str, now_ms: int) -> Reading:
    """Parse /metrics/resource; now_ms: when it was read. Raises ReadingError."""
    page = _Page()
    for piece in pieces(text):
        page.take(piece)
    return page.reading(now_ms)


async def read_page_of_others(text: str, now_ms: int) -> Reading:
    """Parse a page in steps, between which other tasks on the loop run."""
    page = _Page()
    for piece in pieces(text):
        page.take(piece)
        await asyncio.sleep(0)
    return page.reading(now_ms)


class _Page:
    """The state of parsing a page."""

    def __init__(self) -> None:
        self._reader = PageReader(_SAMPLE_NAMES)
        self._node = _Samples()
        self._containers: dict[tuple[str, str, str], _Samples] = {}

    def take(self, piece: str) -> None:
        containers = self._containers
        for name, labels, value, time_ms in self._reader.read(piece):
            if not isfinite(value) or not 0 <= value <= _LARGEST:
                raise ReadingError(f"{name} is {value}, which is not a valid amount")
            samples = self._node
            if name not in (_NODE_CPU, _NODE_MEMORY):
                key = tuple(labels.get(each, "") for each in ("namespace", "pod", "container"))
                assert len(key) == 3
                if key not in containers and len(containers) == CONTAINERS_MAX:
                    raise ReadingError(f"there are more than {CONTAINERS_MAX} containers")
                samples = containers.setdefault(key, _Samples())
            if name == _STARTED:
                samples.started_ms = int(value * 1000)
                continue
            if time_ms is not None:
                samples.time_ms = time_ms
            if name in (_NODE_CPU, _CPU):
                samples.cpu_ns = int(value * 1e9)
            else:
                samples.memory_bytes = int(value)

    def reading(self, now_ms: int) -> Reading:
        found = [ContainerUsage(*key, told.usage(now_ms)) for key, told in self._containers.items()]
        found.sort(key=lambda each: each[:2])  # stable: containers stay in their order
        return Reading(self._node.usage(now_ms), found)
