"""The process that makes a state of ours of a database received from another member.

    python -m kvstore.storage.snapshots.taker <member directory> <index> <database file>
    ← on standard input: how far the file has come (see `arrival.py`)
    → exit code 0: the file is whole, the state is there and durable (see `received.py`)
    → exit code 1: the reason on standard error, no state

A process of its own, as the writer of snapshots is: copying rows takes as long as the database is
large, and the turn must not share its interpreter with that. It copies what has come while the rest
is on its way; if its parent ends, so does its standard input, and there is no state.
"""

import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from kvstore.errors import KvstoreError
from kvstore.storage.snapshots.arrival import PipeArrival
from kvstore.storage.snapshots.received import prepare_received


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    if len(arguments) != 3 or not arguments[1].isdigit():
        sys.stderr.write("usage: taker <member directory> <index> <database file>\n")
        return 2
    member_dir, index, file = Path(arguments[0]), int(arguments[1]), Path(arguments[2])
    try:
        prepare_received(member_dir, index, file, PipeArrival(sys.stdin.fileno()))
    except (KvstoreError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    gc.disable()  # rows come and go by the million and make no cycles
    sys.exit(main(sys.argv[1:]))
