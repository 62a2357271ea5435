"""An etcd database file as a whole: its status as `etcdutl snapshot status` prints it, its digest.

    snapshot file = database file | SHA-256 of it (32 bytes)

Pages are multiples of 512 bytes, so a size of 32 modulo 512 tells that the digest is there. The
pages themselves are the business of etcd_db_reader and etcd_db_writer, which this module names
for its callers.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c

from kvstore.errors import CorruptionError
from kvstore.mvcc.backend import BUCKETS, Row, Table
from kvstore.mvcc.meta_rows import STORAGE_VERSION_KEY
from kvstore.storage.etcd_db.reader import EtcdDbReader as EtcdDbReader
from kvstore.storage.etcd_db.writer import EtcdDbWriter as EtcdDbWriter
from kvstore.storage.row_source import RowSource
from kvstore.wire.varint import BYTES, WireError, read_field

DIGEST_SIZE: Final = hashlib.sha256().digest_size

_SECTOR_BYTES: Final = 512
_HASH_BATCH_ROWS: Final = 1024
_REVISION_SIZE: Final = 17
_TOMBSTONE_SIZE: Final = 18


class DbStatus(NamedTuple):
    """What `etcdutl snapshot status` tells of a file."""

    hash: int  # CRC-32C over every bucket's name, keys and values
    revision: int  # main revision of the last record
    total_keys: int  # keys whose last record is not a tombstone
    size_bytes: int  # pages ever used times page size
    version: str  # storage version, "" before 3.6


def status(path: Path) -> DbStatus:
    """Read a whole database file and sum it up; memory grows with the number of keys.

    Raises CorruptionError, DataDirError if it is locked, OSError if it cannot be opened.
    """
    with EtcdDbReader(path) as db:
        return sum_up(db)


def sum_up(source: RowSource, progress: Callable[[int], None] | None = None) -> DbStatus:
    """Read a whole state and sum it up; progress is called with the bytes read since the last."""
    crc = 0
    keys = _KeyCount(source.path)
    version = b""
    for name in source.buckets():
        crc = google_crc32c.extend(crc, name)
        batch: list[bytes] = []
        for row in source.scan(name):
            batch += row
            if name == BUCKETS[Table.KEY]:
                keys.take(row)
            elif name == BUCKETS[Table.META] and row[0] == STORAGE_VERSION_KEY:
                version = row[1]
            if len(batch) >= _HASH_BATCH_ROWS:
                crc = _take_batch(crc, batch, progress)
        crc = _take_batch(crc, batch, progress)
    text = version.decode("ascii", "backslashreplace")
    return DbStatus(crc, keys.revision, len(keys.live), source.size_bytes, text)


def _take_batch(crc: int, batch: list[bytes], progress: Callable[[int], None] | None) -> int:
    data = b"".join(batch)
    batch.clear()
    if progress is not None:
        progress(len(data))
    extended: int = google_crc32c.extend(crc, data)
    return extended


def has_digest(path: Path) -> bool:
    """Tell by its size whether a snapshot file ends in its digest."""
    return path.stat().st_size % _SECTOR_BYTES == DIGEST_SIZE


def digest(path: Path, size_bytes: int) -> bytes:
    """Return the SHA-256 of the first size_bytes of a file; CorruptionError if it is shorter."""
    sha = hashlib.sha256()
    left = size_bytes
    buffer = bytearray(1 << 18)
    with path.open("rb", buffering=0) as file:
        while left:
            got = file.readinto(memoryview(buffer)[: min(left, len(buffer))])
            if not got:
                raise CorruptionError(f"{path}: ends {left} bytes before offset {size_bytes}")
            sha.update(memoryview(buffer)[:got])
            left -= got
    return sha.digest()


def append_digest(path: Path) -> bytes:
    """Append its SHA-256 to a database file, synced: it then is a snapshot file; return it."""
    value = digest(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(value)
        file.flush()
        os.fsync(file.fileno())
    return value


def check_digest(path: Path) -> None:
    """Raise CorruptionError unless a snapshot file ends in the SHA-256 of all before it."""
    size = path.stat().st_size
    if not has_digest(path):
        raise CorruptionError(f"{path}: a snapshot file of {size} bytes carries no digest")
    body = size - DIGEST_SIZE
    with path.open("rb") as file:
        file.seek(body)
        stored = file.read(DIGEST_SIZE)
    actual = digest(path, body)
    if stored != actual:
        text = f"digest {stored.hex()} is not that of the content, {actual.hex()}"
        raise CorruptionError(f"{path}: at offset {body}: {text}")


class _KeyCount:
    """Which keys live, from the records of bucket `key` in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.revision = 0
        self.live: set[bytes] = set()

    def take(self, row: Row) -> None:
        """Take the next record."""
        revision, value = row
        if not _REVISION_SIZE <= len(revision) <= _TOMBSTONE_SIZE:
            raise CorruptionError(f"{self._path}: bucket key: {revision.hex()} is no revision")
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
                f"{self._path}: bucket key: record {revision.hex()} is no KeyValue: {error}"
            ) from error
        return b""
