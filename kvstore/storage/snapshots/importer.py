"""The process that makes an LMDB state of a database received from another member.

    python -m kvstore.storage.snapshots.importer <member directory> <index> <database file>
    ← on standard input: how many bytes of the file have arrived (see `arrival`)
    → exit code 0: the file is complete, the state is there and durable (see `received`)
    → exit code 1: the reason on standard error, no state

It is a process of its own, so that it does not share the interpreter with the turn: copying takes
longer the larger the database is. It copies what has arrived while the rest is being received. If
its parent ends, its standard input ends too, and there is no state.
"""

import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from kvstack.component.errors import ComponentError
from kvstore.storage.snapshots.arrival import PipeArrival
from kvstore.storage.snapshots.received import prepare_received


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    if len(arguments) != 3 or not arguments[1].isdigit():
        sys.stderr.write("usage: importer <member directory> <index> <database file>\n")
        return 2
    member_dir, index, file = Path(arguments[0]), int(arguments[1]), Path(arguments[2])
    try:
        prepare_received(member_dir, index, file, PipeArrival(sys.stdin.fileno()))
    except (ComponentError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    gc.disable()  # millions of rows are made and freed, none in a cycle
    sys.exit(main(sys.argv[1:]))
