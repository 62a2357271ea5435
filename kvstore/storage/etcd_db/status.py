"""The status of an etcd database file, as `etcdutl snapshot status` prints it.

It is computed from any state that can be read row by row (see `row_source`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c

from kvstore.backend import BUCKETS, Row, Table
from kvstore.errors import CorruptionError
from kvstore.meta_rows import STORAGE_VERSION_KEY
from kvstore.storage.etcd_db.reader import EtcdDbReader
from kvstore.storage.row_source import RowSource
from kvstore.wire.varint import BYTES, WireError, read_field

_HASH_BATCH_PARTS: Final = 1024  # keys and values
_HASH_BATCH_BYTES: Final = 1 << 20
_REVISION_SIZE: Final = 17
_TOMBSTONE_SIZE: Final = 18


class DbStatus(NamedTuple):
    """What `etcdutl snapshot status` prints about a file."""

    hash: int  # CRC-32C over every bucket's name, keys and values
    revision: int  # main revision of the last record
    total_keys: int  # keys whose last record is not a tombstone
    size_bytes: int  # pages ever used times page size
    version: str  # storage version, "" before 3.6


def status(path: Path) -> DbStatus:
    """Return the status of a database file; all of it is read, memory grows with the keys.

    Raises CorruptionError, DataDirError if it is locked, OSError if it cannot be opened.
    """
    with EtcdDbReader(path) as db:
        return status_of(db)


def status_of(source: RowSource, progress: Callable[[int], None] | None = None) -> DbStatus:
    """Return the status of a state; progress is called with the bytes read since its last call."""
    crc = 0
    keys = _KeyCount(source.path)
    version = b""
    for name in source.buckets():
        crc = google_crc32c.extend(crc, name)
        batch: list[bytes] = []
        batch_bytes = 0
        for row in source.scan(name):
            batch += row
            batch_bytes += len(row[1])
            if name == BUCKETS[Table.KEY]:
                keys.add(row)
            elif name == BUCKETS[Table.META] and row[0] == STORAGE_VERSION_KEY:
                version = row[1]
            if len(batch) >= _HASH_BATCH_PARTS or batch_bytes >= _HASH_BATCH_BYTES:
                crc = _hash_batch(crc, batch, progress)
                batch_bytes = 0
        crc = _hash_batch(crc, batch, progress)
    text = version.decode("ascii", "backslashreplace")
    return DbStatus(crc, keys.revision, len(keys.live), source.size_bytes, text)


def _hash_batch(crc: int, batch: list[bytes], progress: Callable[[int], None] | None) -> int:
    data = b"".join(batch)
    batch.clear()
    if progress is not None:
        progress(len(data))
    extended: int = google_crc32c.extend(crc, data)
    return extended


class _KeyCount:
    """The keys that exist, from the records of bucket `key` in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.revision = 0
        self.live: set[bytes] = set()

    def add(self, row: Row) -> None:
        """Count the next record."""
        revision, value = row
        if not _REVISION_SIZE <= len(revision) <= _TOMBSTONE_SIZE:
            raise CorruptionError(f"{self._path}: bucket key: {revision.hex()} is not a revision")
        self.revision = int.from_bytes(revision[:8])
        key = self._user_key(revision, value)
        if len(revision) == _TOMBSTONE_SIZE:
            self.live.discard(key)
        else:
            self.live.add(key)

    def _user_key(self, revision: bytes, value: bytes) -> bytes:
        """Return field 1 of a KeyValue; without one the key is empty (a bumped revision)."""
        try:
            at = 0
            while at < len(value):
                number, kind, field, at = read_field(value, at)
                if number == 1 and kind == BYTES and isinstance(field, bytes):
                    return field
        except WireError as error:
            raise CorruptionError(
                f"{self._path}: bucket key: record {revision.hex()} is not a KeyValue: {error}"
            ) from error
        return b""
