"""/metrics in the text format of Prometheus.

Names are upstream's, as far as dashboards and alerts use them. The store's metrics are requested
with each scrape; if the store does not answer, they are left out.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from kvstack.apiserver.http.limits.in_flight import InFlight
from kvstack.apiserver.http.pages.page_set import check_get
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.http.request_metrics import RequestMetrics
from kvstack.apiserver.http.request_series import Labels
from kvstack.apiserver.http.watches.watch_streams import WatchStreams
from kvstack.apiserver.registry.registry import Registry
from kvstack.component.metrics.build_info import build_family
from kvstack.component.metrics.exposition import (
    CONTENT_TYPE,
    FamilyKind,
    FamilySamples,
    labels,
    render,
)
from kvstack.component.metrics.process_families import read_process
from kvstore.client.errors import StoreError

_STORE_S: Final = 2.0


class MetricsPage:
    """The page."""

    def __init__(
        self,
        requests: RequestMetrics,
        in_flight: InFlight,
        watches: WatchStreams,
        registry: Registry,
    ) -> None:
        self._requests: Final = requests
        self._in_flight: Final = in_flight
        self._watches: Final = watches
        self._registry: Final = registry
        self.more: Final[list[Callable[[], Iterator[FamilySamples]]]] = []
        """Further sources of metrics."""

    async def __call__(self, context: RequestContext) -> None:
        """Answer with the page."""
        check_get(context.request)
        readings = await self.readings()
        context.reply.send(200, CONTENT_TYPE, await asyncio.to_thread(render, readings))

    async def readings(self) -> list[FamilySamples]:
        """Return all families with their current values."""
        store = await self._store()
        process = await asyncio.to_thread(read_process)
        return [
            build_family(), *process,
            *self._requests.readings(), *self._load(), *self._objects(), *store,
            *self._registry.metrics.readings(),
            *(sample for each in self.more for sample in each()),
        ]  # fmt: skip

    def _load(self) -> Iterator[FamilySamples]:
        counts = self._in_flight.counts
        kinds = {False: labels(request_kind="readOnly"), True: labels(request_kind="mutating")}
        yield (
            "apiserver_current_inflight_requests",
            FamilyKind.GAUGE,
            "Maximal number of currently used inflight request limit of this apiserver per request"
            " kind in last second.",
            {kinds[is_write]: count for is_write, count in counts.items()},
        )
        watches: Counter[str] = Counter()
        for endpoint, selection in self._watches.open():
            row = endpoint.row
            scope = "namespace" if selection.prefix else "cluster"
            if selection.key:
                scope = "resource"
            watched = Labels("WATCH", "", row.group, row.version, row.name, "", scope)
            watches[watched.text()] += 1
        yield (
            "apiserver_longrunning_requests",
            FamilyKind.GAUGE,
            "Gauge of all active long-running apiserver requests broken out by verb, group,"
            " version, resource, scope and component.",
            dict(watches),
        )
        yield (
            "apiserver_watch_events_total",
            FamilyKind.COUNTER,
            "Number of events sent in watch clients",
            {
                labels(group=each.group, resource=each.resource): count
                for each, count in self._watches.event_counts().items()
            },
        )

    def _objects(self) -> Iterator[FamilySamples]:
        counts: dict[str, int] = {}
        for each in self._registry.watch_cache.collections.values():
            counts[labels(group=each.resource.group, resource=each.resource.resource)] = len(each)
        for name in ("apiserver_resource_objects", "apiserver_storage_objects"):
            yield (
                name,
                FamilyKind.GAUGE,
                "Number of stored objects at the time of last check split by kind.",
                counts,
            )

    async def _store(self) -> list[FamilySamples]:
        try:
            store_status = await self._registry.store.status(timeout_s=_STORE_S)
        except StoreError:
            return []
        return [
            (
                "apiserver_storage_size_bytes",
                FamilyKind.GAUGE,
                "Size of the storage database file physically allocated in bytes.",
                {labels(storage_cluster_id="etcd-0"): store_status.db_size},
            )
        ]
