"""States in LMDB as versions before checksums wrote them, made without the code under test."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import lmdb
import msgpack

from kvstore.backend import BUCKETS, Row, Table

MAP_BYTES = 1 << 30


def write_older_format(directory: Path, rows: Mapping[Table, Sequence[Row]]) -> None:
    """Make directory/lmdb with these rows, in format 1."""
    (directory / "lmdb").mkdir(parents=True)
    environment = lmdb.open(str(directory / "lmdb"), map_size=MAP_BYTES, max_dbs=len(BUCKETS))
    with environment as env, env.begin(write=True) as txn:
        txn.put(b"kvstore", msgpack.packb({"format": 1, "created_by": "3.7.1"}))
        for table, bucket in zip(Table, BUCKETS, strict=True):
            db = env.open_db(bucket, txn=txn)
            for key, value in rows.get(table, ()):
                txn.put(key, value, db=db)


def without_checksums(directory: Path) -> None:
    """Rewrite directory/lmdb, which nobody has open, in format 1."""
    rows: dict[Table, list[Row]] = {}
    state = directory / "lmdb"
    environment = lmdb.open(str(state), map_size=MAP_BYTES, max_dbs=len(BUCKETS))
    with environment as env, env.begin() as txn:
        assert txn.get(b"kvstore.row-checksum") == b"crc32c"
        for table, bucket in zip(Table, BUCKETS, strict=True):
            found = txn.cursor(env.open_db(bucket, txn=txn, create=False))
            rows[table] = [(key, value[:-4]) for key, value in found]
    for name in ("data.mdb", "lock.mdb"):
        (state / name).unlink()
    state.rmdir()
    write_older_format(directory, rows)
