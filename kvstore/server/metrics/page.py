"""The metrics page.

    GET /metrics ──► driver's thread: the node's counters, of one moment
                 └─► side loop: the process's ──► text

A member that is stuck in a turn (because of a disk that hangs, say) still answers: with the last
counters that were read, and kvstore_metrics_age_seconds is their age. Concurrent scrapes share one
answer.
"""

import asyncio
from typing import Final

from kvstack.component.metrics.exposition import (
    CONTENT_TYPE,
    Family,
    FamilyKind,
    FamilySamples,
    collect,
    render,
)
from kvstack.component.metrics.histograms import NANOSECOND_S
from kvstack.component.metrics.process_families import read_process
from kvstore.server.metrics import call_families, etcd_families, own_families
from kvstore.server.metrics.gatherer import BusyError, Gatherer
from kvstore.server.metrics.sources import MetricSources

FAMILIES: Final[tuple[Family[MetricSources], ...]] = (
    *etcd_families.FAMILIES,
    *call_families.FAMILIES,
    *own_families.FAMILIES,
)
_TIMEOUT_S: Final = 2.0


class MetricsPage:
    """Makes the page's text; call it from the side loop."""

    def __init__(self, sources: MetricSources, gatherer: Gatherer) -> None:
        self._sources = sources
        self._gatherer = gatherer
        self._last: list[FamilySamples] = []
        self._last_ns = sources.clock.monotonic_ns()
        self._running: asyncio.Task[tuple[bytes, str]] | None = None

    async def __call__(self) -> tuple[bytes, str]:
        """Return the text and its content type."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._make(), name="metrics")
        return await asyncio.shield(self._running)

    async def _make(self) -> tuple[bytes, str]:
        try:
            self._last = await self._gatherer.read(
                lambda: collect(FAMILIES, self._sources), _TIMEOUT_S
            )
            self._last_ns = self._sources.clock.monotonic_ns()
            age_s = 0.0
        except BusyError:
            age_s = (self._sources.clock.monotonic_ns() - self._last_ns) * NANOSECOND_S
        age = (
            "kvstore_metrics_age_seconds",
            FamilyKind.GAUGE,
            "Age of the node's metrics on this page: above 0 while a turn is stuck.",
            age_s,
        )
        return render([*self._last, *read_process(), age]), CONTENT_TYPE
