"""The process that writes the state out as an etcd database file, for Maintenance.Snapshot.

    python -m kvstore.storage.snapshots.writer <member directory> <out file>
    → {"size": 20480, "sha256": "9f86…", "version": "3.7.0"}          one line, exit code 0
    → the reason on standard error, no file                           exit code 1

It is a process of its own, so that it does not share the interpreter with the turn. The LMDB
snapshot it reads is held only while it writes: a slow client downloads from the finished file. The
file is not synced, as it lives for one download. It must not use the disk space that the server's
log needs, so writing ends with an error while FREE_BYTES_MIN are still free.
"""

import gc
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kvstack.component.errors import ComponentError
from kvstore.backend import BUCKETS, Row, Table
from kvstore.meta_rows import (
    CONF_STATE_KEY,
    CONSISTENT_INDEX_KEY,
    STORAGE_VERSION_KEY,
    TERM_KEY,
)
from kvstore.storage.etcd_db.digest import digest
from kvstore.storage.etcd_db.writer import EtcdDbWriter
from kvstore.storage.free_space import check_free_space
from kvstore.storage.lmdb.readers import ReadSnapshot, open_reader

_ROWS_BETWEEN_CHECKS: Final = 256
_BYTES_BETWEEN_CHECKS: Final = 1 << 20


def write(member_dir: Path, out: Path) -> dict[str, int | str]:
    """Write the last commit under member_dir to out.

    Returns size, sha256, storage version and the position of the state in raft's log: index, term,
    configuration (JSON as in the meta table, empty if there is none). Raises KvstoreError or
    OSError and leaves no file behind.
    """
    meta: dict[bytes, bytes] = {}
    try:
        with open_reader(member_dir) as state, EtcdDbWriter(out, sync=False) as db:
            for table in Table:
                db.write_bucket(BUCKETS[table], _rows(state, table, out.parent))
            meta = dict(state.scan(Table.META))
        size = db.size_bytes
        sha256 = digest(out, size).hex()
    except BaseException:
        out.unlink(missing_ok=True)
        raise
    return {
        "size": size,
        "sha256": sha256,
        "version": meta.get(STORAGE_VERSION_KEY, b"").decode("ascii", "replace"),
        "index": int.from_bytes(meta.get(CONSISTENT_INDEX_KEY, b"")),
        "term": int.from_bytes(meta.get(TERM_KEY, b"")),
        "conf_state": meta.get(CONF_STATE_KEY, b"").decode("ascii", "replace"),
    }


def _rows(state: ReadSnapshot, table: Table, directory: Path) -> Iterator[Row]:
    """Yield the rows of a table; check now and then that the disk has room for more."""
    rows_left = bytes_left = 0
    for row in state.scan(table):
        bytes_left -= len(row[1])
        rows_left -= 1
        if rows_left < 0 or bytes_left < 0:
            check_free_space(directory)
            rows_left, bytes_left = _ROWS_BETWEEN_CHECKS, _BYTES_BETWEEN_CHECKS
        yield row


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    if len(arguments) != 2:
        sys.stderr.write("usage: writer <member directory> <out file>\n")
        return 2
    try:
        result = write(Path(arguments[0]), Path(arguments[1]))
    except (ComponentError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    gc.disable()  # millions of rows are made and freed, none in a cycle
    sys.exit(main(sys.argv[1:]))
