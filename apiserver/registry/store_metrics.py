"""Counts and durations of requests to the store, under upstream's names.

    done = await metrics.timed("create", resource, store.txn(…))

What the watch cache answers does not reach the store, and is not counted.
"""

from collections import Counter
from collections.abc import Awaitable, Iterator
from typing import Final, TypeVar

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.component.clock import Clock
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples, labels
from kvstack.component.metrics.histograms import NANOSECOND_S, Histogram
from kvstore.client.errors import StoreError

CREATE: Final = "create"
UPDATE: Final = "update"
DELETE: Final = "delete"
GET: Final = "get"
LIST: Final = "list"

DURATION_BOUNDS: Final = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip
"""Upstream's bounds, of requests and of calls to the store."""

_T = TypeVar("_T")


class StoreMetrics:
    """Metrics of all collections."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._durations: Final[dict[tuple[str, GroupResource], Histogram]] = {}
        self._errors: Final[Counter[tuple[str, GroupResource]]] = Counter()

    async def timed(self, operation: str, resource: GroupResource, asked: Awaitable[_T]) -> _T:
        """Return an answer of the store; refusals are counted as errors, too."""
        key = operation, resource
        began = self._clock.monotonic_ns()
        try:
            return await asked
        except StoreError:
            self._errors[key] += 1
            raise
        finally:
            found = self._durations.get(key)
            if found is None:
                found = self._durations[key] = Histogram(DURATION_BOUNDS)
            found.add((self._clock.monotonic_ns() - began) * NANOSECOND_S)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        yield (
            "etcd_request_duration_seconds",
            FamilyKind.HISTOGRAM,
            "Etcd request latency in seconds for each operation and object type.",
            {_labels(*key): each.copy() for key, each in self._durations.items()},
        )
        yield (
            "etcd_requests_total",
            FamilyKind.COUNTER,
            "Etcd request counts for each operation and object type.",
            {_labels(*key): sum(each.counts) for key, each in self._durations.items()},
        )
        yield (
            "etcd_request_errors_total",
            FamilyKind.COUNTER,
            "Etcd failed request counts for each operation and object type.",
            {_labels(*key): count for key, count in self._errors.items()},
        )


def _labels(operation: str, resource: GroupResource) -> str:
    return labels(group=resource.group, operation=operation, resource=resource.resource)
