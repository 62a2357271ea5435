"""The last two readings of each source, and the metrics computed from them.

    await readings.take("default/web", uid, text)
    readings.value("default/web", rule, matches)      the sum of the series that match
    readings.by_label("ingress", rule, matches, "service")      the sum for each value of a label
    readings.series("queue", rule, matches)           each series with its labels

Of a rate there is a value from the second reading on; a counter that begins anew has none in that
round. Who says what a page holds may be anybody: samples that no rule names are not kept, and those
that are kept have limits.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Final, NamedTuple, TypeAlias

from kvstack.agents.metrics.custom.rules import Rule
from kvstack.agents.metrics.exposition_reader import PageReader, ReadingError, Sample, pieces
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

Labels: TypeAlias = Mapping[str, str]
Matches: TypeAlias = Callable[[Labels], bool]
Series: TypeAlias = tuple[tuple[str, str], ...]
"""The labels of a sample, sorted."""

_VALUE_MAX: Final = 1e15


class Value(NamedTuple):
    """The current value of a metric."""

    value: float
    time_s: float
    window_s: float
    """The window of a rate; 0: not a rate."""


class _Scrape(NamedTuple):
    """One reading of a source."""

    uid: str
    time_s: float
    values: dict[str, dict[Series, float]]
    """By sample."""


class Readings:
    """The readings of one kind of sources."""

    def __init__(
        self, rules: Iterable[Rule], series_max: int, clock: Clock, logger: Logger, what: str
    ) -> None:
        """series_max: of one sample of one source; what: a source is, for the log."""
        self._samples = frozenset(each.sample for each in rules)
        self._series_max = series_max
        self._clock = clock
        self._logger = logger
        self._what = what
        self._taken: dict[str, tuple[_Scrape, _Scrape | None]] = {}
        self._lost: set[str] = set()

    def keep_only(self, keys: Iterable[str]) -> None:
        """Forget all other sources."""
        kept = frozenset(keys)
        for key in self._taken.keys() - kept:
            del self._taken[key]
        self._lost &= kept

    async def take(self, key: str, uid: str, text: str) -> None:
        """Parse the text of a source, in steps; raises ReadingError. uid: a new one has no past."""
        values: dict[str, dict[Series, float]] = {}
        reader = PageReader(self._samples)
        for piece in pieces(text):
            for sample in reader.read(piece):
                self._add(sample, values)
            await asyncio.sleep(0)
        self._lost.discard(key)
        old = self._taken.get(key)
        before = old[0] if old is not None and old[0].uid == uid else None
        self._taken[key] = (_Scrape(uid, self._clock.now_s(), values), before)

    def _add(self, sample: Sample, values: dict[str, dict[Series, float]]) -> None:
        if not isfinite(sample.value) or abs(sample.value) > _VALUE_MAX:
            raise ReadingError(f"{sample.name} is {sample.value}, above {_VALUE_MAX:g}")
        series = values.setdefault(sample.name, {})
        series[tuple(sorted(sample.labels.items()))] = sample.value
        if len(series) > self._series_max:
            raise ReadingError(f"{sample.name} has more than {self._series_max} series")

    def missed(self, key: str, why: str) -> None:
        """Note that a source could not be read; it is logged once."""
        self._taken.pop(key, None)
        if key not in self._lost:
            self._lost.add(key)
            self._logger.warning(f"cannot read the metrics of a {self._what}", key=key, error=why)

    def value(self, key: str, rule: Rule, matches: Matches) -> Value | None:
        """Return a metric of a source; None: it is not known. matches: which series count."""
        found = self._taken.get(key)
        if found is None:
            return None
        last, before = found
        now = _select(last, rule, matches)
        then = {} if before is None else _select(before, rule, matches)
        sums = [sum(each.values()) if each else None for each in (now, then)]
        return _value(rule, last, sums[0], before, sums[1])

    def by_label(self, key: str, rule: Rule, matches: Matches, label: str) -> dict[str, Value]:
        """Return a metric of a source for each value of a label: the sum of its series."""
        found = self._taken.get(key)
        if found is None:
            return {}
        last, before = found
        then = {} if before is None else _sums(_select(before, rule, matches), label)
        values: dict[str, Value] = {}
        for name, now in _sums(_select(last, rule, matches), label).items():
            value = _value(rule, last, now, before, then.get(name))
            if value is not None:
                values[name] = value
        return values

    def series(self, key: str, rule: Rule, matches: Matches) -> list[tuple[Labels, Value]]:
        """Return a metric of each series of a source that has one."""
        found = self._taken.get(key)
        if found is None:
            return []
        last, before = found
        then = {} if before is None else _select(before, rule, matches)
        values: list[tuple[Labels, Value]] = []
        for series, now in sorted(_select(last, rule, matches).items()):
            value = _value(rule, last, now, before, then.get(series))
            if value is not None:
                values.append((dict(series), value))
        return values


def _select(taken: _Scrape, rule: Rule, matches: Matches) -> dict[Series, float]:
    """Return the series of a rule that match."""
    return {
        series: value
        for series, value in taken.values.get(rule.sample, {}).items()
        if _has(labels := dict(series), rule) and matches(labels)
    }


def _sums(chosen: Mapping[Series, float], label: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for series, value in chosen.items():
        name = dict(series).get(label)
        if name is not None:
            sums[name] = sums.get(name, 0.0) + value
    return sums


def _has(labels: Labels, rule: Rule) -> bool:
    return all(labels.get(name) == value for name, value in rule.labels.items())


def _value(
    rule: Rule, last: _Scrape, now: float | None, before: _Scrape | None, then: float | None
) -> Value | None:
    if now is None or not rule.is_rate:
        return None if now is None else Value(now, last.time_s, 0.0)
    if before is None or then is None or now < then or last.time_s <= before.time_s:
        return None
    window_s = last.time_s - before.time_s
    return Value((now - then) / window_s, last.time_s, window_s)
