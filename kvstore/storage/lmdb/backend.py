"""The state of one member on disk, and how another state replaces it.

    <directory>/lmdb/   one environment, ten named tables = BUCKETS (see `tables`)

Open the backend in the thread that runs the turn. During a defragmentation two more threads touch
the environment: one reads a snapshot of it, one writes the copy (see `defragment`). The swap of
directories is described in `files`. Other processes read a commit with `readers.open_reader`; one
that falls behind is listed by `readers()`, and must be ended by its starter.

Neither the environment nor the lock survives fork() without exec(): spawn instead.
"""

import os
from pathlib import Path
from typing import Final

import lmdb

from kvstack.component.errors import ComponentError
from kvstore.apply.quota import NO_LIMIT_BYTES
from kvstore.backend import Table
from kvstore.errors import DataDirError, DefragmentError, KvstoreError, StorageFatalError
from kvstore.failpoints import hit
from kvstore.storage.lmdb.ahead import AheadBlocks
from kvstore.storage.lmdb.defragment import Defragmentation
from kvstore.storage.lmdb.environment import MAP_SIZE_BYTES
from kvstore.storage.lmdb.file_copy import BackgroundCall
from kvstore.storage.lmdb.files import (
    LmdbFiles,
    free_bytes,
    received_path,
    remove_tree,
    sync_directory,
)
from kvstore.storage.lmdb.readers import ReaderSlot, parse_readers
from kvstore.storage.lmdb.tables import LmdbTables
from kvstore.types import override

JOURNAL_KEYS_MAX: Final = 1_000_000
_COPY_ROWS: Final = 1000
_COPY_BYTES: Final = 16 << 20  # between two commits


class LmdbBackend(LmdbTables):
    """The state of one member; `kvstore.backend.Backend` on LMDB."""

    def __init__(
        self,
        directory: Path,
        *,
        map_size_bytes: int = MAP_SIZE_BYTES,
        journal_keys_max: int = JOURNAL_KEYS_MAX,
    ) -> None:
        """Open the state under directory; make an empty one if there is none.

        journal_keys_max bounds the memory of a defragmentation: about 100 bytes a key.

        Raises DataDirError (in use, another program's, of a newer format, not writable) and
        CorruptionError.
        """
        self._files = LmdbFiles(directory)
        self._journal_keys_max = journal_keys_max
        self._defragmentation: Defragmentation[LmdbTables] | None = None
        self._removal: BackgroundCall | None = None  # of the directory that was swapped out
        self._closed = False
        self._ahead: AheadBlocks | None = None
        try:
            self._files.recover()
            super().__init__(self._files.live, map_size_bytes)
            self._sync_directories(directory)
        except BaseException:
            self._files.unlock()
            raise

    def _sync_directories(self, directory: Path) -> None:
        try:
            sync_directory(self._files.live)
            sync_directory(directory)
        except OSError as error:
            self._env.close()
            raise DataDirError(f"data directory {directory}: {error}") from error

    def close(self) -> None:
        """Commit and close the files; after a failure only close them."""
        if self._closed:
            return
        try:
            if self._failed is None:
                self.commit()
        finally:
            self.abandon()

    @override
    def abandon(self) -> None:
        """Close the files without a commit."""
        if self._closed:
            return
        self._closed = True
        self._end_defragmentation()
        if self._removal is not None:
            self._removal.join()
        self._failed = self._failed or StorageFatalError(f"{self._path} is closed")
        super().abandon()
        self._files.unlock()

    # Space that is kept back (see `ahead`).

    def keep_ahead(self) -> None:
        """Keep space reserved beyond the used pages from now on; make_room reports failures."""
        self._ahead = AheadBlocks(self._files.live / "data.mdb")
        self._ahead.extend(self._used_bytes)

    def make_room(self) -> str:
        """Try again to reserve the missing space; return the shortage as a text, empty if none."""
        ahead = self._ahead
        if ahead is None:
            return ""
        if ahead.shortage:
            self._extend_ahead(ahead)
        return ahead.shortage

    @property
    def has_room(self) -> bool:
        """Whether what is kept back was complete at the last commit, or is again."""
        return self._ahead is None or not self._ahead.shortage

    def room_bytes(self) -> int:
        """Return by how much the rows may grow into space that is kept back, as of the last commit.

        Free pages count, unless a reader may still hold them.
        """
        if self._ahead is None:
            return NO_LIMIT_BYTES
        free_pages_bytes = 0 if self.readers() else self._used_bytes - self._size_in_use_bytes
        return self._ahead.room_bytes(self._used_bytes) + max(free_pages_bytes, 0)

    def _extend_ahead(self, ahead: AheadBlocks) -> None:
        if self._defragmentation is None:  # its copy may occupy the missing space
            ahead.extend(self._used_bytes)

    @override
    def commit(self) -> None:
        """Make everything written so far durable, then fill up the reserve again."""
        super().commit()
        ahead = self._ahead
        if ahead is not None and ahead.is_due(self._used_bytes) and not ahead.shortage:
            self._extend_ahead(ahead)

    # Readers in other processes.

    def readers(self) -> list[ReaderSlot]:
        """Return the readers of other processes, the one furthest behind first.

        A reader keeps pages from being reused. Its starter ends it when it takes too long;
        its slot is freed by the next check.
        """
        slots = parse_readers(self._env.readers(), self._env.info()["last_txnid"])
        others = [slot for slot in slots if slot.pid != os.getpid()]
        return sorted(others, key=lambda slot: slot.txn_id)

    def oldest_reader(self) -> ReaderSlot | None:
        """Return the reader of another process that is furthest behind, if there is one."""
        slots = self.readers()
        return slots[0] if slots else None

    # Defragmentation.

    def defragmenting(self) -> bool:
        """Return whether step_defragment has something to do."""
        return self._defragmentation is not None

    def start_defragment(self) -> None:
        """Begin to copy the live rows into a fresh file; requests go on meanwhile.

        Raises DefragmentError if one is under way or there is no room for a second file.
        """
        if self._failed is not None:
            raise self._refusal()
        if self._defragmentation is not None:
            raise DefragmentError("a defragmentation is under way already")
        self.commit()
        self._remove_leftovers()
        self._check_room(self._size_in_use_bytes)
        if (injected := hit("defragOpenFileError")) is not None:
            raise DefragmentError(str(injected))
        env = self._env
        try:
            self._defragmentation = Defragmentation(
                original=self,
                files=self._files,
                source=lambda fd: env.copyfd(fd, compact=True),  # in C, other threads go on
                open_copy=lambda sync: LmdbTables(
                    self._files.copy, self._map_size_bytes, sync=sync
                ),
                keys_max=self._journal_keys_max,
            )
        except OSError as error:
            raise DefragmentError(f"the copy cannot be started: {error}") from error
        self._follow(self._defragmentation)

    def step_defragment(self) -> bool:
        """Do a bounded slice of the work; return True once the new file is in use.

        Raises DefragmentError if the copy was abandoned (the old file stays in use), and
        StorageFatalError if the old file failed too.
        """
        defragmentation = self._defragmentation
        if defragmentation is None:
            raise DefragmentError("no defragmentation is under way")
        if self._failed is not None:
            raise self._refusal()
        try:
            tables = defragmentation.step()
            if tables is not None:
                hit("defragBeforeRename")
                self._swap(tables)
                return True
        except (OSError, ComponentError, lmdb.Error) as error:
            final = self._abandon_copy(error)
            raise final from (error if final is not error else None)
        self._follow(defragmentation)
        return False

    def _follow(self, defragmentation: Defragmentation[LmdbTables]) -> None:
        """Use its current journal; keep the map in place while it reads through it."""
        self._journal = defragmentation.journal
        self._map_is_pinned = defragmentation.reading()

    def _end_defragmentation(self) -> None:
        if self._defragmentation is not None:
            self._defragmentation.drop()
        self._defragmentation = self._journal = None
        self._map_is_pinned = False

    def _swap(self, tables: LmdbTables) -> None:
        """Commit, replace the old directory by the new one, and continue with it."""
        self.commit()
        old, _ = self.release()
        try:
            self._files.swap()
        except OSError as error:
            self._begin()
            raise DefragmentError(str(error)) from error
        except StorageFatalError as error:
            self._failed = error
            raise
        self._defragmentation = self._journal = None
        self._adopt(tables)
        self._removal = BackgroundCall(lambda: self._remove_old(old), "defragment-remove")

    def _adopt(self, tables: LmdbTables) -> None:
        """Continue with the environment of tables, whose directory is the live one now."""
        self._env, self._dbs = tables.release()
        self._use_sums()
        self._begin()
        if self._ahead is not None:
            self.keep_ahead()

    # The older format, whose rows have no checksums.

    def add_checksums(self) -> int:
        """Copy the rows of an older format into a file of the current one; return how many.

        0 if the rows have checksums already. It waits until the copy is synced and in use. Raises
        DefragmentError if there is no space for the copy: the old file stays in use.
        """
        if self._has_checksums:
            return 0
        if self._failed is not None:
            raise self._refusal()
        if self._defragmentation is not None:
            raise DefragmentError("a defragmentation is under way already")
        self.commit()
        self._remove_leftovers()
        self._check_room(self._size_in_use_bytes)
        try:
            self._files.make_copy_directory()
            rows = self._copy_rows()
            self._swap(LmdbTables(self._files.copy, self._map_size_bytes))
        except (OSError, ComponentError, lmdb.Error) as error:
            final = self._abandon_copy(error)
            raise final from (error if final is not error else None)
        return rows

    def _copy_rows(self) -> int:
        """Write all rows into a new environment in the copy's directory, synced."""
        count = uncommitted_bytes = 0
        copy = LmdbTables(self._files.copy, self._map_size_bytes, sync=False)
        try:
            for table in Table:
                start = b""
                while rows := self.scan(table, start, None, _COPY_ROWS):
                    copy.append(table, rows)
                    start = rows[-1][0] + b"\0"
                    count += len(rows)
                    uncommitted_bytes += sum(len(value) for _, value in rows)
                    if uncommitted_bytes >= _COPY_BYTES:
                        copy.commit()
                        uncommitted_bytes = 0
            copy.commit()
        except BaseException:
            copy.abandon()
            raise
        copy.detach()()
        return count

    def _check_room(self, needed_bytes: int) -> None:
        """Raise DefragmentError if a copy of so many bytes does not fit.

        Where it fits only into the space that is kept back, most of that is released for it.
        """
        has_bytes = free_bytes(self._files.directory)
        if needed_bytes > has_bytes and self._ahead is not None:
            try:
                self._ahead.give_back(self._used_bytes)
            except OSError as error:
                raise DefragmentError(f"{self._files.live}: {error}") from error
            has_bytes = free_bytes(self._files.directory)
        if needed_bytes > has_bytes:
            raise DefragmentError(
                f"the copy needs {needed_bytes} bytes, {self._files.directory} has {has_bytes}"
            )

    # A state received with a snapshot.

    def take_received(self, index: int) -> bool:
        """Replace this state by the one received with the snapshot at index; False: none."""
        if self._failed is not None:
            raise self._refusal()
        path = received_path(self._files.directory, index)
        if not path.exists():
            return False
        self._end_defragmentation()
        try:
            self._remove_leftovers()
            # Opened before the rename: an open environment survives it.
            tables = LmdbTables(path, self._map_size_bytes)
        except ComponentError as error:
            self._failed = StorageFatalError(f"{path} cannot replace the state: {error}")
            raise self._failed from error
        old, _ = self.release()
        try:
            self._files.swap(path)
        except (OSError, StorageFatalError) as error:
            self._failed = StorageFatalError(f"{path} cannot replace the state: {error}")
            raise self._failed from error
        self._adopt(tables)
        self._removal = BackgroundCall(lambda: self._remove_old(old), "received-remove")
        return True

    def drop_received(self, up_to_index: int) -> None:
        """Delete the states received with snapshots up to this index that were not installed."""
        try:
            for index, path in self._files.received():
                if index <= up_to_index:
                    remove_tree(path)
        except OSError as error:
            self._failed = StorageFatalError(f"{self._files.directory}: {error}")
            raise self._failed from error

    def _remove_old(self, env: lmdb.Environment) -> None:
        """Unmap and remove the old file; in another thread, as it takes long for a large file."""
        env.close()
        self._files.remove_old()

    def _remove_leftovers(self) -> None:
        """Make sure that the last swap's old file is gone before another swap."""
        if self._removal is not None:
            self._removal.join()
            self._removal = None
        try:
            self._files.remove_old()  # once more, in case that failed
        except OSError as error:
            raise DefragmentError(f"{self._files.old} cannot be removed: {error}") from error

    def _abandon_copy(self, cause: Exception) -> KvstoreError:
        """Drop the copy; return the error to raise: the current file's own, if it failed."""
        if self._failed is not None:
            return self._failed
        self._end_defragmentation()
        return DefragmentError(f"defragmentation abandoned, the old file stays in use: {cause}")
