"""Writes: each is one transaction that compares the revision of what was read.

    create    the key is absent                     → put
    replace   the key was last changed at R         → put
    delete    the key was last changed at R         → delete

If the comparison fails, the answer is `Raced` with the current object, and the caller starts again.
Writes are in the watch cache at once, as a first guess for the next write.

`also` are further objects that are written or deleted in the same transaction (the addresses of a
Service).
"""

from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.leases import Leases
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.store_metrics import CREATE, DELETE, UPDATE, StoreMetrics
from kvstack.apiserver.registry.transformer import Transformers
from kvstack.apiserver.registry.watch_cache import WatchCache
from kvstore.client.store import Store
from kvstore.client.values import Compare, Delete, KeyValue, Op, Put, Range, RangeResult, TxnResult


class Raced(NamedTuple):
    """The write was not made: the object has changed."""

    current: Record | None
    """The current state; None: absent. Unchanged if one of `also` is the reason."""
    is_other: bool = False
    """Whether one of `also` is the reason."""


class Also(NamedTuple):
    """One more key of a transaction."""

    key: bytes
    revision: int
    """The modRevision that it must have; 0: it must be absent."""
    value: bytes | None
    """None: it is deleted."""


class Writes:
    """Writes to the store."""

    def __init__(
        self,
        store: Store,
        watch_cache: WatchCache,
        leases: Leases,
        metrics: StoreMetrics,
        transformers: Transformers | None = None,
    ) -> None:
        """transformers: encrypt values."""
        self._metrics: Final = metrics
        self._transformers: Final = transformers
        self._store: Final = store
        self._watch_cache: Final = watch_cache
        self._leases: Final = leases

    async def create(
        self,
        collection: Collection,
        key: str,
        obj: Object,
        body: bytes | None = None,
        *,
        ttl_s: int = 0,
        also: Sequence[Also] = (),
    ) -> Record | Raced:
        """Store a new object; raises StoreError.

        body: `codec.to_body(obj)`, if the caller has it. ttl_s: after which the object expires.
        """
        return await self._put(collection, key, obj, body, 0, ttl_s, also)

    async def replace(
        self,
        collection: Collection,
        seen: Record,
        obj: Object,
        body: bytes | None = None,
        *,
        ttl_s: int = 0,
        also: Sequence[Also] = (),
    ) -> Record | Raced:
        """Replace an object that was read, see `create`; raises StoreError."""
        return await self._put(collection, seen.key, obj, body, seen.revision, ttl_s, also)

    async def delete(
        self, collection: Collection, seen: Record, *, also: Sequence[Also] = ()
    ) -> Record | Raced:
        """Delete an object that was read; return its last state, at the revision of deletion."""
        store_key = self._watch_cache.prefixes.key(collection.prefix, seen.key)
        asked = self._txn(store_key, seen.revision, Delete(store_key), also)
        done = await self._metrics.timed(DELETE, collection.resource, asked)
        if not done.succeeded:
            return await self._raced(collection, seen.key, seen.revision, done)
        self._note(collection, seen.key, done.revision, None)
        return seen.at_revision(done.revision)

    async def _put(
        self,
        collection: Collection,
        key: str,
        obj: Object,
        body: bytes | None,
        revision: int,
        ttl_s: int,
        also: Sequence[Also],
    ) -> Record | Raced:
        codec = collection.codec
        body = codec.to_body(obj) if body is None else body
        lease = await self._leases.get(ttl_s) if ttl_s else 0
        store_key = self._watch_cache.prefixes.key(collection.prefix, key)
        put = Put(store_key, collection.value(key, body), lease)
        asked = self._txn(store_key, revision, put, also)
        operation = UPDATE if revision else CREATE
        done = await self._metrics.timed(operation, collection.resource, asked)
        if not done.succeeded:
            return await self._raced(collection, key, revision, done)
        record = codec.record(key, body, done.revision, obj, lease)
        self._note(collection, key, done.revision, record)
        return record

    def _txn(
        self, store_key: bytes, revision: int, op: Put | Delete, also: Sequence[Also]
    ) -> Awaitable[TxnResult]:
        compares = [Compare.mod_revision(store_key, revision)]
        success: list[Op] = [op]
        for each in also:
            compares.append(Compare.mod_revision(each.key, each.revision))
            if each.value is None:
                success.append(Delete(each.key))
            else:
                success.append(Put(each.key, each.value))
        return self._store.txn(compares, success, [Range(store_key)])

    async def _raced(
        self, collection: Collection, key: str, revision: int, done: TxnResult
    ) -> Raced:
        result = done.results[0]
        assert isinstance(result, RangeResult), "the failure branch reads one key"
        kv: KeyValue | None = result.kvs[0] if result.kvs else None
        current_revision = 0 if kv is None else kv.mod_revision
        record = None
        if kv is not None:
            if self._transformers is not None:
                await self._transformers.prepare([kv.value])
            record = collection.read(key, kv.value, kv.mod_revision, kv.lease)
        return Raced(record, is_other=current_revision == revision)

    def _note(self, collection: Collection, key: str, revision: int, record: Record | None) -> None:
        if revision > self._watch_cache.revision:
            collection.stored(key, revision, record)
