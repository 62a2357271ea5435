"""Repair of Service allocations: cluster IPs and node ports; see `kinds.allocation`.

    node ports     the bitmap in the store says what Services have: every three minutes
    cluster IPs    each Service has its IPAddresses, each IPAddress its Service: as they change,
                   and all of them every ten minutes

Findings are reported as Warning events.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.allocators.address_repair import (
    Repair,
    repair_address,
    repair_service,
)
from kvstack.apiserver.allocators.cluster_ips import AddressRange, service_ranges
from kvstack.apiserver.allocators.node_ports import decode_bitmap, encode_bitmap
from kvstack.apiserver.allocators.port_repair import PERIOD_SECONDS, PortRepair
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.watch_cache import BehindError
from kvstack.apiserver.server.loopback import Loopback
from kvstack.apiserver.server.upkeep.warning_events import WarningEvents
from kvstack.apiserver.verbs.writing.allocations import ports_key, range_allocation
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.net.port_range import PortRange
from kvstore.client.values import Compare, Put

PORTS_S: Final = float(PERIOD_SECONDS)
ADDRESSES_S: Final = 1.0
"""Delay after a change, so that changes which come together are one round."""
ADDRESSES_FULL_S: Final = 600.0

SERVICES: Final = GroupResource("", "services")
ADDRESSES: Final = GroupResource("networking.k8s.io", "ipaddresses")
RANGES: Final = GroupResource("networking.k8s.io", "servicecidrs")
_CATCH_UP_S: Final = 10.0


class NodePortRepair:
    """Corrects the stored bitmap of node ports."""

    def __init__(
        self, registry: Registry, port_range: PortRange, events: WarningEvents, logger: Logger
    ) -> None:
        self._registry: Final = registry
        self._range: Final = port_range
        self._rounds: Final = PortRepair(port_range)
        self._events: Final = events
        self._logger: Final = logger

    async def round(self) -> bool:
        """Check all Services once; raises StoreError and ApiError.

        Returns whether the next round may do something even if no Service changes: each Service
        that takes or frees a port changes the bitmap together with itself.
        """
        registry, text = self._registry, self._range.text
        key = ports_key(registry)
        kv = (await registry.store.get(key)).kv
        stored = {"range": text} if kv is None else range_allocation(kv.value)
        if stored.get("range") != text:
            self._logger.warning(
                "replacing the stored range of node ports", stored=stored["range"], flags=text
            )
            stored = {"range": text}
        try:
            # The Services that took the ports of the bitmap must be in the cache.
            await registry.watch_cache.latest(_CATCH_UP_S)
        except BehindError:
            return True
        taken = decode_bitmap(stored.get("data") or "")
        desired, findings = self._rounds.round(taken, registry.view.list(SERVICES))
        is_wrong = kv is None or desired != taken or stored.keys() == {"range"}
        if is_wrong:
            value = {
                "kind": "RangeAllocation",
                "apiVersion": "v1",
                "metadata": {},
                "range": text,
                "data": encode_bitmap(desired),
            }
            revision = 0 if kv is None else kv.mod_revision
            await registry.store.txn(
                [Compare.mod_revision(key, revision)], [Put(key, orjson.dumps(value))], []
            )
        await self._events.report(findings)
        return is_wrong or bool(findings) or self._rounds.counts_leaks


class ClusterIpRepair:
    """Makes Services and IPAddresses consistent."""

    def __init__(
        self,
        loopback: Loopback,
        registry: Registry,
        ranges: Sequence[AddressRange],
        events: WarningEvents,
        clock: Clock,
    ) -> None:
        """ranges: of the flags, used while there are no ServiceCIDRs."""
        self._loopback: Final = loopback
        self._view: Final = registry.view
        self._ranges: Final = ranges
        self._events: Final = events
        self._clock: Final = clock
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self._is_followed = False
        self.wake: Callable[[], None] = lambda: None
        """Requests a round; called some time after a change, and when something is due."""

    async def look(self) -> None:
        """Repair once; raises ApiError."""
        if not self._is_followed:
            self._is_followed = True
            for each in (SERVICES, ADDRESSES, RANGES):
                self._view.subscribe(each, lambda _: self._wake_in(ADDRESSES_S))
        again_s = await self._repair_all(self._clock.unix_ms() / 1000)
        if again_s:
            self._wake_in(again_s)

    def _wake_in(self, seconds: float) -> None:
        """Run a round in so many seconds, unless one is scheduled earlier."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + seconds
        if self._timer is not None:
            if self._timer_at_s <= at_s:
                return
            self._timer.cancel()
        self._timer, self._timer_at_s = loop.call_at(at_s, self._fire), at_s

    def _fire(self) -> None:
        self._timer = None
        self.wake()

    async def end(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    async def _repair_all(self, now_s: float) -> float:
        """Check everything; return in how many seconds to check again, 0: on the next change."""
        ranges = service_ranges(self._view.list(RANGES)) or list(self._ranges)
        repairs = [
            repair_service(each, ranges, self._find_address, self._find_service)
            for each in list(self._view.list(SERVICES))
        ]
        repairs += [
            repair_address(each, self._find_service, now_s)
            for each in list(self._view.list(ADDRESSES))
        ]
        for each in repairs:
            if each.deleted or each.created:
                await self._carry_out(each)
            await self._events.report(each.findings)
        return min((each.retry_seconds for each in repairs if each.retry_seconds), default=0.0)

    async def _carry_out(self, repair: Repair) -> None:
        try:
            for name in repair.deleted:
                found = self._find_address(name)
                if found is not None:
                    await self._loopback.delete(ADDRESSES, found)
            for each in repair.created:
                await self._loopback.create(ADDRESSES, each)
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):  # another server wrote first
                raise

    def _find_address(self, name: str) -> Object | None:
        return self._view.get(ADDRESSES, "", name)

    def _find_service(self, namespace: str, name: str) -> Object | None:
        return self._view.get(SERVICES, namespace, name)
