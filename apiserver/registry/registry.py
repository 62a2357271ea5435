"""All stored resources, and how to read and write them.

    async with Registry(store, rows, clock, logger) as registry:
        pods = registry.collection(GroupResource("", "pods"))
        page = await registry.reads.list(pods, Selection("default/"), ListOptions())

Rows of the table with the same key prefix share a collection. Its objects are handled in one of the
served versions: the storage version if it is served.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Final, Self

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.schema.resource import Kind, Resource, Storage
from kvstack.apimachinery.schema.table import Table
from kvstack.apiserver.apiextensions.customresources.resource import CustomResource
from kvstack.apiserver.kinds.strategy import Strategy
from kvstack.apiserver.kinds.table import strategy_of_row
from kvstack.apiserver.registry.codec import Codec, StoredVersion
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.history import History
from kvstack.apiserver.registry.keys import ROOT
from kvstack.apiserver.registry.leases import Leases
from kvstack.apiserver.registry.live import Live
from kvstack.apiserver.registry.reads import Reads
from kvstack.apiserver.registry.store_metrics import StoreMetrics
from kvstack.apiserver.registry.time_index import TimeIndex
from kvstack.apiserver.registry.transformer import Transformers
from kvstack.apiserver.registry.view import View
from kvstack.apiserver.registry.watch_cache import WatchCache
from kvstack.apiserver.registry.writes import Writes
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstore.client.store import Store

_NO_HOOKS: Final = Strategy()


class Registry:
    """The stored resources."""

    def __init__(
        self,
        store: Store,
        table: Table,
        rows: Iterable[Resource],
        clock: Clock,
        logger: Logger,
        *,
        root: str = ROOT,
        transformers: Transformers | None = None,
        keeps_times: bool = True,
        is_alone: bool = False,
    ) -> None:
        """Make a collection for each key prefix of the rows; nothing is read yet.

        keeps_times: whether the times of revisions are recorded. is_alone: whether no other server
        ever uses the store.
        """
        self._keeps_times: Final = keeps_times
        self.store: Final = store
        self._table: Final = table
        self.clock: Final = clock
        self.transformers: Final = transformers
        self.watch_cache: Final = WatchCache(store, logger, root, transformers)
        self.metrics: Final = StoreMetrics(clock)
        history = History(store, self.watch_cache.prefixes, self.metrics, transformers)
        self.history: Final = history
        self.reads: Final = Reads(self.watch_cache, history)
        self.writes: Final = Writes(
            store, self.watch_cache, Leases(store, clock), self.metrics, transformers
        )
        self.view: Final = View(self.find)
        self.live: Final = Live(self.watch_cache, history, self.writes, self.find, clock)
        self.times: Final = TimeIndex(store, self.watch_cache, clock, logger, is_alone=is_alone)
        self._by_resource: dict[GroupResource, Collection] = {}
        self._tasks: list[asyncio.Task[None]] = []
        for prefix, sharing in by_prefix(rows).items():
            hub = _hub(sharing)
            collection = _collection(table, hub, sharing, prefix)
            self._set_transformer(collection)
            self.watch_cache.add(collection)
            for each in sharing:
                self._by_resource[GroupResource(each.group, each.name)] = collection

    def find(self, resource: GroupResource) -> Collection | None:
        """Return the collection of a resource; None: it is not stored."""
        return self._by_resource.get(resource)

    def collection(self, resource: GroupResource) -> Collection:
        """Return the collection of a resource; KeyError: it is not stored."""
        return self._by_resource[resource]

    async def join(self, rows: list[Resource]) -> None:
        """Add a resource, or replace its definition; raises StoreError.

        rows: all of its versions. Returns when the watch cache has its objects.
        """
        hub = _hub(rows)
        assert hub.storage is not None, "resources that join are stored"
        resource = GroupResource(hub.group, hub.name)
        make = partial(codec_of, self._table, rows)
        collection = self._by_resource.get(resource)
        if collection is None or collection.is_namespaced != hub.is_namespaced:
            collection = Collection(
                resource, hub.storage.prefix, make, is_namespaced=hub.is_namespaced
            )
        else:
            collection.remake_codec(make)
        self._set_transformer(collection)
        await self.watch_cache.join(collection)
        self._by_resource[resource] = collection
        self.live.forget(resource)

    def _set_transformer(self, collection: Collection) -> None:
        if self.transformers is not None:
            store_key = self.watch_cache.prefixes.key(collection.prefix, "")
            collection.transformer = self.transformers.of(collection.resource, store_key)

    async def read_broken_anew(self) -> None:
        """Read collections with unreadable objects again; raises StoreError."""
        for each in list(self.watch_cache.collections.values()):
            if each.broken:
                await self.watch_cache.join(each)

    def leave(self, resource: GroupResource) -> None:
        """Remove a resource that was added; its watches end."""
        known = self._by_resource.pop(resource, None)
        if known is not None:
            self.watch_cache.leave(known)
            self.live.forget(resource)

    async def __aenter__(self) -> Self:
        """Start reading; `watch_cache.is_loaded` says when everything is loaded."""
        self._tasks = [asyncio.create_task(self.watch_cache.run(), name="watch cache")]
        if self._keeps_times:
            self._tasks.append(asyncio.create_task(self.times.run(), name="registry times"))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; tasks that wait for the watch cache are cancelled."""
        for each in self._tasks:
            each.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def by_prefix(rows: Iterable[Resource]) -> dict[str, list[Resource]]:
    """Return the stored rows by key prefix."""
    found: dict[str, list[Resource]] = {}
    for each in rows:
        if each.storage is not None:
            found.setdefault(each.storage.prefix, []).append(each)
    return found


def _hub(rows: list[Resource]) -> Resource:
    """Return the row of the storage version, or the first."""
    for each in rows:
        storage = each.storage
        if storage and (storage.group, storage.version) == (each.group, each.version):
            return each
    return rows[0]


def _collection(table: Table, hub: Resource, rows: list[Resource], prefix: str) -> Collection:
    resource = GroupResource(hub.group, hub.name)
    make = partial(codec_of, table, rows)
    return Collection(resource, prefix, make, is_namespaced=hub.is_namespaced)


def codec_of(table: Table, rows: list[Resource]) -> Codec:
    """Return the codec of the rows of one prefix."""
    hub = _hub(rows)
    storage = hub.storage
    assert storage is not None, "rows that are not stored were left out"
    strategy = strategy_of_row(hub) or _NO_HOOKS
    return Codec(
        hub.kind,
        hub.type,
        strategy,
        stored_api_version="" if storage.is_json else _stored_version(storage),
        versions=_versions(table, hub, rows, storage),
        is_json=storage.is_json,
        sorts_members=hub.is_custom,
    )


def _stored_version(storage: Storage) -> str:
    return Kind(storage.group, storage.version, storage.kind).api_version


def _versions(
    table: Table, hub: Resource, rows: list[Resource], storage: Storage
) -> dict[str, StoredVersion]:
    """Return the versions besides the hub that stored values may have."""
    versions: dict[str, StoredVersion] = {}
    for each in rows:
        strategy = strategy_of_row(each) or _NO_HOOKS
        conversion = strategy.conversions.get(each.version)
        is_kept = isinstance(each, CustomResource) and each.converter is not None
        keeper = strategy if is_kept else None
        versions[each.group_version] = StoredVersion(each.type, conversion, keeper)
    stored = Kind(storage.group, storage.version, storage.kind)
    type_ = table.type_of(stored)
    if type_ is not None and stored.api_version not in versions:
        strategy = strategy_of_row(hub) or _NO_HOOKS
        conversion = strategy.conversions.get(storage.version)
        versions[stored.api_version] = StoredVersion(type_, conversion)
    return versions
