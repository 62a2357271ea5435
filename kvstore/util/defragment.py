"""Offline defragmentation: the rows are written again, without the space of deleted ones.

    ours   LMDB's compacting copy and the swap of the online defragmentation; a database of the
           older format is copied row by row, and the rows get checksums
    etcd   snap/db → snap/db.tmp.<pid> → renamed over snap/db, both locked all the time

An interruption at any point loses nothing: the old file stays until the new one is whole and
synced.
"""

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from kvstore.storage.etcd_db.reader import EtcdDbReader
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.lmdb.files import sync_directory
from kvstore.storage.row_source import RowSource
from kvstore.util import mapped_file
from kvstore.util.locations import DataFormat, Location, retry_while_locked
from kvstore.util.progress import bar
from kvstore.util.targets import write_etcd_db

STEP_WAIT_S: Final = 0.01


class Defragmented(NamedTuple):
    """Sizes before and after, in bytes."""

    before_bytes: int
    after_bytes: int


def defragment(location: Location, timeout_s: float) -> Defragmented:
    """Defragment the state of a data directory, which must not be locked; raises KvstoreError."""
    if location.format is DataFormat.KVSTORE:
        return _defragment_lmdb(location, timeout_s)
    before_bytes = location.db.stat().st_size
    reader = retry_while_locked(lambda: EtcdDbReader(location.db, exclusive=True), timeout_s)
    with reader as source:
        rewrite_etcd_db(source, location.db)
    return Defragmented(before_bytes, location.db.stat().st_size)


def rewrite_etcd_db(source: RowSource, path: Path) -> None:
    """Replace the database file at path by one with the rows of source, which may read path."""
    fresh = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    write_etcd_db(source, fresh)
    try:
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _defragment_lmdb(location: Location, timeout_s: float) -> Defragmented:
    mapped_file.note(location.db / "data.mdb")
    backend = retry_while_locked(lambda: LmdbBackend(location.member), timeout_s)
    try:
        before_bytes = _file_bytes(location)
        if backend.add_checksums():  # that copies all rows, too
            return Defragmented(before_bytes, _file_bytes(location))
        with bar("defragmenting", before_bytes) as advance:
            backend.start_defragment()
            done_bytes = 0
            while not backend.step_defragment():
                time.sleep(STEP_WAIT_S)
                copied_bytes = _copied_bytes(location)
                advance(copied_bytes - done_bytes)
                done_bytes = copied_bytes
    finally:
        backend.close()
    return Defragmented(before_bytes, _file_bytes(location))


def _file_bytes(location: Location) -> int:
    return (location.db / "data.mdb").stat().st_size


def _copied_bytes(location: Location) -> int:
    copy = location.member / "lmdb.defrag" / "data.mdb"
    return copy.stat().st_size if copy.exists() else 0
