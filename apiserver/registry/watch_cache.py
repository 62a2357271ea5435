"""The cluster in memory: loaded once, then kept current by one watch of the store.

    load    every key below the root, as of one revision R ──► collections
    follow  watch from R+1 ──► collections, in order ──► their listeners

`revision` is the revision of the cache: every change up to it is in the collections. A reader that
needs the present asks the store for its revision and waits until the cache has reached it
(`latest`).

The cache is reloaded when the store no longer has the changes that it lacks, or has gone back to an
older state (restored from a backup). Until then there are no reads of the present, and every watch
of the cache has to start again. If the store is unreachable the cache stays as it is: reads of the
present fail with the store's error, reads of any state are served.
"""

import asyncio
import heapq
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.keys import ROOT, KeyPrefixes
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.transformer import Transformers
from kvstack.component.logger import Logger
from kvstore.client.errors import StoreError
from kvstore.client.store import Store
from kvstore.client.values import (
    Compacted,
    Event,
    EventKind,
    Events,
    Interrupted,
    KeyValue,
    Progress,
    Restored,
    Resumed,
    prefix_end,
)

if TYPE_CHECKING:
    from kvstore.client.watch import Watch

LOAD_PAGE_KEYS: Final = 1_000
SLICE_EVENTS: Final = 500
"""Number of changes per slice; other tasks run in between."""
_ASK_FIRST_S: Final = 0.002
_ASK_AGAIN_S: Final = 0.05
_RETRY_S: Final = 0.1
_RETRY_MAX_S: Final = 5.0


class BehindError(Exception):
    """The watch cache did not reach a revision in time."""


class WatchCache:
    """The collections of a registry, and their revision."""

    def __init__(
        self,
        store: Store,
        logger: Logger,
        root: str = ROOT,
        transformers: Transformers | None = None,
    ) -> None:
        """`add` collections, then `run`. transformers: decrypt values."""
        self._transformers: Final = transformers
        self._store: Final = store
        self._logger: Final = logger
        self.prefixes: Final = KeyPrefixes(root)
        self.collections: Final[dict[str, Collection]] = {}
        """Collections by key prefix."""
        self.revision = 0
        self.changed_at = 0
        """The revision of the last change, or of the last load."""
        self.compacted = 0
        """States before this revision are compacted; 0: none is known to be."""
        self.is_loaded = False
        """Whether it follows the store, or would if the store were reachable."""
        self.is_interrupted = False
        """Whether the store's changes do not arrive at present."""
        self.on_load: Final[list[Callable[[int], None]]] = []
        """Called with the revision after each load."""
        self.on_change: Final[list[Callable[[int], None]]] = []
        """Called before changes are applied, with the revision of the first."""
        self._joining: dict[str, list[Event]] = {}
        """Changes that arrive while an added collection is being read, by prefix."""
        self._read_at: dict[str, int] = {}
        """Revisions of collections that were read ahead of the watch cache, by prefix."""
        self._watch: Watch | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._tickets = count()
        self._asking: asyncio.TimerHandle | None = None

    def add(self, collection: Collection) -> None:
        """Add a collection before `run`."""
        self.collections[collection.prefix] = collection
        self.prefixes.add(collection.prefix)

    def note_compaction(self, revision: int) -> None:
        """Note that the store has compacted the states before a revision."""
        self.compacted = max(self.compacted, revision)

    async def join(self, collection: Collection) -> None:
        """Add a collection while running, or reload one; raises StoreError.

        Returns when the objects are loaded, at a revision of or after the call.
        """
        prefix = collection.prefix
        waiting: list[Event] = []
        self._joining[prefix] = waiting
        self.collections[prefix] = collection
        self.prefixes.add(prefix)
        try:
            records, revision = await self._read(collection)
            if self._joining.get(prefix) is waiting:
                collection.fill(records, revision)
                self._read_at[prefix] = revision
                del self._joining[prefix]
                self._apply(waiting)
        except BaseException:
            if self._joining.get(prefix) is waiting:
                self.leave(collection)
            raise

    def leave(self, collection: Collection) -> None:
        """Remove a collection; its watches end."""
        prefix = collection.prefix
        self._joining.pop(prefix, None)
        self._read_at.pop(prefix, None)
        if self.collections.pop(prefix, None) is not None:
            self.prefixes.remove(prefix)
        collection.fill((), self.revision)

    async def _read(self, collection: Collection) -> tuple[list[Record], int]:
        start = self.prefixes.key(collection.prefix, "")
        records: list[Record] = []
        revision = 0
        pages = self._store.pages(start, prefix_end(start), page_keys=LOAD_PAGE_KEYS)
        async for page in pages:
            revision = revision or page.revision
            if self._transformers is not None:
                await self._transformers.prepare(each.value for each in page.kvs)
            for each in page.kvs:
                location = self.prefixes.split(each.key)
                if location is not None:
                    key, at = location[1], each.mod_revision
                    records.append(collection.read(key, each.value, at, each.lease))
        return records, revision

    # For readers.

    async def latest(self, timeout_s: float) -> int:
        """Wait until the cache has the store's current revision; return the revision reached.

        Raises BehindError, and StoreError if the store does not answer.
        """
        known = self.revision if self.is_loaded else 0
        revision = await self._store.current_revision()
        if revision < known:
            self._logger.warning(
                "the store went back to an older revision: reloading everything",
                revision=revision,
                known=known,
            )
            self._forget()
        if self.revision < revision or not self.is_loaded:
            await self.reach(revision, timeout_s)
        return self.revision

    async def reach(self, revision: int, timeout_s: float) -> None:
        """Wait until the watch cache has a revision; raises BehindError."""
        if self.is_loaded and self.revision >= revision:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (revision, next(self._tickets), future))
        self._ask_soon(_ASK_FIRST_S)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            raise BehindError(f"{self.revision} is below {revision}") from None

    # Life cycle.

    async def run(self) -> None:
        """Load and follow until cancelled."""
        pause_s = _RETRY_S
        try:
            while True:
                try:
                    await self._load()
                    pause_s = _RETRY_S
                    await self._follow()
                except StoreError as error:
                    self._logger.warning("failed to read the store", error=str(error))
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _RETRY_MAX_S)
        finally:
            self._forget()
            for _, _, future in self._waiting:
                future.cancel()

    def _forget(self) -> None:
        """Stop serving reads of the present until everything is reloaded."""
        self.is_loaded = False
        if self._watch is not None:
            self._watch.cancel()

    async def _load(self) -> None:
        root = self.prefixes.root.encode()
        records_by_prefix: dict[str, list[Record]] = {prefix: [] for prefix in self.collections}
        revision = 0
        pages = self._store.pages(root, prefix_end(root), page_keys=LOAD_PAGE_KEYS)
        async for page in pages:
            revision = revision or page.revision
            if self._transformers is not None:
                await self._transformers.prepare(each.value for each in page.kvs)
            for each in page.kvs:
                self._read_into(records_by_prefix, each)
        for prefix, records in records_by_prefix.items():
            collection = self.collections.get(prefix)
            if collection is not None:
                collection.fill(records, revision)
                self._joining.pop(prefix, None)  # unreadable objects do not stop it
        self._read_at.clear()
        self.changed_at = revision
        self.compacted = 0  # what a restored store has compacted is unknown
        self._advance(revision)  # possibly back: the store was restored
        self.is_loaded = True
        for loaded in self.on_load:
            loaded(revision)

    def _read_into(self, found: dict[str, list[Record]], kv: KeyValue) -> None:
        location = self.prefixes.split(kv.key)
        if location is not None and location[0] in found:
            prefix, key = location
            collection = self.collections[prefix]
            found[prefix].append(collection.read(key, kv.value, kv.mod_revision, kv.lease))

    async def _follow(self) -> None:
        """Apply changes until the watch cache has to be reloaded; raises StoreError."""
        root = self.prefixes.root.encode()
        watch = self._watch = self._store.watch(
            root, prefix_end(root), start_revision=self.revision + 1, progress_notify=True
        )
        try:
            async for value in watch:
                match value:
                    case Events():
                        await self._take(value.events)
                    case Progress():
                        self._advance(value.revision)
                    case Interrupted():
                        self.is_interrupted = True
                        self._logger.info("the store's watch was interrupted", why=value.reason)
                    case Resumed():
                        self.is_interrupted = False
                    case Compacted():
                        self._logger.warning(
                            "the store has compacted unread changes: reloading everything",
                            oldest=value.oldest,
                        )
                        return
                    case Restored():
                        self._logger.warning(
                            "the store went back to an older state: reloading everything",
                            revision=value.revision,
                        )
                        return
                    case _:
                        pass
                if not self.is_loaded:
                    return
        finally:
            self.is_loaded = False
            self.is_interrupted = False
            self._watch = None
            watch.cancel()

    async def _take(self, events: Sequence[Event]) -> None:
        """Apply events; those of one revision together."""
        if self._transformers is not None:
            await self._transformers.prepare(each.kv.value for each in events)
        size = len(events)
        start = 0
        while start < size:
            end = min(start + SLICE_EVENTS, size)
            while end < size and events[end].kv.mod_revision == events[end - 1].kv.mod_revision:
                end += 1
            for changed in self.on_change:
                changed(events[start].kv.mod_revision)
            self._apply(events[start:end] if end - start < size else events)
            self.changed_at = events[end - 1].kv.mod_revision
            self._advance(self.changed_at)
            start = end
            if start < size:
                await asyncio.sleep(0)

    def _apply(self, events: Sequence[Event]) -> None:
        arrived: dict[str, list[tuple[int, str, Record | None]]] = {}
        for event in events:
            kind, kv, _ = event
            location = self.prefixes.split(kv.key)
            if location is None:
                continue
            prefix, key = location
            revision = kv.mod_revision
            if self._joining and prefix in self._joining:
                self._joining[prefix].append(event)
                continue
            if self._read_at and revision <= self._read_at.get(prefix, 0):
                continue
            record: Record | None = None
            if kind == EventKind.PUT:
                collection = self.collections[prefix]
                record = collection.own(key, revision) or collection.read(
                    key, kv.value, revision, kv.lease
                )
            arrived.setdefault(prefix, []).append((revision, key, record))
        for prefix, changed in arrived.items():
            self.collections[prefix].apply(changed)

    def _advance(self, revision: int) -> None:
        self.revision = max(revision, self.revision) if self.is_loaded else revision
        if self._read_at:
            ahead = {each: at for each, at in self._read_at.items() if at > self.revision}
            self._read_at = ahead
        waiting = self._waiting
        while waiting and waiting[0][0] <= self.revision:
            future = heapq.heappop(waiting)[2]
            if not future.done():
                future.set_result(None)

    def _ask_soon(self, delay_s: float) -> None:
        """Request the watch's progress soon, unless the awaited revision arrives first."""
        if self._asking is None:
            self._asking = asyncio.get_running_loop().call_later(delay_s, self._ask)

    def _ask(self) -> None:
        self._asking = None
        while self._waiting and self._waiting[0][2].done():
            heapq.heappop(self._waiting)
        if self._waiting:
            if self._watch is not None:
                self._watch.request_progress()
            self._ask_soon(_ASK_AGAIN_S)
