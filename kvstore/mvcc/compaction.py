"""Compaction: removing, in bounded slices, the records no read can ask for any more.

After a compaction at K these records are left (etcd 3.5.16 and later):

    main > K      all
    main <= K     of each key the newest one, unless it is a tombstone before K

    key a: put 2, put 4, put 9     K = 5 →  4, 9
    key b: put 3, deleted 5        K = 5 →  the tombstone 5; K = 6 → nothing

Two rows of the meta table tell how far it got: scheduledCompactRev is written with the decision,
finishedCompactRev when the last record is gone. A start that finds the first ahead of the second
runs that compaction again from the beginning; what is left to remove is then less.

Compactions run one after the other. Besides the running one at most one waits: a later one takes
the place of the one that waits, which loses nothing, since no hash is remembered of a compaction
that was scheduled before the previous one finished. (It is queued if a hash job stands between.)

An open hash job holds back compactions scheduled after it began (`hold`, `release`), because they
would take records from under it.
"""

from collections import Counter, deque
from typing import Final

from kvstore.failpoints import hit
from kvstore.mvcc.backend import Backend, Table
from kvstore.mvcc.key_index import KeyIndex
from kvstore.mvcc.record_hash import HashCache, HashResult, RecordHash
from kvstore.mvcc.records import RecordPager, Records
from kvstore.mvcc.revision import parse_revision_key, revision_key
from kvstore.wire.splice import kv_key

SCHEDULED: Final = b"scheduledCompactRev"
FINISHED: Final = b"finishedCompactRev"


def read_mark(backend: Backend, name: bytes) -> int | None:
    """Return the main revision in a compaction mark of the meta table, None if it is not there."""
    row = backend.get(Table.META, name)
    return None if row is None else parse_revision_key(row)[0]


class _Task:
    """One compaction: where it stands, and its hash if that will be remembered."""

    __slots__ = ("hasher", "pager", "previous", "revision")

    def __init__(self, revision: int, previous: int | None) -> None:
        self.revision = revision
        self.previous = -1 if previous is None else previous
        self.hasher = None if previous is None else RecordHash(previous, revision)
        self.pager: RecordPager | None = None  # once it runs


class Compactor:
    """The compactions that are due; the law is at the head of this module."""

    __slots__ = ("_backend", "_cache", "_holds", "_index", "_records", "_tasks", "removed")

    def __init__(
        self, backend: Backend, records: Records, index: KeyIndex, cache: HashCache
    ) -> None:
        self._backend = backend
        self._records = records
        self._index = index
        self._cache = cache
        self._tasks: deque[_Task] = deque()
        self._holds: Counter[int] = Counter()  # compacted revision a hash job began at → jobs
        self.removed = 0  # records, since the start

    @property
    def pending(self) -> bool:
        """Tell whether a compaction runs or waits."""
        return bool(self._tasks)

    def schedule(self, revision: int, previous: int | None) -> None:
        """Make a compaction due; previous: the one compacted before, None: remember no hash."""
        if len(self._tasks) > 1 and self._tasks[-1].revision not in self._holds:
            self._tasks.pop()
        self._tasks.append(_Task(revision, previous))

    def due_before(self, compact_revision: int) -> bool:
        """Tell whether a compaction at or below compact_revision is not finished."""
        return bool(self._tasks) and self._tasks[0].revision <= compact_revision

    def hold(self, compact_revision: int) -> None:
        """Hold back compactions above compact_revision until release()."""
        self._holds[compact_revision] += 1

    def release(self, compact_revision: int) -> None:
        """Take one hold back."""
        self._holds[compact_revision] -= 1
        self._holds += Counter()  # drops what came to zero

    def step(self, rows_max: int) -> bool:
        """Look at up to rows_max records; return True when no compaction is due any more.

        Does nothing while an open hash job holds the next compaction back.
        """
        if not self._tasks:
            return True
        task = self._tasks[0]
        if self._holds and min(self._holds) < task.revision:
            return False
        pager = task.pager
        if pager is None:
            end = revision_key(task.revision + 1)
            task.pager = pager = self._records.pager(b"", end)
        self._sweep(task, pager, rows_max)
        if pager.done:
            self._finish(task)
        return not self._tasks

    def _sweep(self, task: _Task, pager: RecordPager, rows_max: int) -> None:
        compact_key, revision, hasher = self._index.compact_key, task.revision, task.hasher
        doomed: list[bytes] = []
        for revkey, kv in pager.page(rows_max):
            kept = compact_key(kv_key(kv), revision) == revkey
            if not kept:
                doomed.append(revkey)
            if hasher is not None:
                hasher.add(revkey, kv, kept)
        if hasher is not None:
            hasher.settle()
        hit("compactAfterAcquiredBatchTxLock")
        hit("compactBeforeCommitBatch")
        self._records.delete_many(doomed)
        hit("compactAfterCommitBatch")
        self.removed += len(doomed)

    def _finish(self, task: _Task) -> None:
        hit("compactBeforeSetFinishedCompact")
        self._backend.put(Table.META, FINISHED, revision_key(task.revision))
        hit("compactAfterSetFinishedCompact")
        if task.hasher is not None:
            value, other, revision = task.hasher.value(), task.hasher.other(), task.revision
            self._cache.add(HashResult(value, task.previous, revision, revision, other))
        self._tasks.popleft()
