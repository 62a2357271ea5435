"""Makes an LMDB state, beside the current one, of a database received with the leader's snapshot.

    <member>/lmdb                      the current state
    <member>/lmdb.receiving.<index>/   being made from the received database file
    <member>/lmdb.received.<index>/    complete and durable, not yet in use

The receiver runs `prepare_received` while the file still grows, and gives the snapshot's message to
the node only after it has returned. Commits on the way are not synced: a thread makes the disk
write all the time, and one sync at the end makes everything durable. The backend starts to use the
state when raft has accepted the snapshot (`Backend.take_received`). A state that was not installed
is deleted: the leader sends again.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from kvstore.backend import Table
from kvstore.errors import CorruptionError
from kvstore.meta_rows import (
    CLUSTER_VERSION_KEY,
    CONSISTENT_INDEX_KEY,
    STORAGE_VERSION_KEY,
)
from kvstore.storage.etcd_db.reader import EtcdDbReader
from kvstore.storage.lmdb.environment import MAP_SIZE_BYTES
from kvstore.storage.lmdb.files import (
    RECEIVING_PREFIX,
    LmdbFiles,
    received_path,
    remove_tree,
    sync_directory,
)
from kvstore.storage.lmdb.tables import LmdbTables
from kvstore.storage.row_source import small_rows
from kvstore.storage.snapshots.arrival import PipeArrival
from kvstore.storage.takeover import check_buckets, copy_rows, refuse_newer

_COMMIT_BYTES: Final = 16 << 20  # of rows between two commits


def prepare_received(
    member_dir: Path, index: int, db_path: Path, arrival: PipeArrival | None = None
) -> None:
    """Make a state of the etcd database at db_path, which came with the snapshot at index.

    It is durable on return; the caller removes the file. Nothing is done if the state exists
    already. With an arrival the file is still being received: rows are copied as they arrive.
    Raises CorruptionError (not a database, or one of another index), DataDirError (newer than this
    server, the same index is being prepared already, the rest of the file does not come), OSError.
    """
    ready = received_path(member_dir, index)
    if ready.exists():
        if arrival is not None:
            arrival.wait_for_end()
        return
    with _building(member_dir, index) as build:
        _fill(build, index, db_path, arrival)
        build.rename(ready)
        sync_directory(ready)
        sync_directory(member_dir)


@contextmanager
def _building(member_dir: Path, index: int) -> Iterator[Path]:
    """Lock the directory that a state is made in, and empty it; remove it in the end."""
    build = member_dir / f"{RECEIVING_PREFIX}{index:016x}"
    files = LmdbFiles(build)
    try:
        remove_tree(files.live)
        files.live.mkdir(mode=0o700)
        yield files.live
    finally:
        remove_tree(build)
        files.unlock()


def _fill(path: Path, index: int, db_path: Path, arrival: PipeArrival | None) -> None:
    """Make an environment at path from a database's rows, synced."""
    with EtcdDbReader(db_path, exclusive=True, arrival=arrival) as source:
        _check(source, index)
        tables = LmdbTables(path, MAP_SIZE_BYTES, sync=False)
        try:
            with _Flusher(path / "data.mdb") as flusher:
                copy_rows(source, tables, flusher.wake, commit_bytes=_COMMIT_BYTES)
                tables.commit()
                if arrival is not None:
                    arrival.wait_for_end()
                    source.check_size()
        except BaseException:
            tables.abandon()
            raise
        tables.detach()()


def _check(source: EtcdDbReader, index: int) -> None:
    """Raise CorruptionError or DataDirError if a database does not belong to the snapshot.

    These rows are on the first pages of a file that this project's members send.
    """
    check_buckets(source)
    meta, cluster = small_rows(source, Table.META), small_rows(source, Table.CLUSTER)
    refuse_newer(source.path, STORAGE_VERSION_KEY, meta.get(STORAGE_VERSION_KEY))
    refuse_newer(source.path, CLUSTER_VERSION_KEY, cluster.get(CLUSTER_VERSION_KEY))
    applied = int.from_bytes(meta.get(CONSISTENT_INDEX_KEY, b""))
    if applied != index:
        raise CorruptionError(
            f"{source.path}: came with a snapshot at index {index}, but is at index {applied}"
        )


class _Flusher:
    """A thread that makes the disk write a growing file while rows are copied into it."""

    def __init__(self, path: Path) -> None:
        """Open the file; OSError if that fails."""
        self._descriptor = os.open(path, os.O_RDWR)
        self._woken = threading.Event()
        self._is_ending = False
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="flusher")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the thread; raise its OSError, unless there is an exception already."""
        self._is_ending = True
        self._woken.set()
        self._thread.join()
        if self._failure is not None and kind is None:
            raise self._failure

    def wake(self, _done_bytes: int, _all_bytes: int) -> None:
        """Make the disk write the present contents of the file."""
        self._woken.set()

    def _run(self) -> None:
        try:
            while not self._is_ending:
                self._woken.wait()
                self._woken.clear()
                os.fdatasync(self._descriptor)
        except OSError as error:
            self._failure = error
        finally:
            os.close(self._descriptor)
