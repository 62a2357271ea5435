"""Metrics with labels: one family each, counted by the values of its labels.

    requests = LabelledCounter("dns_requests_total", "Queries.", "proto", "type")
    requests.add("udp", "A")
    render([requests.samples()])          dns_requests_total{proto="udp",type="A"} 1

Values come in the order of the names, and the names are sorted. Counting costs a tuple and a dict
lookup; the text of labels is made when the page is read. Callers limit the number of series if
clients choose the values. `by_labels` shows what is counted elsewhere by tuples.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from kvstack.component.metrics.exposition import FamilyKind, FamilySamples, Number, labels
from kvstack.component.metrics.histograms import Histogram

T = TypeVar("T")
K = TypeVar("K", bound=tuple[str, ...])


def by_labels(names: Sequence[str], series: Mapping[K, T]) -> dict[str, T]:
    """Return series by their labels as text; names: of the values, sorted."""
    return {
        labels(**dict(zip(names, values, strict=True))): found for values, found in series.items()
    }


class _Labelled:
    """The name, help and labels of a family."""

    __slots__ = ("help", "label_names", "name")

    def __init__(self, name: str, help: str, *label_names: str) -> None:  # noqa: A002
        """label_names: sorted."""
        if list(label_names) != sorted(label_names):
            raise ValueError(f"{name}: labels {label_names} must be sorted")
        self.name: Final = name
        self.help: Final = help
        self.label_names: Final = label_names


class LabelledCounter(_Labelled):
    """Counts that only grow."""

    __slots__ = ("_series",)

    def __init__(self, name: str, help: str, *label_names: str) -> None:  # noqa: A002
        """Create the counter, without series."""
        super().__init__(name, help, *label_names)
        self._series: dict[tuple[str, ...], Number] = {}

    def add(self, *values: str, by: Number = 1) -> None:
        """Increment the series with these values of the labels."""
        series = self._series
        series[values] = series.get(values, 0) + by

    def samples(self) -> FamilySamples:
        """Return all series."""
        found = by_labels(self.label_names, self._series)
        return self.name, FamilyKind.COUNTER, self.help, found


class LabelledGauge(_Labelled):
    """Values that change."""

    __slots__ = ("_series",)

    def __init__(self, name: str, help: str, *label_names: str) -> None:  # noqa: A002
        """Create the gauge, without series."""
        super().__init__(name, help, *label_names)
        self._series: dict[tuple[str, ...], Number] = {}

    def set(self, value: Number, *values: str) -> None:
        """Set the series with these values of the labels."""
        self._series[values] = value

    def samples(self) -> FamilySamples:
        """Return all series."""
        return self.name, FamilyKind.GAUGE, self.help, by_labels(self.label_names, self._series)


class LabelledHistogram(_Labelled):
    """Observations by size."""

    __slots__ = ("_bounds", "_series")

    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002
        bounds: Sequence[float],
        *label_names: str,
    ) -> None:
        """Create the histogram, without series; bounds ascend."""
        super().__init__(name, help, *label_names)
        self._bounds: Final = bounds
        self._series: dict[tuple[str, ...], Histogram] = {}

    def add(self, value: float, *values: str, times: int = 1) -> None:
        """Count a value, once or count times, for the series with these values of the labels."""
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = Histogram(self._bounds)
        found.add(value, times)

    def samples(self) -> FamilySamples:
        """Return copies of all series."""
        copies = {values: each.copy() for values, each in self._series.items()}
        return self.name, FamilyKind.HISTOGRAM, self.help, by_labels(self.label_names, copies)

    def counted(self, name: str, help: str) -> FamilySamples:  # noqa: A002
        """Return a counter of how many values each series has."""
        counts = {values: sum(each.counts) for values, each in self._series.items()}
        return name, FamilyKind.COUNTER, help, by_labels(self.label_names, counts)
