"""The pressures of a node: hard and soft thresholds, and their conditions.

    pressures = Pressures(EvictionOptions(soft={"memory.available": "1Gi"}, …))
    shortages = pressures.observe(measures, now_s)      what is to be done something about
    types = pressures.conditions(now_s)                 conditions of the node that hold

A soft threshold counts once it was met for its grace period. One that counted is met until there is
as much more as is to be reclaimed at least. Pure; times are monotonic seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kvstack.agents.kubelet.eviction.evictions import (
    CONDITIONS,
    HARD_THRESHOLDS,
    Measure,
    Shortage,
    amount_of,
)

_Key: TypeAlias = tuple[str, bool]
"""Signal, and whether the threshold is a soft one."""
_FIRST: Final = "memory.available"


@dataclass(frozen=True, slots=True)
class EvictionOptions:
    """Thresholds of evictions by signal, and their delays."""

    hard: Mapping[str, str] = field(default_factory=lambda: dict(HARD_THRESHOLDS))
    soft: Mapping[str, str] = field(default_factory=dict)
    soft_grace_s: Mapping[str, float] = field(default_factory=dict)
    """How long a soft threshold must be met before it counts."""
    reclaim: Mapping[str, str] = field(default_factory=dict)
    """The minimum that is reclaimed beyond the threshold."""
    pressure_s: float = 300.0
    """How long a pressure is reported after it has ended."""
    pod_grace_max_s: float = 0.0
    """The maximum grace period of pods, for a soft threshold."""
    local_storage_bytes_max: int = 0
    """The maximum disk usage of all pods together (signal `LOCAL_STORAGE`); 0: no limit."""


class Pressures:
    """The pressures of one node."""

    def __init__(self, options: EvictionOptions) -> None:
        self._options = options
        self._since_s: dict[_Key, float] = {}
        self._counted: set[_Key] = set()
        self._reported_until_s: dict[str, float] = {}

    def observe(self, measures: Mapping[str, Measure], now_s: float) -> list[Shortage]:
        """Return what is short and counts now: memory first, and hard thresholds first."""
        met = {
            key: shortage
            for key in self._thresholds()
            if (shortage := self._met(key, measures)) is not None
        }
        self._since_s = {key: self._since_s.get(key, now_s) for key in met}
        for signal, _ in met:
            self._reported_until_s[CONDITIONS[signal]] = now_s + self._options.pressure_s
        self._counted = {key for key in met if now_s - self._since_s[key] >= self._grace_s(key)}
        order = sorted(self._counted, key=lambda key: (key[0] != _FIRST, key[1], key[0]))
        return [met[key] for key in order]

    def conditions(self, now_s: float) -> list[str]:
        """Return the types of conditions that hold."""
        return [type_ for type_, until_s in self._reported_until_s.items() if until_s > now_s]

    def _thresholds(self) -> list[_Key]:
        hard = [(signal, False) for signal in self._options.hard]
        return [*hard, *((signal, True) for signal in self._options.soft)]

    def _grace_s(self, key: _Key) -> float:
        signal, is_soft = key
        return self._options.soft_grace_s.get(signal, 0.0) if is_soft else 0.0

    def _met(self, key: _Key, measures: Mapping[str, Measure]) -> Shortage | None:
        signal, is_soft = key
        measure = measures.get(signal)
        if measure is None:
            return None
        text = (self._options.soft if is_soft else self._options.hard)[signal]
        wanted = amount_of(text, measure.capacity)
        if key in self._counted:
            wanted += amount_of(self._options.reclaim.get(signal, "0"), measure.capacity)
        if measure.available >= wanted:
            return None
        return Shortage(signal, text, measure.available, is_soft)
