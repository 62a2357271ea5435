"""The multi-version store: entries write to it, reads see it at any revision.

    begin ─ put / delete_range ... ─ end          one entry, at most one main revision
       └ range, kv, current see the writes so far

    main 7 = { sub 0: put a,  sub 1: delete b,  sub 2: put c }

The current revision advances in end(), and only if something changed; a new store is at 1. Records
are buffered until flush(), which the node calls once a batch; reads see buffered records, too. All
calls are made by the one thread that runs the turn.

Range and compaction return refusals as values. An inconsistent store raises CorruptionError.

Not done here: leases (their ids are stored, not attached), quotas, permissions, watchers.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import Final

from kvstore.backend import Backend, Table
from kvstore.errors import COMPACTED, FUTURE_REVISION, Refusal
from kvstore.failpoints import hit
from kvstore.mvcc.compaction import FINISHED, SCHEDULED, Compactor, read_mark
from kvstore.mvcc.event import DELETE, PUT, deletion_kv
from kvstore.mvcc.event import Event as Event
from kvstore.mvcc.hashing import HashAllJob, HashJob
from kvstore.mvcc.history import read_history
from kvstore.mvcc.key_index import Current, KeyIndex, Numbers
from kvstore.mvcc.ranges import RangeReader
from kvstore.mvcc.ranges import RangeResult as RangeResult
from kvstore.mvcc.rebuild import rebuild
from kvstore.mvcc.record_hash import HashCache, HashResult
from kvstore.mvcc.records import Records
from kvstore.mvcc.revision import MARK, SEPARATOR, pack, revision_key
from kvstore.types import LeaseId, MainRevision
from kvstore.wire.columns import encode_puts
from kvstore.wire.splice import encode_kv, encode_tombstone

FIRST_REVISION: Final[MainRevision] = 1
NEVER_COMPACTED: Final[MainRevision] = -1

_new_tuple: Final = tuple.__new__


class Run:
    """The columns of consecutive entries that are one put each; see Store.stage_put()."""

    __slots__ = ("creates", "keys", "leases", "replaced", "values", "versions")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.leases: list[LeaseId] | None = None  # None: all are 0
        self.creates: list[MainRevision] = []
        self.versions: list[int] = []
        self.replaced: list[bytes | None] = []  # the revision keys of the values before

    def add_lease(self, lease: LeaseId) -> None:
        """Add the lease of the key that was added last."""
        if self.leases is None:
            self.leases = [0] * (len(self.keys) - 1)
        self.leases.append(lease)


class Store:
    """All revisions of all keys; see the module's text."""

    def __init__(self, backend: Backend) -> None:
        """Use the tables of backend; restore() must be called first if it has rows."""
        self.revision: MainRevision = FIRST_REVISION
        self.compacted: MainRevision = NEVER_COMPACTED
        self._backend = backend
        self._records = Records(backend)
        self._hashes = HashCache()
        self._entry: list[Event] | None = None  # the events so far, between begin and end
        self.delete_count = 0  # deletions requested, also of keys that do not exist
        self.deleted_keys = 0
        self._use_index(KeyIndex())

    def _use_index(self, index: KeyIndex) -> None:
        self._index = index
        self._reader = RangeReader(self._records, index)
        self._compactor = Compactor(self._backend, self._records, index, self._hashes)

    # start

    def restore(self) -> list[tuple[bytes, LeaseId]]:
        """Rebuild everything from the backend; return (key, lease) of the live keys with a lease.

        A compaction that was scheduled and not finished becomes due again. If the backend's rows
        were replaced, open hash jobs must be closed.
        """
        self._records.fresh.clear()
        self._hashes = HashCache()
        index, leases, last_main = rebuild(self._records)
        self._use_index(index)
        finished = read_mark(self._backend, FINISHED)
        scheduled = read_mark(self._backend, SCHEDULED)
        self.compacted = NEVER_COMPACTED if finished is None else finished
        self.revision = max(FIRST_REVISION, last_main, self.compacted, scheduled or 0)
        if scheduled is not None and scheduled > self.compacted:
            self.compacted = scheduled
            self._compactor.schedule(scheduled, None)
        return list(leases.items())

    # reads

    @property
    def written_bytes(self) -> int:
        """The size of all KeyValues written since the start."""
        return self._records.written_bytes

    @property
    def txn_revision(self) -> MainRevision:
        """The revision reads see: that of the open entry once it has written, else the current."""
        return self.revision + 1 if self._entry else self.revision

    @property
    def key_count(self) -> int:
        """The number of keys at the current revision."""
        return len(self._index.live)

    def range(
        self,
        key: bytes,
        range_end: bytes,
        *,
        revision: MainRevision = 0,
        limit: int = 0,
        count_only: bool = False,
        keys_only: bool = False,
        with_count: bool = True,
    ) -> RangeResult | Refusal:
        """Read a range at a revision (<= 0: the current one), up to limit KeyValues (<= 0: all).

        range_end: empty for the single key, b"\\0" for every key >= key, else exclusive. keys_only
        omits value and lease. The count is that of the whole range; with_count=False avoids its
        cost at past revisions and counts only what is returned.
        """
        now = self.txn_revision
        if revision > now:
            return FUTURE_REVISION
        reader = self._reader
        kvs: list[bytes] = []
        limit = max(limit, 0)
        if revision <= 0 or revision == now:
            if not count_only:
                read = reader.keys_only_now if keys_only else reader.kvs_now
                kvs = read(key, range_end, limit)
            if count_only or (with_count and len(kvs) == limit and range_end):
                return RangeResult(kvs, reader.count_now(key, range_end), now)
            return RangeResult(kvs, len(kvs), now)
        if revision < self.compacted:
            return COMPACTED
        if not count_only:
            read_at = reader.keys_only_at if keys_only else reader.kvs_at
            kvs = read_at(key, range_end, revision, limit)
        if count_only or (with_count and len(kvs) == limit and range_end):
            return RangeResult(kvs, reader.count_at(key, range_end, revision, now), now)
        return RangeResult(kvs, len(kvs), now)

    def range_keys(self, key: bytes, range_end: bytes, limit: int) -> tuple[list[bytes], int]:
        """Return (the live keys of a range, up to limit (0: all), the count of the whole range)."""
        reader = self._reader
        keys = reader.keys_now(key, range_end, limit and limit + 1)
        count = len(keys)
        if 0 < limit < count:
            count = reader.count_now(key, range_end)
            del keys[limit:]
        return keys, count

    def fields(self, keys: list[bytes], head: bytes, tail: bytes) -> bytes:
        """Return head, the KeyValues of live keys as fields 2 of a message, and tail.

        For a response that needs no single KeyValue this costs less than range().
        """
        return self._reader.fields_now(keys, head, tail)

    def current(self, key: bytes) -> Current | None:
        """Return (create, mod, version, revision key) of a live key; None for any other."""
        return self._index.current(key)

    def numbers(self, key: bytes) -> Numbers | None:
        """Return (create, mod, version) of a live key; None for any other."""
        return self._index.numbers(key)

    def current_revkey(self, key: bytes) -> bytes | None:
        """Return the revision key of the record of a live key; None for any other."""
        return self._index.current_revkey(key)

    def records(self, revkeys: Iterable[bytes]) -> list[bytes]:
        """Return the encoded KeyValues of records that are in the index, in this order."""
        return list(map(self._records.get_indexed, revkeys))

    def kv(self, key: bytes) -> bytes | None:
        """Return the encoded KeyValue of a live key; None for any other."""
        revkey = self._index.current_revkey(key)
        return None if revkey is None else self._records.get_indexed(revkey)

    def kvs(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the same as kv() for each of keys, in one call of the backend."""
        live = self._index.live
        known = [key for key in keys if key in live]
        found = self._records.get_many_indexed(self._index.current_revkeys(known))
        if len(found) == len(keys):
            return found  # type: ignore[return-value]  # it is a new list
        next_kv = iter(found).__next__
        return [next_kv() if key in live else None for key in keys]

    def sample_sizes(self, count: int, offset: int) -> list[tuple[bytes, int]]:
        """Return up to count live keys, evenly spaced, with the sizes of their KeyValues."""
        keys = self._index.sample(count, offset)
        revkeys = self._index.current_revkeys(keys)
        return list(zip(keys, map(len, self._records.get_many_indexed(revkeys)), strict=True))

    def value_of(self, revkey: bytes) -> bytes | None:
        """Return the encoded KeyValue of a record; None if it does not exist or was compacted."""
        return self._records.get(revkey)

    def history(
        self, from_main: MainRevision, to_main: MainRevision, limit_rows: int, limit_bytes: int
    ) -> tuple[list[Event], MainRevision]:
        """Return (events with from_main <= main < to_main in order, the next main to read).

        At least one whole main revision, and never a part of one; it stops at the first boundary
        at or beyond a limit. from_main < compacted is the caller's error: ValueError.
        """
        if from_main < self.compacted:
            raise ValueError(f"history from {from_main}, but compacted up to {self.compacted}")
        return read_history(
            self._records,
            self._index,
            compacted=self.compacted,
            from_main=from_main,
            to_main=to_main,
            limit_rows=limit_rows,
            limit_bytes=limit_bytes,
        )

    # writes

    def put_one(self, key: bytes, value: bytes, lease: LeaseId) -> Event:
        """Apply an entry that is one put: begin, put and end in one."""
        self.revision = main = self.revision + 1
        create, version, prev = self._index.put(key, main, 0)
        kv = encode_kv(key, create, main, version, value, lease)
        self._records.fresh[pack(main, SEPARATOR, 0)] = kv
        event: Event = tuple.__new__(Event, (PUT, key, kv, main, 0, prev))  # as in put_run
        return event

    def put_run(self, keys: list[bytes], values: list[bytes]) -> list[Event]:
        """Apply entries of one put each, without leases; the same as put_one()."""
        first = self.revision + 1
        self.revision += len(keys)
        creates, versions, replaced = self._index.put_run(keys, first)
        return self._add_run(keys, values, None, creates, versions, replaced, first)

    def stage_put(self, run: Run, key: bytes, value: bytes, lease: LeaseId) -> MainRevision:
        """Apply an entry of one put as part of a run, which end_run() ends; return its revision.

        Meanwhile numbers(), current() and current_revkey() include it, and nothing reads its value.
        """
        self.revision = main = self.revision + 1
        create, version, replaced = self._index.put(key, main, 0)
        run.keys.append(key)
        run.values.append(value)
        run.creates.append(create)
        run.versions.append(version)
        run.replaced.append(replaced)
        if lease or run.leases is not None:
            run.add_lease(lease)
        return main

    def end_run(self, run: Run) -> list[Event]:
        """End a run: return the events of its puts."""
        keys = run.keys
        if not keys:
            return []
        first = self.revision + 1 - len(keys)
        return self._add_run(
            keys, run.values, run.leases, run.creates, run.versions, run.replaced, first
        )

    def _add_run(
        self,
        keys: list[bytes],
        values: list[bytes],
        leases: list[LeaseId] | None,
        creates: list[MainRevision],
        versions: list[int],
        replaced: list[bytes | None],
        first: MainRevision,
    ) -> list[Event]:
        """Add the records of puts at consecutive revisions; return their events."""
        revkeys, kvs = encode_puts(keys, values, leases, (creates, versions), first)
        self._records.fresh.update(zip(revkeys, kvs, strict=True))
        mains = range(first, first + len(keys))
        # The hot path of every write: a third of the cost of Event(...) for each.
        fields = zip(repeat(PUT), keys, kvs, mains, repeat(0), replaced, strict=False)
        return list(map(_new_tuple, repeat(Event), fields))

    def begin(self) -> None:
        """Open an entry."""
        if self._entry is not None:
            raise RuntimeError("begin() within an entry")
        self._entry = []

    def put(self, key: bytes, value: bytes, lease: LeaseId) -> Event:
        """Write a value within an entry; prev of the event may be a write of the same entry."""
        events = self._open_entry()
        main, sub = self.revision + 1, len(events)
        create, version, prev = self._index.put(key, main, sub)
        kv = encode_kv(key, create, main, version, value, lease)
        revkey = pack(main, SEPARATOR, sub)
        self._records.fresh[revkey] = kv
        return self._note(Event(PUT, key, kv, main, sub, prev), revkey)

    def delete_range(self, key: bytes, range_end: bytes) -> list[Event]:
        """Delete the live keys of a range within an entry, ascending; see put() for prev."""
        self._open_entry()
        deleted = [self._delete(each) for each in self._reader.keys_now(key, range_end)]
        self.delete_count += 1
        self.deleted_keys += len(deleted)
        return deleted

    def end(self) -> list[Event]:
        """Close the entry; return its events. The revision advances if there are any.

        prev of these events is the value before the whole entry, which is what watchers get.
        """
        events = self._open_entry()
        self._entry = None
        if events:
            self.revision += 1
        return events

    def _delete(self, key: bytes) -> Event:
        main, sub = self.revision + 1, len(self._open_entry())
        prev = self._index.delete(key, main, sub)
        kv = encode_tombstone(key)
        revkey = pack(main, SEPARATOR, sub)
        self._records.fresh[revkey + MARK] = kv
        return self._note(Event(DELETE, key, deletion_kv(kv, main), main, sub, prev), revkey)

    def _note(self, event: Event, revkey: bytes) -> Event:
        """Add an event for end(), whose prev is never a value written by the same entry."""
        prev = event.prev
        if prev is not None and prev[:8] == revkey[:8]:
            before = self._index.revkey_at(event.key, event.main - 1)
            self._open_entry().append(event._replace(prev=before))
        else:
            self._open_entry().append(event)
        return event

    def _open_entry(self) -> list[Event]:
        if self._entry is None:
            raise RuntimeError("a write outside begin() and end()")
        return self._entry

    def flush(self) -> None:
        """Move the buffered records into the backend; makes nothing durable."""
        self._records.flush()

    # upkeep

    @property
    def compacted_records(self) -> int:
        """The number of records that compactions have removed since the start."""
        return self._compactor.removed

    @property
    def compaction_pending(self) -> bool:
        """Whether a compaction is due or running."""
        return self._compactor.pending

    def compact(self, revision: MainRevision) -> Refusal | None:
        """Compact at revision; the records are removed by compaction_step()."""
        if revision <= self.compacted:
            return COMPACTED
        if revision > self.revision:
            return FUTURE_REVISION
        clean = read_mark(self._backend, SCHEDULED) == read_mark(self._backend, FINISHED)
        hit("compactBeforeCommitScheduledCompact")
        self._backend.put(Table.META, SCHEDULED, revision_key(revision))
        hit("compactAfterCommitScheduledCompact")
        self._compactor.schedule(revision, self.compacted if clean else None)
        self.compacted = revision
        return None

    def compaction_step(self, rows_max: int) -> bool:
        """Read up to rows_max records and remove the compacted ones; True when nothing is due.

        Does nothing and returns False while a hash job that began before the compaction is open.
        """
        return self._compactor.step(rows_max)

    def start_hash(self, revision: MainRevision) -> HashJob | HashResult | Refusal:
        """Begin HashKV at a revision (0: the current one), or return its cached result.

        While the job is open, later compactions wait: step it to its end or close it.
        """
        cached = self._hashes.get(revision)
        if cached is not None:
            return cached._replace(revision=self.revision)
        if 0 < revision < self.compacted:
            return COMPACTED
        if revision > self.revision:
            return FUTURE_REVISION
        return HashJob(
            self._compactor,
            self._records,
            self._index,
            hash_revision=revision or self.revision,
            compact_revision=self.compacted,
            store_revision=self.revision,
        )

    def hash_all(self) -> HashAllJob:
        """Begin the hash of all tables at the current revision; see start_hash for the job."""
        return HashAllJob(
            self._compactor,
            self._backend,
            self._records,
            compact_revision=self.compacted,
            revision=self.revision,
        )

    def compaction_hashes(self) -> list[HashResult]:
        """Return the cached hashes of finished compactions, the newest first."""
        return [each._replace(revision=self.revision) for each in self._hashes.newest_first()]
