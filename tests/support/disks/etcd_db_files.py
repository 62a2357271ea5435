"""Rows as etcd stores them, and a look at a written file that shares nothing with the reader."""

import struct
from pathlib import Path

from kvstore.backend import BUCKETS, Row
from kvstore.storage.etcd_db.reader import EtcdDbReader
from kvstore.storage.etcd_db.stream import plan_db
from kvstore.storage.etcd_db.writer import EtcdDbWriter
from kvstore.wire.splice import encode_kv

Buckets = dict[bytes, list[Row]]

PAGE = 4096
BRANCH = 1
LEAF = 2


def revision(main: int, sub: int = 0, *, tombstone: bool = False) -> bytes:
    return struct.pack(">QsQ", main, b"_", sub) + (b"t" if tombstone else b"")


def put_row(main: int, key: bytes, value: bytes = b"value") -> Row:
    return revision(main), encode_kv(key, main, main, 1, value, 0)


def sample(key_count: int, value_bytes: int = 60) -> Buckets:
    """Return all ten buckets with key_count records, one of them a tombstone if there is room."""
    rows = [put_row(2 + n, b"key%06d" % n, b"v" * value_bytes) for n in range(key_count)]
    if key_count:
        rows.append((revision(2 + key_count, tombstone=True), b"\x0a\x09key000000"))
    buckets: Buckets = {name: [] for name in BUCKETS}
    buckets[b"key"] = rows
    buckets[b"auth"] = [(b"authRevision", (1).to_bytes(8))]
    buckets[b"cluster"] = [(b"clusterVersion", b"3.7.0")]
    buckets[b"meta"] = [
        (b"consistent_index", (9).to_bytes(8)),
        (b"storageVersion", b"3.7.0"),
        (b"term", (2).to_bytes(8)),
    ]
    return buckets


def write(path: Path, buckets: Buckets) -> Path:
    with EtcdDbWriter(path, sync=False) as db:
        for name in sorted(buckets):
            db.write_bucket(name, buckets[name])
    return path


def write_planned(path: Path, buckets: Buckets) -> Path:
    """Write buckets as they are written for another member: parents before children."""
    plan = plan_db([(name, buckets[name].__iter__) for name in sorted(buckets)])
    path.write_bytes(b"".join(plan.pieces()))
    assert path.stat().st_size == plan.size_bytes
    return path


def read(path: Path) -> Buckets:
    with EtcdDbReader(path) as db:
        return {name: list(db.scan(name)) for name in db.buckets()}


def page_headers(path: Path) -> list[tuple[int, int, int, int]]:
    """Return (id, flags, count, overflow) of every page after the metas, in file order."""
    data = path.read_bytes()
    headers = []
    page_id = 2
    while page_id * PAGE < len(data):
        headers.append(struct.unpack_from("<QHHI", data, page_id * PAGE))
        page_id += 1 + headers[-1][3]
    assert page_id * PAGE == len(data)
    return headers
