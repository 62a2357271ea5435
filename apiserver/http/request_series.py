"""Metric series of requests with equal labels."""

from typing import Final, NamedTuple

from kvstack.apiserver.registry.store_metrics import DURATION_BOUNDS
from kvstack.component.metrics.exposition import labels
from kvstack.component.metrics.histograms import Histogram, exponential
from kvstack.component.units import NANOSECOND_S

COMPONENT: Final = "apiserver"
SIZE_BOUNDS: Final = exponential(1000, 10, 7)
_READS: Final = frozenset(("GET", "LIST"))


class Labels(NamedTuple):
    """The labels of a series."""

    verb: str
    dry_run: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""

    def text(self, **more: str) -> str:
        """Return the labels in order, with others."""
        return labels(**dict(sorted({**self._asdict(), "component": COMPONENT, **more}.items())))

    def terminated(self, code: int) -> str:
        """Return the labels of requests that the server has terminated."""
        all_labels = {**self._asdict(), "code": str(code), "component": COMPONENT}
        del all_labels["dry_run"]
        return labels(**dict(sorted(all_labels.items())))


class Series:
    """The series of requests with equal labels."""

    __slots__ = ("codes", "durations", "labels", "sizes")

    def __init__(self, labels_: Labels) -> None:
        self.labels: Final = labels_
        self.codes: dict[int, int] = {}
        is_long = labels_.verb in ("WATCH", "CONNECT")
        self.durations = None if is_long else Histogram(DURATION_BOUNDS)
        self.sizes = Histogram(SIZE_BOUNDS) if labels_.verb in _READS else None

    def add(self, code: int, took_ns: int, size: int) -> None:
        """Count one request."""
        codes = self.codes
        codes[code] = codes.get(code, 0) + 1
        if self.durations is not None:
            self.durations.add(took_ns * NANOSECOND_S)
        if self.sizes is not None:
            self.sizes.add(size)
