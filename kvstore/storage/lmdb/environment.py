"""Opens the LMDB environment of a state: its map, its tables, the record of its format.

    main table     bucket names, FORMAT_KEY → msgpack {format, created_by}, SUMS_KEY → "crc32c"
    named tables   one for each bucket (BUCKETS)

    format 1   rows are stored as they are, and there is no SUMS_KEY
    format 2   each row is stored with its checksum (`storage.row_sums`), as SUMS_KEY says

An environment that holds anything but an empty main table and has no format record belongs to
another program and is refused. So is a newer format. Both marks must agree, so that no damage to
one of them makes a checksum part of a value.
"""

import os
from pathlib import Path
from typing import Any, Final

import lmdb

from kvstore.backend import BUCKETS
from kvstore.errors import CorruptionError, DataDirError
from kvstore.storage.row_sums import PYTHON_SUMS, UNSUMMED, RowSums
from kvstore.types import SERVER_VERSION

FORMAT_KEY: Final = b"kvstore"
FORMAT_VERSION: Final = 2
FORMAT_WITH_SUMS: Final = 2
SUMS_KEY: Final = b"kvstore.row-checksum"
SUMS_KIND: Final = b"crc32c"
MAP_SIZE_BYTES: Final = 256 << 30
TABLES_MAX: Final = len(BUCKETS)
DAMAGE_ERRORS: Final = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError)


def open_environment(path: Path, map_size_bytes: int, *, sync: bool) -> lmdb.Environment:
    """Open or make the environment at path; CorruptionError if it is not LMDB, DataDirError."""
    data_path = path / "data.mdb"
    try:
        env = lmdb.open(
            str(path), map_size=map_size_bytes, max_dbs=TABLES_MAX, mode=0o600, sync=sync
        )
        _extend(data_path, env)
    except lmdb.InvalidError as error:
        raise CorruptionError(f"{data_path}: offset 0: not an LMDB file: {error}") from error
    except (lmdb.Error, OSError) as error:
        raise DataDirError(
            f"{path} cannot be opened with a map of {map_size_bytes} bytes: {error}"
        ) from error
    return env


def _extend(data_path: Path, env: lmdb.Environment) -> None:
    """Lengthen a file that ends before its last page: damage then is an error, not a SIGBUS.

    A sound file may be short too: pages allocated and freed within one transaction are never
    written.
    """
    needed_bytes = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if data_path.stat().st_size < needed_bytes:
        os.truncate(data_path, needed_bytes)


def sync_and_close(env: lmdb.Environment) -> None:
    """Write everything to the disk and close; lmdb.Error if the disk fails."""
    try:
        env.sync(True)
    finally:
        env.close()


def open_tables(env: lmdb.Environment, path: Path) -> "list[lmdb._Database]":
    """Check the marks of the format (write them if the environment is new) and open the tables."""
    try:
        with env.begin(write=True) as txn:
            record = txn.get(FORMAT_KEY)
            if record is not None:
                has_sums = has_checksums(txn, path)
                _check_format(record, path, has_sums=has_sums)
            elif txn.stat()["entries"]:
                raise DataDirError(f"{path} is an LMDB environment of another program")
            else:
                txn.put(FORMAT_KEY, _format_record())
                txn.put(SUMS_KEY, SUMS_KIND)
            return [env.open_db(bucket, txn=txn) for bucket in BUCKETS]
    except DAMAGE_ERRORS as error:
        raise CorruptionError(f"{path / 'data.mdb'}: {error}") from error
    except lmdb.Error as error:
        raise DataDirError(f"{path} cannot be written: {error}") from error


def has_checksums(txn: "lmdb.Transaction[Any]", path: Path) -> bool:
    """Return whether the rows have checksums; CorruptionError for a mark that cannot be read."""
    mark = txn.get(SUMS_KEY)
    if mark is not None and bytes(mark) != SUMS_KIND:
        raise CorruptionError(
            f"{path / 'data.mdb'}: the mark {SUMS_KEY.decode()!r} is {bytes(mark)!r}, "
            f"not {SUMS_KIND!r}"
        )
    return mark is not None


def sums_of(*, has_sums: bool) -> RowSums:
    """Return how the rows of an environment are stored."""
    return PYTHON_SUMS if has_sums else UNSUMMED


def _format_record() -> bytes:
    # Imported here: a process that only reads does not need it.
    import msgpack

    record: bytes = msgpack.packb({"format": FORMAT_VERSION, "created_by": SERVER_VERSION})
    return record


def _check_format(record: bytes, path: Path, *, has_sums: bool) -> None:
    import msgpack

    try:
        fields = msgpack.unpackb(record)
        version, created_by = fields["format"], fields["created_by"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"{path}: the format record {record!r} cannot be read") from error
    if version > FORMAT_VERSION:
        raise DataDirError(
            f"{path} has format {version} (created by version {created_by}); this is version "
            f"{SERVER_VERSION}, which reads formats up to {FORMAT_VERSION}"
        )
    if has_sums != (version >= FORMAT_WITH_SUMS):
        raise CorruptionError(
            f"{path / 'data.mdb'}: its format is {version}, and the mark of checksums "
            f"{'exists' if has_sums else 'is missing'}: one of them is damaged"
        )
