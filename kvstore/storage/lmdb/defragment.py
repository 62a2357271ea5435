"""How a store is copied while it goes on changing: a copy, a journal, a catch-up.

    turn thread    start ─► writes go on, journaled ─► catch up in slices ──┬─► the rest ─► swap
    other threads    └─► a snapshot, compacted, piped into a file, synced ─┘└─► sync ─┘

The slices are committed to the copy without a sync, as nothing depends on it yet; one sync aside
follows, and only the little that changed meanwhile is committed with a sync of its own.

The law: a journal entry never says what changed, only *where*. Catching up makes the copy equal
to the original at that place, as the original is now. Entries may therefore be repeated, merged
and carried out in any order, and it does not matter at which commit after the journal's start the
snapshot was taken. When the journal is empty both hold the same rows.

Most rows are appended at the end of a table; for those the journal keeps one key for each table,
the tail: everything from there on is still to be copied. Other keys are kept one by one, up to a
limit; over it the journal is void and the copy must start anew.

It knows nothing of LMDB: the source writes itself into a file descriptor, and rows are reached
through `Rows`.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from kvstore.errors import DefragmentError
from kvstore.failpoints import hit
from kvstore.mvcc.backend import Row, Table
from kvstore.storage.lmdb.files import LmdbFiles

PIPE_BYTES: Final = 1 << 20
SYNC_EVERY_BYTES: Final = 4 << 20  # small syncs: the log's own fsync never queues behind a big one
SLICE_ROWS: Final = 32
STEP_ROWS: Final = 1000
STEP_BYTES: Final = 1 << 20
COPY_ATTEMPTS_MAX: Final = 3
KEY_COST_ROWS: Final = 8  # a single key dirties a page of its own; rows of a tail share theirs


class Rows(Protocol):
    """The part of a backend that catching up needs."""

    def get(self, table: Table, key: bytes) -> bytes | None: ...
    def scan(self, table: Table, start: bytes, end: bytes | None, limit: int) -> list[Row]: ...
    def last(self, table: Table) -> Row | None: ...
    def put(self, table: Table, key: bytes, value: bytes) -> None: ...
    def append(self, table: Table, rows: Iterable[Row]) -> None: ...
    def delete(self, table: Table, key: bytes) -> bool: ...
    def clear(self, table: Table) -> None: ...


class CopiedRows(Rows, Protocol):
    """A copy that is open for catching up."""

    def commit(self) -> None: ...
    def abandon(self) -> None: ...
    def detach(self) -> Callable[[], None]: ...


Tables = TypeVar("Tables", bound=CopiedRows)


class Defragmentation(Generic[Tables]):
    """One defragmentation, from the first copied byte to a copy that is ready to take over.

    Its steps raise OSError, KvstoreError or what the source raised; the owner drops it then.
    """

    def __init__(
        self,
        original: Rows,
        files: LmdbFiles,
        source: Callable[[int], None],
        open_copy: Callable[[bool], Tables],
        keys_max: int,
    ) -> None:
        """Begin: source(fd) writes a snapshot, open_copy(synced commits?) opens the copy of it."""
        self.journal = Journal(keys_max)
        self._original = original
        self._files = files
        self._source = source
        self._open_copy = open_copy
        self._keys_max = keys_max
        self._attempts = 0
        self._copy: FileCopy | None = None  # while the file is written
        self._settling: Aside | None = None  # while what was caught up with is synced
        self._settled = False
        self._tables: Tables | None = None
        self._start()

    def reading(self) -> bool:
        """Tell whether the source may still be running."""
        return self._copy is not None

    def aside(self) -> "Aside | FileCopy | None":
        """Return what other threads work on, if they do."""
        return self._settling or self._copy

    def step(self) -> Tables | None:
        """Do a bounded slice of the work; return the copy once it is equal and synced."""
        if (planted := hit("defragdbFail")) is not None:
            raise DefragmentError(str(planted))
        if self.journal.overflowed():
            self._restart()
            return None
        aside = self.aside()
        if aside is not None and aside.running():
            self.journal.wait()
            return None
        tables = self._opened()
        caught_up = self.journal.catch_up(self._original, tables)
        tables.commit()
        if not caught_up:
            return None
        if self._settled:
            return tables
        self._tables = None
        self._settling = Aside(tables.detach(), "defragment-sync")
        return None

    def drop(self) -> None:
        """Stop the threads and remove the copy."""
        if self._copy is not None:
            self._copy.cancel()
            self._copy.join()
            self._copy = None
        if self._settling is not None:
            self._settling.join()
            self._settling = None
        if self._tables is not None:
            self._tables.abandon()
            self._tables = None
        with suppress(OSError):  # the next defragmentation tries again, and tells
            self._files.remove_copy()

    def _start(self) -> None:
        self._attempts += 1
        self._settled = False
        self.journal = Journal(self._keys_max)
        hit("defragBeforeCopy")
        self._files.make_copy_directory()
        self._copy = FileCopy(self._source, self._files.copy / "data.mdb")

    def _restart(self) -> None:
        """Copy anew what has changed in more places than can be remembered."""
        if self._attempts >= COPY_ATTEMPTS_MAX:
            raise DefragmentError(
                f"more than {self._keys_max} rows changed in each of {COPY_ATTEMPTS_MAX} attempts"
            )
        self.drop()
        self._start()

    def _opened(self) -> Tables:
        if self._tables is None:
            aside = self.aside()
            error = aside.error() if aside is not None else None
            if error is not None:
                raise error
            self._settled = self._settling is not None
            self._copy = self._settling = None
            self._tables = self._open_copy(self._settled)
        return self._tables


class Journal:
    """Where the original changed since the copy was started."""

    def __init__(self, keys_max: int) -> None:
        self._keys: list[dict[bytes, None]] = [{} for _ in Table]
        self._tails: list[bytes | None] = [None for _ in Table]
        self._cleared: set[Table] = set()
        self._keys_max = keys_max
        self._keys_count = 0
        self._draining: Iterator[tuple[Table, bytes]] = iter(())
        self._draining_count = 0
        self._noted = 0  # since the last step

    def touch(self, table: Table, key: bytes) -> None:
        """Note that the row of key was set or removed."""
        keys = self._keys[table]
        before = len(keys)
        keys[key] = None
        self._keys_count += len(keys) - before
        self._noted += KEY_COST_ROWS

    def append(self, table: Table, rows: Sequence[Row]) -> None:
        """Note rows that were added after all others."""
        if not rows:
            return
        first = rows[0][0]
        tail = self._tails[table]
        if tail is None or first < tail:
            self._tails[table] = first
        self._noted += len(rows)

    def clear(self, table: Table) -> None:
        """Note that every row of table was removed."""
        self._keys_count -= len(self._keys[table])
        self._keys[table] = {}
        self._tails[table] = b""
        self._cleared.add(table)

    def overflowed(self) -> bool:
        """Tell whether more single keys changed than may be remembered."""
        return self._keys_count + self._draining_count > self._keys_max

    def wait(self) -> None:
        """Let one step pass without catching up."""
        self._noted = 0

    def catch_up(self, original: Rows, copy: Rows) -> bool:
        """Make a bounded part of the copy equal to the original; True once nothing is left.

        The bound is STEP_ROWS rows (and STEP_BYTES bytes) more than twice what was noted since
        the last step, so that the journal empties under any load.
        """
        budget = _Budget(STEP_ROWS + 2 * self._noted)
        self._noted = 0
        for table in sorted(self._cleared):
            copy.clear(table)
        self._cleared.clear()
        return self._copy_tails(original, copy, budget) and self._copy_keys(original, copy, budget)

    def _copy_tails(self, original: Rows, copy: Rows, budget: "_Budget") -> bool:
        for table in Table:
            tail = self._tails[table]
            while tail is not None:
                rows = original.scan(table, tail, None, SLICE_ROWS)
                if not rows:
                    break
                _set_rows(copy, table, rows)
                self._tails[table] = tail = rows[-1][0] + b"\0"
                if budget.spend(len(rows), sum(len(value) for _, value in rows)):
                    return False
        return True

    def _copy_keys(self, original: Rows, copy: Rows, budget: "_Budget") -> bool:
        while self._draining_count or self._keys_count:
            for table, key in self._draining:
                self._draining_count -= 1
                value = original.get(table, key)
                if value is None:
                    copy.delete(table, key)
                else:
                    copy.put(table, key, value)
                if budget.spend(KEY_COST_ROWS, len(value or b"")):
                    return not (self._draining_count or self._keys_count)
            self._drain_next()
        return True

    def _drain_next(self) -> None:
        """Take the noted keys out to be copied; whatever is noted from now on is noted anew."""
        batch, self._keys = self._keys, [{} for _ in Table]
        self._draining = ((table, key) for table in Table for key in batch[table])
        self._draining_count, self._keys_count = self._keys_count, 0


class _Budget:
    """What one step may still spend."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._bytes = STEP_BYTES * max(1, rows // STEP_ROWS)

    def spend(self, rows: int, size_bytes: int) -> bool:
        """Take what was used; tell whether the budget is used up."""
        self._rows -= rows
        self._bytes -= size_bytes
        return self._rows <= 0 or self._bytes <= 0


def _set_rows(copy: Rows, table: Table, rows: list[Row]) -> None:
    """Set ascending rows, packing pages full where they go after all others."""
    last = copy.last(table)
    if last is None or last[0] < rows[0][0]:
        copy.append(table, rows)
        return
    for key, value in rows:
        copy.put(table, key, value)


class Aside:
    """One call on a thread of its own, for what the turn cannot wait for."""

    def __init__(self, call: Callable[[], None], name: str) -> None:
        """Begin the call."""
        self._call = call
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def running(self) -> bool:
        """Tell whether the call has not returned yet."""
        return self._thread.is_alive()

    def error(self) -> Exception | None:
        """Return what the finished call raised, or None."""
        return self._error

    def join(self) -> None:
        """Wait until the call has returned."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._call()
        except Exception as error:  # handed to the turn thread
            self._error = error


class FileCopy:
    """A source that writes itself into a pipe, and the file at the other end; on two threads.

    The pipe is what makes the copy stoppable: with its reading end closed the source fails.
    """

    def __init__(self, source: Callable[[int], None], path: Path) -> None:
        """Begin to copy; source(fd) writes everything to fd and returns."""
        self._source = source
        self._path = path
        self._cancelled = threading.Event()
        self._read_fd, self._write_fd = os.pipe()
        _widen(self._write_fd)
        self._reader = Aside(self._run_source, "defragment-read")
        self._writer = Aside(self._run_writer, "defragment-write")

    def running(self) -> bool:
        """Tell whether the copy is still under way."""
        return self._reader.running() or self._writer.running()

    def error(self) -> Exception | None:
        """Return why the finished copy is no good, or None if it is complete and synced."""
        return self._writer.error() or self._reader.error()

    def cancel(self) -> None:
        """Ask the threads to stop soon; does not wait."""
        self._cancelled.set()

    def join(self) -> None:
        """Wait until both threads have ended."""
        self._reader.join()
        self._writer.join()

    def _run_source(self) -> None:
        try:
            self._source(self._write_fd)
        finally:
            os.close(self._write_fd)

    def _run_writer(self) -> None:
        try:
            self._write_all()
        finally:
            os.close(self._read_fd)

    def _write_all(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            unsynced_bytes = 0
            while chunk := os.read(self._read_fd, PIPE_BYTES):
                if self._cancelled.is_set():
                    raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
                _write_chunk(fd, chunk)
                unsynced_bytes += len(chunk)
                if unsynced_bytes >= SYNC_EVERY_BYTES:
                    os.fdatasync(fd)
                    unsynced_bytes = 0
            os.fsync(fd)
        finally:
            os.close(fd)


def _write_chunk(fd: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]


def _widen(pipe_fd: int) -> None:
    """Make the pipe hold PIPE_BYTES, so that the threads seldom need the interpreter's lock."""
    try:
        fcntl.fcntl(pipe_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except PermissionError:
        return  # the user's pipes hold enough memory already: this one stays small, only slower
