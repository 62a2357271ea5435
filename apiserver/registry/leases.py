"""Shared leases of the store for objects that expire (Events).

    lease = await leases.get(3600)     the same one while it covers an hour, at most 1000 times

A lease is granted for a little longer than needed, so that later objects can share it. When it
expires the store deletes its objects.
"""

import asyncio
from typing import Final

from kvstack.component.clock import Clock
from kvstore.client.store import Store

OBJECTS_MAX: Final = 1000
SHARED_S_MAX: Final = 60
SHARED_PART: Final = 20
"""A lease is longer than needed by this fraction, and by SHARED_S_MAX at most."""


class _Lease:
    __slots__ = ("ends_ns", "id", "objects")

    def __init__(self, id_: int, ends_ns: int) -> None:
        self.id = id_
        self.ends_ns = ends_ns
        self.objects = 0


class Leases:
    """Grants leases; one per time to live is current."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store: Final = store
        self._clock: Final = clock
        self._current: dict[int, _Lease] = {}
        self._granting: dict[int, asyncio.Lock] = {}

    async def get(self, ttl_s: int) -> int:
        """Return a lease that lives at least so many seconds; raises StoreError."""
        lease = self._usable(ttl_s)
        if lease is None:
            async with self._granting.setdefault(ttl_s, asyncio.Lock()):
                lease = self._usable(ttl_s) or await self._grant(ttl_s)
        lease.objects += 1
        return lease.id

    def _usable(self, ttl_s: int) -> _Lease | None:
        lease = self._current.get(ttl_s)
        if lease is None or lease.objects >= OBJECTS_MAX:
            return None
        needed_ns = self._clock.monotonic_ns() + ttl_s * 1_000_000_000
        return lease if lease.ends_ns >= needed_ns else None

    async def _grant(self, ttl_s: int) -> _Lease:
        longer_s = ttl_s + min(max(ttl_s // SHARED_PART, 1), SHARED_S_MAX)
        began_ns = self._clock.monotonic_ns()
        granted = await self._store.lease_grant(longer_s)
        lease = _Lease(granted.lease, began_ns + granted.ttl_s * 1_000_000_000)
        self._current[ttl_s] = lease
        return lease
