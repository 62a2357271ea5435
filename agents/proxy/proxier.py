"""What runs on a node: follows the API and lets the backends make true what is served.

    proxier = Proxier(informers, options, {4: backend}, clock, logger)
    await proxier.start()        returns once all Services were served for the first time
    await proxier.run()          until cancelled

Nothing is written before all Services and slices are known. Changes that come together are made
true together; after a failure all is written, again and again, more slowly each time.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kvstack.agents.client.back_off import FailureBackOff
from kvstack.agents.client.informer import Informer
from kvstack.agents.proxy.backend import Backend, BackendError
from kvstack.agents.proxy.choice import Here, Verdict
from kvstack.agents.proxy.cluster_view import ClusterView
from kvstack.agents.proxy.health import Health
from kvstack.agents.proxy.health_checks import HealthChecks
from kvstack.agents.proxy.services import Family, PortName
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import ZONE_LABEL
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.metrics.histograms import Histogram, exponential

_FULL_EVERY_S: Final = 3600.0
_LARGE: Final = 2_000
"""From so many ports on, all is written only where it has to be: it takes long."""
_STALE_S: Final = 1.0
"""Until what is used no more may be deleted."""
_AUTOSCALER: Final = "ToBeDeletedByClusterAutoscaler"
_SYNC_BOUNDS: Final = exponential(0.001, 2, 15)
_SYNC: Final = "sync"
_REFUSED_MAX: Final = 10
"""Objects that cannot be served are told of at once, up to so many."""


class Sources(NamedTuple):
    """Where objects come from."""

    services: Informer
    slices: Informer
    nodes: Informer
    """Of this node at least."""
    service_ranges: Informer | None = None


@dataclass(frozen=True, slots=True)
class ProxierOptions:
    """How a node is served."""

    node: str
    min_gap_s: float = 1.0
    """From the end of one sync to the beginning of the next."""
    period_s: float = 30.0
    """The longest time between two tries."""
    look_every_s: float = 60.0
    """How often it is looked whether what was written is still there."""
    health_hosts: tuple[str, ...] | None = None
    """Where health checks of Services listen; None: everywhere."""


@dataclass(slots=True)
class Counts:
    """What metrics tell, by family."""

    full: dict[Family, Histogram] = field(default_factory=dict)
    """Seconds of each time that all was written."""
    partial: dict[Family, Histogram] = field(default_factory=dict)
    """Seconds of each time that what had changed was."""
    failures: dict[Family, int] = field(default_factory=dict)
    """To write all."""
    partial_failures: dict[Family, int] = field(default_factory=dict)
    """To write what had changed."""
    service_changes: int = 0
    endpoint_changes: int = 0
    service_changes_pending: int = 0
    """Since what had changed was last taken."""
    endpoint_changes_pending: int = 0


class Proxier:
    """Serves one node."""

    def __init__(
        self,
        sources: Sources,
        options: ProxierOptions,
        backends: Mapping[Family, Backend],
        clock: Clock,
        logger: Logger,
        *,
        on_check_failure: Callable[[PortName, int, str], None] | None = None,
    ) -> None:
        """Serve nothing yet."""
        self.counts: Final = Counts()
        self.health: Final = Health(tuple(backends), options.period_s, clock.now_s)
        self._sources = sources
        self._options = options
        self.backends: Final = dict(backends)
        """What makes it true, by family."""
        self._clock = clock
        self._logger = logger
        here = Here(options.node)
        self._views: dict[Family, ClusterView] = {
            each: ClusterView(each, here) for each in backends
        }
        self._checks = HealthChecks(
            options.health_hosts,
            lambda: self.health.is_well,
            logger,
            on_check_failure or (lambda name, port, reason: None),
        )
        self._wakes = asyncio.Event()
        self._needs_all = set(backends)
        self._follows = False
        self._written_all_s = 0.0
        self._back_off = FailureBackOff(clock, 1.0, max(1.0, options.period_s))

    @property
    def mode(self) -> str:
        """How traffic is led."""
        return next(iter(self.backends.values())).mode

    def without_local_endpoints(self) -> dict[Family, tuple[int, int]]:
        """Return of how many Services traffic is dropped, from inside and from outside.

        Their policy is Local, and the node has none of their endpoints.
        """
        return {family: _dropped(view) for family, view in self._views.items()}

    async def start(self) -> None:
        """Serve all there is; what cannot be written yet is tried again by `run`."""
        sources = self._sources
        self._follows = True
        sources.services.on_change(self._on_service)
        sources.slices.on_change(self._on_slice)
        sources.nodes.on_change(self._on_node)
        for each in sources:
            if each is not None:
                await each.synced()
        if sources.service_ranges is not None:
            sources.service_ranges.on_change(lambda old, new: self._read_ranges())
        self._wakes.clear()
        await self._sync()

    async def run(self) -> None:
        """Follow changes until cancelled."""
        while True:
            await self._wait()
            self._wakes.clear()
            await self._sync()

    async def close(self) -> None:
        """Hear of changes no more, and end the backends."""
        sources = self._sources
        for informer, handler in (
            (sources.services, self._on_service),
            (sources.slices, self._on_slice),
            (sources.nodes, self._on_node),
        ):
            if self._follows:
                informer.forget(handler)
        self._follows = False
        await self._checks.close()
        for backend in self.backends.values():
            await backend.close()

    async def _wait(self) -> None:
        """Wait for the next change, or until it is time for all; tidy up meanwhile."""
        await asyncio.sleep(self._options.min_gap_s)
        if not self._wakes.is_set():
            wait_s = max(0.0, _STALE_S - self._options.min_gap_s)
            await self._woken(wait_s)
        if not self._wakes.is_set():
            for backend in self.backends.values():
                await backend.tidy()
        if self._needs_all:
            await self._woken(self._back_off.next_s(_SYNC))
            return
        if not await self._woken(self._options.look_every_s):
            await self._look()

    async def _look(self) -> None:
        """Let all be written if it is time for that, or if it is gone."""
        is_due = self._clock.monotonic_s() - self._written_all_s >= _FULL_EVERY_S
        for family, backend in self.backends.items():
            if is_due and self._views[family].count < _LARGE:
                self._needs_all.add(family)
            elif not await backend.is_there():
                self._logger.warning("the rules of Services were taken away by somebody else")
                self._needs_all.add(family)

    async def _woken(self, wait_s: float) -> bool:
        try:
            async with asyncio.timeout(max(0.0, wait_s)):
                await self._wakes.wait()
        except TimeoutError:
            return False
        return True

    async def _sync(self) -> None:
        """Make true what is served now."""
        self.counts.service_changes_pending = self.counts.endpoint_changes_pending = 0
        for family, backend in self.backends.items():
            view = self._views[family]
            changes = view.take_changes()
            self._tell_refused(view)
            began_s = self._clock.monotonic_s()
            is_full = family in self._needs_all
            try:
                if is_full:
                    await backend.write_all(view)
                elif changes:
                    await backend.write(changes, view)
            except BackendError as error:
                self._needs_all.add(family)
                failures = self.counts.failures if is_full else self.counts.partial_failures
                failures[family] = failures.get(family, 0) + 1
                self._logger.error("Services are not served as they should", reason=str(error))
                continue
            finally:
                await self._checks.follow(changes)
            self._needs_all.discard(family)
            self.health.synced(family)
            ended_s = self._clock.monotonic_s()
            if is_full:
                self._written_all_s = ended_s
            if is_full or changes:
                kept = self.counts.full if is_full else self.counts.partial
                kept.setdefault(family, Histogram(_SYNC_BOUNDS)).add(ended_s - began_s)
        if not self._needs_all:
            self._back_off.forget(_SYNC)

    def _tell_refused(self, view: ClusterView) -> None:
        for each in view.refused[:_REFUSED_MAX]:
            self._logger.error("an object cannot be served", object=each.what, reason=each.why)
        view.refused.clear()

    def _on_service(self, old: Object | None, new: Object | None) -> None:
        self.counts.service_changes += 1
        self.counts.service_changes_pending += 1
        for view in self._views.values():
            view.set_service(old, new)
        self._wake()

    def _on_slice(self, old: Object | None, new: Object | None) -> None:
        self.counts.endpoint_changes += 1
        self.counts.endpoint_changes_pending += 1
        for view in self._views.values():
            view.set_slice(old, new)
        self._wake()

    def _on_node(self, old: Object | None, new: Object | None) -> None:
        named = (new or old or {})["metadata"]["name"]
        if named != self._options.node:
            return
        meta = {} if new is None else new["metadata"]
        taints = ((new or {}).get("spec") or {}).get("taints") or ()
        self.health.is_eligible = (
            new is not None
            and not meta.get("deletionTimestamp")
            and all(each.get("key") != _AUTOSCALER for each in taints)
        )
        here = Here(self._options.node, (meta.get("labels") or {}).get(ZONE_LABEL, ""))
        moved = [view.move_to(here) for view in self._views.values()]
        if any(moved):
            self._wake()

    def _read_ranges(self) -> None:
        informer = self._sources.service_ranges
        assert informer is not None, "it calls this"
        ranges = tuple(
            cidr for each in informer.store for cidr in (each.get("spec") or {}).get("cidrs") or ()
        )
        for family, backend in self.backends.items():
            if backend.use_service_ranges(ranges):
                self._needs_all.add(family)
                self._wake()

    def _wake(self) -> None:
        if any(view.has_changes for view in self._views.values()) or self._needs_all:
            self.health.queued()
            self._wakes.set()


def _dropped(view: ClusterView) -> tuple[int, int]:
    internal, external = set(), set()
    for served in view.served():
        name = served.port.name[:2]
        if served.internal is Verdict.DROP:
            internal.add(name)
        if served.external is Verdict.DROP:
            external.add(name)
    return len(internal), len(external)
