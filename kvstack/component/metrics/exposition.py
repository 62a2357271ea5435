"""The text format of Prometheus (0.0.4), as Go's client library writes it.

    # HELP etcd_mvcc_put_total Total number of puts seen by this member.
    # TYPE etcd_mvcc_put_total counter
    etcd_mvcc_put_total 2

Families come in the order of their names; a histogram's le is the last label; numbers are Go's
shortest: 2, 0.001, 2.147483648e+09. Python's own client library is not used because it appends
_total to the names of counters, which some of etcd's do not have, and writes 2.0 for 2.
"""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import Enum
from itertools import accumulate
from math import isfinite, isnan
from typing import Final, Generic, NamedTuple, TypeVar

from kvstack.component.metrics.histograms import Histogram

_POWER_MIN: Final = -4  # below, and from _POWER_MAX on, the exponent is written
_POWER_MAX: Final = 6

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"

Number = int | float
Value = Number | Histogram | Mapping[str, Number] | Mapping[str, Histogram]
"""One sample, or samples by their labels as text, see labels()."""

T = TypeVar("T")


class FamilyKind(Enum):
    """The type of a metric family."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(NamedTuple, Generic[T]):
    """One metric: its name, type and help text, and the function that reads it."""

    name: str
    kind: FamilyKind
    help: str
    read: Callable[[T], Value]


FamilySamples = tuple[str, FamilyKind, str, Value]  # name, kind, help, what was read


def collect(families: Iterable[Family[T]], source: T) -> list[FamilySamples]:
    """Read every family; histograms are copied, so that the text can be made later."""
    return [(each.name, each.kind, each.help, _frozen(each.read(source))) for each in families]


def _frozen(value: Value) -> Value:
    if isinstance(value, Histogram):
        return value.copy()
    if isinstance(value, Mapping):
        times = {each: it.copy() for each, it in value.items() if isinstance(it, Histogram)}
        return times or value
    return value


def labels(**values: str) -> str:
    """Return labels as the text between the braces; give the names in sorted order."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items())


def render(readings: Iterable[FamilySamples]) -> bytes:
    """Return the text of a page; families without a sample are left out, as in etcd."""
    lines: list[str] = []
    for name, kind, text, value in sorted(readings, key=lambda reading: reading[0]):
        samples = value if isinstance(value, Mapping) else {"": value}
        if not samples:
            continue
        help_text = text.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"# HELP {name} {help_text}\n# TYPE {name} {kind.value}")
        for each, sample in sorted(samples.items(), key=lambda item: item[0]):
            if isinstance(sample, Histogram):
                _histogram(lines, name, each, sample)
            else:
                braced = f"{{{each}}}" if each else ""
                lines.append(f"{name}{braced} {number(sample)}")
    lines.append("")
    return "\n".join(lines).encode()


def _histogram(lines: list[str], name: str, each: str, histogram: Histogram) -> None:
    head = f"{name}_bucket{{{each}," if each else f"{name}_bucket{{"
    tail = f"{{{each}}}" if each else ""
    counts = list(accumulate(histogram.counts))
    for bound, count in zip(histogram.bounds, counts, strict=False):
        lines.append(f'{head}le="{number(bound)}"}} {count}')
    lines.append(f'{head}le="+Inf"}} {counts[-1]}')
    lines.append(f"{name}_sum{tail} {number(histogram.total)}")
    lines.append(f"{name}_count{tail} {counts[-1]}")


def number(value: Number) -> str:
    """Return a number as Go's %g with the fewest digits that identify it."""
    if isinstance(value, int) and -1_000_000 < value < 1_000_000:
        return str(value)
    value = float(value)
    if not isfinite(value):
        return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"
    is_negative, all_digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)  # the number is finite
    digits = "".join(map(str, all_digits))
    power = len(digits) - 1 + exponent  # the number is d.ddd * 10**power
    sign = "-" if is_negative else ""
    if power < _POWER_MIN or power >= _POWER_MAX:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{sign}0.{digits.rjust(len(digits) - power - 1, '0')}"
    whole, fraction = digits[: power + 1].ljust(power + 1, "0"), digits[power + 1 :]
    return f"{sign}{whole}.{fraction}" if fraction else sign + whole


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
