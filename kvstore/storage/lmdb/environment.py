"""Opens the LMDB environment of a state: its map, its tables, the record of its format.

    main table     bucket names, and FORMAT_KEY → msgpack {format, created_by}
    named tables   one for each bucket (BUCKETS)

An environment that holds anything but an empty main table and has no format record belongs to
another program and is refused. So is a newer format.
"""

import os
from pathlib import Path
from typing import Final

import lmdb

from kvstore.backend import BUCKETS
from kvstore.errors import CorruptionError, DataDirError
from kvstore.types import SERVER_VERSION

FORMAT_KEY: Final = b"kvstore"
FORMAT_VERSION: Final = 1
MAP_SIZE_BYTES: Final = 256 << 30
TABLES_MAX: Final = len(BUCKETS)
DAMAGE_ERRORS: Final = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError)


def open_environment(path: Path, map_size_bytes: int, *, sync: bool) -> lmdb.Environment:
    """Open or make the environment at path; CorruptionError if it is no LMDB file, DataDirError."""
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
    """Check the format record (write it if the environment is new) and open the tables."""
    try:
        with env.begin(write=True) as txn:
            record = txn.get(FORMAT_KEY)
            if record is not None:
                _check_format(record, path)
            elif txn.stat()["entries"]:
                raise DataDirError(f"{path} is an LMDB environment of another program")
            else:
                txn.put(FORMAT_KEY, _format_record())
            return [env.open_db(bucket, txn=txn) for bucket in BUCKETS]
    except DAMAGE_ERRORS as error:
        raise CorruptionError(f"{path / 'data.mdb'}: {error}") from error
    except lmdb.Error as error:
        raise DataDirError(f"{path} cannot be written: {error}") from error


def _format_record() -> bytes:
    # Imported here: a process that only reads does not need it.
    import msgpack  # type: ignore[import-untyped]

    record: bytes = msgpack.packb({"format": FORMAT_VERSION, "created_by": SERVER_VERSION})
    return record


def _check_format(record: bytes, path: Path) -> None:
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
