"""A Store in memory: revisions, history, transactions, watches; and faults on demand.

store = MemoryStore()
await store.put(b"/registry/pods/a/b", b"…")
store.failing = UnavailableError("no leader")      every call fails until it is None
store.restore()                                    the store is as it was at revision 1
"""

from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kvstore.client.errors import CompactedError, FutureRevisionError, StoreError
from kvstore.client.store import PAGE_KEYS
from kvstore.client.values import (
    Compacted,
    Compare,
    Delete,
    DeleteResult,
    Event,
    EventKind,
    Events,
    GetResult,
    KeyValue,
    LeaseResult,
    Op,
    OpResult,
    Progress,
    Put,
    PutResult,
    Range,
    RangeResult,
    Relation,
    Restored,
    SortOrder,
    SortTarget,
    Started,
    StatusResult,
    Target,
    TxnResult,
)
from kvstore.client.watch import Watch

if TYPE_CHECKING:
    import asyncio

History = dict[bytes, list[tuple[int, KeyValue | None]]]


class MemoryStore:
    """A store that one test uses."""

    def __init__(self) -> None:
        """Begin empty, at revision 1 as etcd does."""
        self.revision = 1
        self.compacted = 0
        self.failing: StoreError | None = None
        self.stalled: asyncio.Event | None = None
        """Reads of the current revision wait for it."""
        self.leases: dict[int, int] = {}
        self.calls: list[str] = []
        """The names of what was asked for."""
        self._history: History = {}
        self._watches: list[Watch] = []

    async def __aenter__(self) -> Self:
        """Do nothing."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing."""

    # Reads.

    async def get(
        self,
        key: bytes,
        *,
        revision: int = 0,
        serializable: bool = False,
        timeout_s: float | None = None,
    ) -> GetResult:
        """Return one key."""
        self._called("get")
        return GetResult(self.revision, self._at(key, self._checked(revision)))

    async def range(
        self,
        key: bytes,
        end: bytes,
        *,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
        count_only: bool = False,
        serializable: bool = False,
        sort_order: SortOrder = SortOrder.NONE,
        sort_target: SortTarget = SortTarget.KEY,
        timeout_s: float | None = None,
    ) -> RangeResult:
        """Return keys of a range."""
        self._called("range")
        return self._range(Range(key, end, limit, revision, sort_order=sort_order))

    async def pages(
        self,
        key: bytes,
        end: bytes,
        *,
        page_keys: int = PAGE_KEYS,
        revision: int = 0,
        keys_only: bool = False,
        serializable: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[RangeResult, None]:
        """Yield a range page by page."""
        while True:
            self._called("page")
            found = self._range(Range(key, end, page_keys, revision))
            revision = revision or found.revision
            yield found
            if not found.more:
                return
            key = found.kvs[-1].key + b"\0"

    async def current_revision(self, *, timeout_s: float | None = None) -> int:
        """Return the revision."""
        self._called("current_revision")
        if self.stalled is not None:
            await self.stalled.wait()
        return self.revision

    async def status(self, *, timeout_s: float | None = None) -> StatusResult:
        """Return how the store stands."""
        self._called("status")
        return StatusResult(self.revision, "3.7.1", 1, 1, 1, 1, 1, 1, 4096, 1024, False, [])

    # Changes.

    async def txn(
        self,
        compares: Sequence[Compare],
        success: Sequence[Op],
        failure: Sequence[Op] = (),
        *,
        timeout_s: float | None = None,
    ) -> TxnResult:
        """Do a transaction."""
        self._called("txn")
        holds = all(map(self._holds, compares))
        operations = success if holds else failure
        changes = any(isinstance(each, (Put, Delete)) for each in operations)
        revision = self.revision + changes
        events: list[Event] = []
        results: list[OpResult] = [self._do(each, revision, events) for each in operations]
        if events:
            self.revision = revision
            self._tell(events)
        return TxnResult(self.revision, holds, results)

    async def put(
        self,
        key: bytes,
        value: bytes,
        *,
        lease: int = 0,
        prev_kv: bool = False,
        timeout_s: float | None = None,
    ) -> PutResult:
        """Set a key."""
        done = await self.txn([], [Put(key, value, lease)])
        return PutResult(done.revision, None)

    async def delete(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        prev_kv: bool = False,
        timeout_s: float | None = None,
    ) -> DeleteResult:
        """Delete keys."""
        done = await self.txn([], [Delete(key, end)])
        result = done.results[0]
        assert isinstance(result, DeleteResult)
        return result._replace(revision=self.revision)

    async def compact(
        self, revision: int, *, physical: bool = False, timeout_s: float | None = None
    ) -> int:
        """Give up history."""
        self._called("compact")
        if revision <= self.compacted:
            raise CompactedError("etcdserver: mvcc: required revision has been compacted")
        self.compacted = revision
        return self.revision

    async def lease_grant(
        self, ttl_s: int, *, lease: int = 0, timeout_s: float | None = None
    ) -> LeaseResult:
        """Make a lease; it never ends by itself."""
        self._called("lease_grant")
        lease = lease or len(self.leases) + 1
        self.leases[lease] = ttl_s
        return LeaseResult(self.revision, lease, ttl_s)

    async def lease_keep_alive(self, lease: int, *, timeout_s: float | None = None) -> LeaseResult:
        """Tell of a lease."""
        return LeaseResult(self.revision, lease, self.leases[lease])

    async def lease_revoke(self, lease: int, *, timeout_s: float | None = None) -> int:
        """End a lease and its keys."""
        del self.leases[lease]
        held = [key for key in self._history if (kv := self._at(key, 0)) and kv.lease == lease]
        await self.txn([], [Delete(key) for key in held])
        return self.revision

    # Watches.

    def watch(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        start_revision: int = 0,
        prev_kv: bool = False,
        no_put: bool = False,
        no_delete: bool = False,
        progress_notify: bool = False,
    ) -> Watch:
        """Watch a range."""
        self._called("watch")
        watch = Watch(
            self,  # it is its own session
            key,
            end,
            start_revision,
            prev_kv=prev_kv,
            filters=(),
            progress_notify=progress_notify,
        )
        if start_revision and start_revision <= self.compacted:
            watch.push(Compacted(self.compacted))
            watch.finish(None)
            return watch
        watch.push(Started(self.revision))
        if start_revision:
            for each in range(start_revision, self.revision + 1):
                self._tell_one(watch, self._events_of(each))
        self._watches.append(watch)
        return watch

    def consume(self, watch: Watch, size: int) -> None:
        """Know that a reader took something."""

    def remove(self, watch: Watch) -> None:
        """Forget a watch."""
        if watch in self._watches:
            self._watches.remove(watch)

    def request_progress(self, watch: Watch) -> None:
        """Answer how far the store is."""
        watch.push(Progress(self.revision))

    # Faults.

    def break_watches(self, error: StoreError) -> None:
        """Let all watches fail."""
        for each in list(self._watches):
            each.finish(error)
        self._watches.clear()

    def restore(self, revision: int = 1) -> None:
        """Go back to how it was at a revision."""
        self.revision = revision
        self._history = {
            key: kept
            for key, versions in self._history.items()
            if (kept := [each for each in versions if each[0] <= revision])
        }
        for each in list(self._watches):
            each.push(Restored(revision))
            each.finish(None)
        self._watches.clear()

    # The inside.

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.failing is not None:
            raise self.failing

    def _checked(self, revision: int) -> int:
        if revision and revision < self.compacted:
            raise CompactedError("etcdserver: mvcc: required revision has been compacted")
        if revision > self.revision:
            raise FutureRevisionError("etcdserver: mvcc: required revision is a future revision")
        return revision

    def _at(self, key: bytes, revision: int) -> KeyValue | None:
        found = None
        for changed, kv in self._history.get(key, ()):
            if not revision or changed <= revision:
                found = kv
        return found

    def _range(self, asked: Range) -> RangeResult:
        revision = self._checked(asked.revision)
        end = asked.end or asked.key + b"\0"
        keys = sorted(each for each in self._history if asked.key <= each < end)
        if asked.sort_order == SortOrder.DESCENDING:
            keys.reverse()
        found = [kv for each in keys if (kv := self._at(each, revision)) is not None]
        limit = asked.limit or len(found)
        return RangeResult(self.revision, found[:limit], len(found) > limit, len(found))

    def _holds(self, compare: Compare) -> bool:
        kv = self._at(compare.key, 0)
        actual: int | bytes
        if compare.target == Target.VALUE:
            actual = kv.value if kv is not None else b""
        elif kv is None:
            actual = 0
        elif compare.target == Target.VERSION:
            actual = kv.version
        else:
            actual = kv.mod_revision
        assert compare.relation == Relation.EQUAL, "nothing else is asked for"
        return actual == compare.operand

    def _do(self, operation: Op, revision: int, events: list[Event]) -> OpResult:
        match operation:
            case Put(key, value, lease):
                self._put(key, value, lease, revision, events)
                return PutResult(revision, None)
            case Delete(key, end):
                return self._delete(key, end, revision, events)
            case Range():
                return self._range(operation)
            case _:
                raise NotImplementedError(operation)

    def _put(
        self, key: bytes, value: bytes, lease: int, revision: int, events: list[Event]
    ) -> None:
        before = self._at(key, 0)
        created = before.create_revision if before is not None else revision
        version = before.version + 1 if before is not None else 1
        kv = KeyValue(key, value, created, revision, version, lease)
        self._history.setdefault(key, []).append((revision, kv))
        events.append(Event(EventKind.PUT, kv, before))

    def _delete(self, key: bytes, end: bytes, revision: int, events: list[Event]) -> DeleteResult:
        gone = self._range(Range(key, end)).kvs
        for before in gone:
            self._history[before.key].append((revision, None))
            kv = KeyValue(before.key, b"", 0, revision, 0, 0)
            events.append(Event(EventKind.DELETE, kv, before))
        return DeleteResult(revision, len(gone), gone)

    def _events_of(self, revision: int) -> list[Event]:
        found: list[Event] = []
        for key, versions in self._history.items():
            for place, (changed, kv) in enumerate(versions):
                if changed == revision:
                    before = versions[place - 1][1] if place else None
                    kind = EventKind.DELETE if kv is None else EventKind.PUT
                    now = kv or KeyValue(key, b"", 0, revision, 0, 0)
                    found.append(Event(kind, now, before))
        return found

    def _tell(self, events: list[Event]) -> None:
        for each in list(self._watches):
            self._tell_one(each, events)

    def _tell_one(self, watch: Watch, events: list[Event]) -> None:
        end = watch.end or watch.key + b"\0"
        found = [each for each in events if watch.key <= each.kv.key < end]
        if found:
            watch.push(Events(self.revision, found))
