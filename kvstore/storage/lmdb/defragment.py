"""Copies a state while it goes on changing: a copy, a journal, and catching up.

    turn thread    start ─► writes go on, journaled ─► catch up in slices ──┬─► the rest ─► swap
    other threads    └─► a snapshot, compacted, piped into a file, synced ─┘└─► sync ─┘

The slices are committed to the copy without a sync, as nothing depends on it yet. One sync in the
background follows, and only the little that changed meanwhile is committed with a sync of its own.

It does not use LMDB itself: the source writes itself into a file descriptor, and rows are reached
through `Rows`.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from kvstore.errors import DefragmentError
from kvstore.failpoints import hit
from kvstore.storage.lmdb.file_copy import BackgroundCall, FileCopy
from kvstore.storage.lmdb.files import LmdbFiles
from kvstore.storage.lmdb.journal import Journal, Rows

COPY_ATTEMPTS_MAX: Final = 3


class CopiedRows(Rows, Protocol):
    """A copy that is open for catching up."""

    def commit(self) -> None: ...
    def abandon(self) -> None: ...
    def detach(self) -> Callable[[], None]: ...


Tables = TypeVar("Tables", bound=CopiedRows)


class Defragmentation(Generic[Tables]):
    """One defragmentation, from the first copied byte to a copy that is ready to be used.

    Its steps raise OSError, KvstoreError or what the source raised; the caller must drop it then.
    """

    def __init__(
        self,
        original: Rows,
        files: LmdbFiles,
        source: Callable[[int], None],
        open_copy: Callable[[bool], Tables],
        keys_max: int,
    ) -> None:
        """Begin: source(fd) writes a snapshot, open_copy(sync) opens the file it was written to."""
        self.journal = Journal(keys_max)
        self._original = original
        self._files = files
        self._source = source
        self._open_copy = open_copy
        self._keys_max = keys_max
        self._attempts = 0
        self._copy: FileCopy | None = None  # while the file is written
        self._syncing: BackgroundCall | None = None  # while the caught-up copy is synced
        self._synced = False
        self._tables: Tables | None = None
        self._start()

    def reading(self) -> bool:
        """Return whether the source may still be running."""
        return self._copy is not None

    def background_work(self) -> BackgroundCall | FileCopy | None:
        """Return what other threads work on, or None."""
        return self._syncing or self._copy

    def step(self) -> Tables | None:
        """Do a bounded slice of the work; return the copy once it is equal and synced."""
        if (injected := hit("defragdbFail")) is not None:
            raise DefragmentError(str(injected))
        if self.journal.overflowed():
            self._restart()
            return None
        background = self.background_work()
        if background is not None and background.running():
            self.journal.skip_step()
            return None
        tables = self._opened()
        caught_up = self.journal.catch_up(self._original, tables)
        tables.commit()
        if not caught_up:
            return None
        if self._synced:
            return tables
        self._tables = None
        self._syncing = BackgroundCall(tables.detach(), "defragment-sync")
        return None

    def drop(self) -> None:
        """Stop the threads and remove the copy."""
        if self._copy is not None:
            self._copy.cancel()
            self._copy.join()
            self._copy = None
        if self._syncing is not None:
            self._syncing.join()
            self._syncing = None
        if self._tables is not None:
            self._tables.abandon()
            self._tables = None
        with suppress(OSError):  # the next defragmentation tries again and reports it
            self._files.remove_copy()

    def _start(self) -> None:
        self._attempts += 1
        self._synced = False
        self.journal = Journal(self._keys_max)
        hit("defragBeforeCopy")
        self._files.make_copy_directory()
        self._copy = FileCopy(self._source, self._files.copy / "data.mdb")

    def _restart(self) -> None:
        """Begin a new copy: more rows changed than the journal may hold."""
        if self._attempts >= COPY_ATTEMPTS_MAX:
            raise DefragmentError(
                f"more than {self._keys_max} rows changed in each of {COPY_ATTEMPTS_MAX} attempts"
            )
        self.drop()
        self._start()

    def _opened(self) -> Tables:
        if self._tables is None:
            background = self.background_work()
            error = background.error() if background is not None else None
            if error is not None:
                raise error
            self._synced = self._syncing is not None
            self._copy = self._syncing = None
            self._tables = self._open_copy(self._synced)
        return self._tables
