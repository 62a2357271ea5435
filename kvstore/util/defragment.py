"""Offline defragmentation: the rows written anew, without the room that deleted ones left.

    ours   LMDB's compacting copy and the swap of the online defragmentation
    etcd   snap/db → snap/db.tmp.<pid> → renamed over snap/db, both held all the time

Either is cut off anywhere without loss: the old file stays until the new one is whole and synced.
"""

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from kvstore.storage.etcd_db.etcd_db import EtcdDbReader
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.lmdb.files import sync_directory
from kvstore.storage.row_source import RowSource
from kvstore.util import mapped_file
from kvstore.util.places import Kind, Place, patiently
from kvstore.util.progress import bar
from kvstore.util.targets import write_etcd_db

STEP_WAIT_S: Final = 0.01


class Shrunk(NamedTuple):
    """Sizes before and after, in bytes."""

    before_bytes: int
    after_bytes: int


def defragment(place: Place, timeout_s: float) -> Shrunk:
    """Defragment the state of a data directory, which must not be held; raises KvstoreError."""
    if place.kind is Kind.KVSTORE:
        return _ours(place, timeout_s)
    before_bytes = place.db.stat().st_size
    with patiently(lambda: EtcdDbReader(place.db, exclusive=True), timeout_s) as source:
        rewrite_etcd_db(source, place.db)
    return Shrunk(before_bytes, place.db.stat().st_size)


def rewrite_etcd_db(source: RowSource, path: Path) -> None:
    """Put a database file with the rows of source in the place of path, which source may read."""
    fresh = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    write_etcd_db(source, fresh)
    try:
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _ours(place: Place, timeout_s: float) -> Shrunk:
    mapped_file.note(place.db / "data.mdb")
    backend = patiently(lambda: LmdbBackend(place.member), timeout_s)
    try:
        before_bytes = _file_bytes(place)
        with bar("defragmenting", before_bytes) as advance:
            backend.start_defragment()
            done_bytes = 0
            while not backend.step_defragment():
                time.sleep(STEP_WAIT_S)
                copied_bytes = _copied_bytes(place)
                advance(copied_bytes - done_bytes)
                done_bytes = copied_bytes
    finally:
        backend.close()
    return Shrunk(before_bytes, _file_bytes(place))


def _file_bytes(place: Place) -> int:
    return (place.db / "data.mdb").stat().st_size


def _copied_bytes(place: Place) -> int:
    copy = place.member / "lmdb.defrag" / "data.mdb"
    return copy.stat().st_size if copy.exists() else 0
