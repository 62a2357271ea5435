"""Past states of objects, from the history of the store.

Used where the watch cache does not reach: revisions older than its window, and the present while
the watch cache is behind. A compacted revision raises CompactedError.
"""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.keys import KeyPrefixes
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.store_metrics import GET, LIST, StoreMetrics
from kvstack.apiserver.registry.transformer import TransformError, Transformers
from kvstore.client.store import Store
from kvstore.client.values import prefix_end

PAGE_KEYS_MAX: Final = 10_000


class HistoryRange(NamedTuple):
    """The objects of a range."""

    revision: int
    """The store's revision of the answer."""
    records: list[Record]
    more: bool
    """Whether there are more after them."""
    total: int
    """Number of objects in the range."""


class History:
    """Reads objects at revisions."""

    def __init__(
        self,
        store: Store,
        prefixes: KeyPrefixes,
        metrics: StoreMetrics,
        transformers: Transformers | None = None,
    ) -> None:
        """prefixes: of the keys of objects; transformers: decrypt them."""
        self._metrics: Final = metrics
        self._transformers: Final = transformers
        self._store: Final = store
        self._prefixes: Final = prefixes

    async def get(self, collection: Collection, key: str, revision: int = 0) -> Record | None:
        """Return one object at a revision, 0: the current one. Raises StoreError."""
        store_key = self._prefixes.key(collection.prefix, key)
        asked = self._store.get(store_key, revision=revision)
        kv = (await self._metrics.timed(GET, collection.resource, asked)).kv
        if kv is None:
            return None
        own = collection.own(key, kv.mod_revision)
        if own is not None:
            return own
        if self._transformers is not None:
            await self._transformers.prepare([kv.value])
        return collection.read(key, kv.value, kv.mod_revision, kv.lease)

    async def is_new(self, collection: Collection, key: str) -> bool:
        """Return whether an object was never changed since its creation. Raises StoreError."""
        kv = (await self._store.get(self._prefixes.key(collection.prefix, key))).kv
        return kv is not None and kv.version == 1

    async def is_stale(self, collection: Collection, key: str) -> bool:
        """Return whether a write would encrypt an object differently now.

        Raises StoreError.
        """
        if collection.transformer is None:
            return False
        kv = (await self._store.get(self._prefixes.key(collection.prefix, key))).kv
        if kv is None:
            return False
        if self._transformers is not None:
            await self._transformers.prepare([kv.value])
        try:
            return collection.transformer.from_storage(key, kv.value).is_stale
        except TransformError:
            return False

    async def read(
        self, collection: Collection, start: str, end: str | None, revision: int, limit: int
    ) -> HistoryRange:
        """Return objects in [start, end), at most `limit` (0: all)."""
        first = self._prefixes.key(collection.prefix, start)
        if end is None:
            last = prefix_end(self._prefixes.key(collection.prefix, ""))
        else:
            last = self._prefixes.key(collection.prefix, end)
        asked = self._store.range(first, last, limit=limit, revision=revision)
        range_ = await self._metrics.timed(LIST, collection.resource, asked)
        skip = len(self._prefixes.key(collection.prefix, ""))
        if self._transformers is not None:
            await self._transformers.prepare(kv.value for kv in range_.kvs)
        records = [
            collection.read(kv.key[skip:].decode(), kv.value, kv.mod_revision, kv.lease)
            for kv in range_.kvs
        ]
        return HistoryRange(range_.revision, records, range_.more, range_.total)

    async def pages(
        self, collection: Collection, start: str, end: str | None, revision: int, limit: int
    ) -> AsyncIterator[HistoryRange]:
        """Yield objects page by page, all at one revision; pages double up to PAGE_KEYS_MAX."""
        while True:
            page = await self.read(collection, start, end, revision, limit)
            revision = revision or page.revision
            yield page
            if not page.more or not page.records:
                return
            start = f"{page.records[-1].key}\0"
            limit = min(limit * 2, PAGE_KEYS_MAX)
