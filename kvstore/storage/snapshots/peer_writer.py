"""The process that writes the state out for another member, to be sent while it is written.

    python -m kvstore.storage.snapshots.peer_writer <member directory> <out file>
    → on standard output: length u32 | position (see `peer_snapshot_head`) | size u64 | how far the
      file has come (see `arrival.py`); exit code 0
    → the reason on standard error, exit code 1

What names the position in raft's log is read from the commit that is written, so both say the same
whatever has been committed since the snapshot was asked for. It is told as soon as it is known, so
that the other member gets ready while the file is planned; not where planning may take so long that
the silence after it would pass for the end. The LMDB snapshot is held while the file is written and
not while it is sent: a slow member keeps no pages from being reused. Writing ends with an error
while FREE_BYTES_MIN are still free, as for clients.

A member waits for this process to begin, so it loads what it needs and no more: no codec, and of
the position it makes no message.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvstore.errors import CorruptionError, KvstoreError
from kvstore.mvcc.backend import BUCKETS, Table
from kvstore.mvcc.meta_rows import (
    CLUSTER_VERSION_KEY,
    CONF_STATE_KEY,
    CONSISTENT_INDEX_KEY,
    TERM_KEY,
)
from kvstore.storage.disk_room import check_room
from kvstore.storage.etcd_db.stream import Scan, plan_db
from kvstore.storage.lmdb.backend import ReadSnapshot, open_reader
from kvstore.storage.snapshots.arrival import is_due, word

EARLY_PAGES_MAX: Final = 10_000  # read for a plan well within the time a receiver is patient


def write(member_dir: Path, out: Path, told: int) -> None:
    """Write the last commit under member_dir to out, telling the descriptor told.

    Raises KvstoreError or OSError; the file is for the reader to remove.
    """
    with open_reader(member_dir, views=True) as state, out.open("xb", buffering=0) as file:
        position = _position_of(state, member_dir)
        head = len(position).to_bytes(4, "big") + position
        if sum(map(state.leaf_pages, Table)) <= EARLY_PAGES_MAX:
            _write(told, head)
            head = b""
        plan = plan_db([(BUCKETS[table], _scan(state, table)) for table in Table])
        _write(told, head + plan.size_bytes.to_bytes(8, "big"))
        written = said = 0
        said_s = time.monotonic()
        for piece in plan.pieces():
            check_room(out.parent)
            _write(file.fileno(), piece)
            written += len(piece)
            now_s = time.monotonic()
            if is_due(written, said, now_s - said_s):
                said, said_s = written, now_s
                _write(told, word(written))
        if written != plan.size_bytes:
            raise CorruptionError(f"{out}: {written} bytes, planned were {plan.size_bytes}")
    _write(told, word(written, is_whole=True))


def _position_of(state: ReadSnapshot, member_dir: Path) -> bytes:
    """Return where a state stands, as the parent reads it; CorruptionError if nowhere."""
    meta = dict(state.scan(Table.META))
    index = int.from_bytes(meta.get(CONSISTENT_INDEX_KEY, b""), "big")
    term = int.from_bytes(meta.get(TERM_KEY, b""), "big")
    if index == 0 or CONF_STATE_KEY not in meta:
        raise CorruptionError(f"{member_dir}: the state names no position of the log")
    version = dict(state.scan(Table.CLUSTER)).get(CLUSTER_VERSION_KEY)
    try:
        position = {
            "index": index,
            "term": term,
            "conf_state": meta[CONF_STATE_KEY].decode(),
            "members": [row.decode() for _, row in state.scan(Table.MEMBERS)],
            "removed": [key.decode() for key, _ in state.scan(Table.MEMBERS_REMOVED)],
            "version": version.decode() if version else None,
        }
    except UnicodeDecodeError as error:
        raise CorruptionError(f"{member_dir}: a row of its members is no text: {error}") from None
    return json.dumps(position).encode()


def _scan(state: ReadSnapshot, table: Table) -> Scan:
    return lambda: state.views(table)


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    if len(arguments) != 2:
        sys.stderr.write("usage: peer_writer <member directory> <out file>\n")
        return 2
    try:
        write(Path(arguments[0]), Path(arguments[1]), sys.stdout.fileno())
    except (KvstoreError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    gc.disable()  # rows come and go by the million and make no cycles
    sys.exit(main(sys.argv[1:]))
