"""Compaction: removes, in bounded slices, the records that no read can need any more.

After a compaction at K these records are left (etcd 3.5.16 and later):

    main > K      all
    main <= K     of each key the newest one, unless it is a tombstone before K

    key a: put 2, put 4, put 9     K = 5 →  4, 9
    key b: put 3, deleted 5        K = 5 →  the tombstone 5; K = 6 → nothing

Two rows of the meta table record the progress: scheduledCompactRev is written when a compaction is
scheduled, finishedCompactRev when the last record is removed. If the first is ahead of the second
at a start, that compaction runs again from the beginning; it then has less to remove.

Compactions run one after the other. Besides the running one at most one waits: a later one replaces
the waiting one, which loses nothing, since no hash is cached of a compaction that was scheduled
before the previous one finished. (If a hash job depends on the waiting one, both are kept.)

An open hash job blocks compactions scheduled after it began (`pin`, `unpin`), because they would
remove records that it reads.
"""

from collections import Counter, deque
from typing import Final

from kvstore.backend import Backend, Table
from kvstore.failpoints import hit
from kvstore.mvcc.key_index import KeyIndex
from kvstore.mvcc.record_hash import HashCache, HashResult, RecordHash
from kvstore.mvcc.records import RecordPager, Records
from kvstore.mvcc.revision import parse_revision_key, revision_key
from kvstore.wire.splice import kv_key

SCHEDULED: Final = b"scheduledCompactRev"
FINISHED: Final = b"finishedCompactRev"


def read_mark(backend: Backend, name: bytes) -> int | None:
    """Return the main revision in a compaction mark of the meta table; None if there is none."""
    row = backend.get(Table.META, name)
    return None if row is None else parse_revision_key(row)[0]


class _Compaction:
    """One compaction: its progress, and its hash if that is to be cached."""

    __slots__ = ("hasher", "pager", "previous", "revision")

    def __init__(self, revision: int, previous: int | None) -> None:
        self.revision = revision
        self.previous = -1 if previous is None else previous
        self.hasher = None if previous is None else RecordHash(previous, revision)
        self.pager: RecordPager | None = None  # once it runs


class Compactor:
    """The compactions that are due; see the module's text."""

    __slots__ = ("_backend", "_cache", "_due", "_index", "_pins", "_records", "removed")

    def __init__(
        self, backend: Backend, records: Records, index: KeyIndex, cache: HashCache
    ) -> None:
        self._backend = backend
        self._records = records
        self._index = index
        self._cache = cache
        self._due: deque[_Compaction] = deque()
        self._pins: Counter[int] = Counter()  # compacted revision at the start of hash jobs → jobs
        self.removed = 0  # records, since the start

    @property
    def pending(self) -> bool:
        """Return whether a compaction runs or waits."""
        return bool(self._due)

    def schedule(self, revision: int, previous: int | None) -> None:
        """Schedule a compaction; previous: the revision compacted before, None: cache no hash."""
        if len(self._due) > 1 and self._due[-1].revision not in self._pins:
            self._due.pop()
        self._due.append(_Compaction(revision, previous))

    def due_before(self, compact_revision: int) -> bool:
        """Return whether a compaction at or below compact_revision is not finished."""
        return bool(self._due) and self._due[0].revision <= compact_revision

    def pin(self, compact_revision: int) -> None:
        """Block compactions above compact_revision until unpin()."""
        self._pins[compact_revision] += 1

    def unpin(self, compact_revision: int) -> None:
        """Remove one pin."""
        self._pins[compact_revision] -= 1
        self._pins += Counter()  # removes zero counts

    def step(self, rows_max: int) -> bool:
        """Read up to rows_max records; return True when no compaction is due any more.

        Does nothing while an open hash job blocks the next compaction.
        """
        if not self._due:
            return True
        compaction = self._due[0]
        if self._pins and min(self._pins) < compaction.revision:
            return False
        pager = compaction.pager
        if pager is None:
            end = revision_key(compaction.revision + 1)
            compaction.pager = pager = self._records.pager(b"", end)
        self._sweep(compaction, pager, rows_max)
        if pager.done:
            self._finish(compaction)
        return not self._due

    def _sweep(self, compaction: _Compaction, pager: RecordPager, rows_max: int) -> None:
        compact_key, revision = self._index.compact_key, compaction.revision
        hasher = compaction.hasher
        removed: list[bytes] = []
        for revkey, kv in pager.page(rows_max):
            kept = compact_key(kv_key(kv), revision) == revkey
            if not kept:
                removed.append(revkey)
            if hasher is not None:
                hasher.add(revkey, kv, kept)
        if hasher is not None:
            hasher.flush()
        hit("compactAfterAcquiredBatchTxLock")
        hit("compactBeforeCommitBatch")
        self._records.delete_many(removed)
        hit("compactAfterCommitBatch")
        self.removed += len(removed)

    def _finish(self, compaction: _Compaction) -> None:
        hit("compactBeforeSetFinishedCompact")
        revision, hasher = compaction.revision, compaction.hasher
        self._backend.put(Table.META, FINISHED, revision_key(revision))
        hit("compactAfterSetFinishedCompact")
        if hasher is not None:
            value, alternative = hasher.value(), hasher.alternative()
            self._cache.add(HashResult(value, compaction.previous, revision, revision, alternative))
        self._due.popleft()
