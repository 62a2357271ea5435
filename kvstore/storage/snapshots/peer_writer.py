"""The process that writes the state as a file for another member, which is sent meanwhile.

    python -m kvstore.storage.snapshots.peer_writer <member directory> <out file>
    → on standard output: length u32 | position (see `peer_head`) | size u64 | reports of how much
      is written (see `arrival`); exit code 0
    → the reason on standard error, exit code 1

The position in raft's log is read from the commit that is written, so the two agree whatever has
been committed since the snapshot was requested. It is reported as soon as it is known, so that the
other member prepares itself while the file is planned. If planning may take so long that the other
member would give up, the position is reported after it. The LMDB snapshot is held while the file is
written and not while it is sent: a slow member keeps no pages from being reused. Writing ends with
an error while FREE_BYTES_MIN are still free, as for clients.

A member waits for this process to start, so it imports as little as possible: no codec is loaded,
and the position is not decoded here.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Final

from kvstack.component.errors import ComponentError
from kvstore.backend import BUCKETS, Table
from kvstore.errors import CorruptionError
from kvstore.meta_rows import (
    CLUSTER_VERSION_KEY,
    CONF_STATE_KEY,
    CONSISTENT_INDEX_KEY,
    TERM_KEY,
)
from kvstore.storage.etcd_db.stream import Scan, plan_db
from kvstore.storage.free_space import check_free_space
from kvstore.storage.lmdb.readers import ReadSnapshot, open_reader
from kvstore.storage.snapshots.arrival import is_report_due, report

EARLY_PAGES_MAX: Final = 10_000  # are planned long before a receiver gives up


def write(member_dir: Path, out: Path, reports: int) -> None:
    """Write the last commit under member_dir to out, and reports to the descriptor reports.

    Raises KvstoreError or OSError; the reader removes the file.
    """
    with open_reader(member_dir, views=True) as state, out.open("xb", buffering=0) as file:
        position = _position_of(state, member_dir)
        head = len(position).to_bytes(4, "big") + position
        if sum(map(state.leaf_pages, Table)) <= EARLY_PAGES_MAX:
            _write(reports, head)
            head = b""
        plan = plan_db([(BUCKETS[table], _scan(state, table)) for table in Table])
        _write(reports, head + plan.size_bytes.to_bytes(8, "big"))
        written = reported = 0
        reported_s = time.monotonic()
        for piece in plan.pieces():
            check_free_space(out.parent)
            _write(file.fileno(), piece)
            written += len(piece)
            now_s = time.monotonic()
            if is_report_due(written, reported, now_s - reported_s):
                reported, reported_s = written, now_s
                _write(reports, report(written))
        if written != plan.size_bytes:
            raise CorruptionError(f"{out}: wrote {written} bytes, expected {plan.size_bytes}")
    _write(reports, report(written, is_complete=True))


def _position_of(state: ReadSnapshot, member_dir: Path) -> bytes:
    """Return the position of a state in the log, encoded; CorruptionError if it has none."""
    meta = dict(state.scan(Table.META))
    index = int.from_bytes(meta.get(CONSISTENT_INDEX_KEY, b""), "big")
    term = int.from_bytes(meta.get(TERM_KEY, b""), "big")
    if index == 0 or CONF_STATE_KEY not in meta:
        raise CorruptionError(f"{member_dir}: the state has no position in the log")
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
        raise CorruptionError(f"{member_dir}: a row of its members is not text: {error}") from None
    return json.dumps(position).encode()


def _scan(state: ReadSnapshot, table: Table) -> Scan:
    """Return the scan of a table; the first time it is for sizes alone, so values are not read."""
    checks = chain([False], repeat(True))
    return lambda: state.views(table, check=next(checks))


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
    except (ComponentError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    gc.disable()  # millions of rows are made and freed, none in a cycle
    sys.exit(main(sys.argv[1:]))
