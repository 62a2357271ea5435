"""What was measured: numbers by measure and server, and what they come to.

    Measure("restart", "s", Better.LOWER, target=1.0)
        kvstore  [1.9, 2.0, 2.1]        median 2.0, min 1.9, max 2.1
        etcd     [2.4, 2.5, 2.5]        median 2.5, ...
                                        ratio  0.8 = kvstore / etcd: the target is met

A ratio is that of the medians, always ours over etcd's. A target bounds it: from above where lower
is better, from below where higher is. A limit bounds our median itself, in the measure's unit.
"""

from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Any, Final

OURS: Final = "kvstore"
PEER: Final = "etcd"
CONTENDERS: Final = (OURS, PEER)


class Better(StrEnum):
    """Which way is good."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Measure:
    """One quantity; target bounds the ratio ours / etcd's, limit our median, None: there is none.

    A measure has one of them at most. A detail is in the JSON file only, not on the page.
    """

    name: str
    unit: str
    better: Better
    target: float | None = None
    is_detail: bool = False
    limit: float | None = None


class Figures:
    """All values of one scenario, in the order the measures first came up."""

    def __init__(self) -> None:
        self._values: dict[Measure, dict[str, list[float]]] = {}

    def add(self, measure: Measure, who: str, value: float) -> None:
        """Note one round's value of a measure for one of CONTENDERS."""
        rounds = self._values.setdefault(measure, {name: [] for name in CONTENDERS})
        rounds[who].append(value)

    def rows(self) -> list[dict[str, Any]]:
        """Return one JSON-ready row a measure."""
        return [_row(measure, values) for measure, values in self._values.items()]


def _row(measure: Measure, values: dict[str, list[float]]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "measure": measure.name,
        "unit": measure.unit,
        "better": measure.better.value,
        "target": measure.target,
        "limit": measure.limit,
        "detail": measure.is_detail,
    }
    for name in CONTENDERS:
        row[name] = spread(values[name])
    row["ratio"] = ratio(values[OURS], values[PEER])
    found = row["ratio"] if measure.limit is None else row[OURS].get("median")
    row["met"] = met(measure, found)
    return row


def spread(values: list[float]) -> dict[str, Any]:
    """Return median, min, max and the values themselves; {} for no values."""
    if not values:
        return {}
    return {
        "median": round(median(values), 6),
        "min": round(min(values), 6),
        "max": round(max(values), 6),
        "rounds": [round(each, 6) for each in values],
    }


def ratio(ours: list[float], theirs: list[float]) -> float | None:
    """Return the ratio of the medians, None where it has no meaning."""
    if not ours or not theirs or not median(theirs):
        return None
    return round(median(ours) / median(theirs), 3)


def met(measure: Measure, found: float | None) -> bool | None:
    """Tell whether what was found meets the target or limit; None without either of the two."""
    bound = measure.target if measure.limit is None else measure.limit
    if bound is None or found is None:
        return None
    return found <= bound if measure.better is Better.LOWER else found >= bound


def percentile(values: list[float], share: float) -> float:
    """Return the value that share (0 to 1) of values do not exceed; ValueError for none."""
    if not values:
        raise ValueError("no values, no percentile")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
