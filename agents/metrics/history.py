"""The usage of nodes and pods in the last quarter of an hour, at equal steps, for graphs.

    history = History(steps=60, series_max=20_000)
    history.begin(now_s)                             a new step for all
    history.note("default/web", cpu_cores, memory_bytes)
    history.of("default/web")                        [(time_s, cpu_cores, memory_bytes), …]

A series is two arrays of numbers of four bytes, which are written round and round; nothing of it
grows. A step in which nothing was noted is left out. A series in which all steps have gone by is
forgotten. Above series_max no new one begins; `refused` counts those that did not.
"""

from array import array
from collections.abc import Set as AbstractSet
from math import isnan, nan
from typing import Final, NamedTuple


class Point(NamedTuple):
    """The usage at a time."""

    time_s: float
    cpu_cores: float
    memory_bytes: float


class _Series:
    __slots__ = ("cpu", "memory", "noted_at")

    def __init__(self, steps: int) -> None:
        self.cpu = array("f", [nan]) * steps
        self.memory = array("f", [nan]) * steps
        self.noted_at = 0


class History:
    """A ring of steps."""

    def __init__(self, steps: int = 60, series_max: int = 20_000) -> None:
        self._steps: Final = steps
        self._series_max: Final = series_max
        self._times = array("d", [nan]) * steps
        self._now = 0
        """The number of the step; its place is the remainder by `steps`."""
        self._series: dict[str, _Series] = {}
        self.refused = 0
        """The number of series that did not fit into this step."""

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self._series)

    def keep(self, names: AbstractSet[str]) -> None:
        """Forget the series of whatever has another name."""
        for name in self._series.keys() - names:
            del self._series[name]

    def begin(self, now_s: float) -> None:
        """Start a step, which replaces the one of the last round."""
        self._now += 1
        self.refused = 0
        place = self._now % self._steps
        self._times[place] = now_s
        gone = self._now - self._steps
        for name in [name for name, each in self._series.items() if each.noted_at <= gone]:
            del self._series[name]
        for each in self._series.values():
            each.cpu[place] = each.memory[place] = nan

    def note(self, name: str, cpu_cores: float, memory_bytes: float) -> None:
        """Note what something uses in this step."""
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= self._series_max:
                self.refused += 1
                return
            series = self._series[name] = _Series(self._steps)
        place = self._now % self._steps
        series.cpu[place], series.memory[place] = cpu_cores, memory_bytes
        series.noted_at = self._now

    def of(self, name: str) -> list[Point]:
        """Return what is known of something, oldest first."""
        series = self._series.get(name)
        if series is None:
            return []
        found: list[Point] = []
        for step in range(self._now + 1, self._now + 1 + self._steps):
            place = step % self._steps
            if not isnan(series.cpu[place]):
                found.append(Point(self._times[place], series.cpu[place], series.memory[place]))
        return found
