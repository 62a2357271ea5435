"""Ports for servers that are told theirs before they listen.

Between the choice of a port and its use nobody else may take it: no other test process, which has
a block of ports of its own (a lock on a file, let go by the system when the process ends), and no
outgoing connection, which the system gives a port above these.
"""

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import IO, Final

_FIRST: Final = 11_000
_BLOCK: Final = 500
_BLOCKS: Final = 38  # up to 30000: node ports begin there, and at 32768 those of connections

_held: list[IO[bytes]] = []


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on now; all different, and none that came lately."""
    found: list[int] = []
    for port in _ports(os.getpid()):
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("the ports never end")


@cache
def _ports(_process: int) -> Iterator[int]:
    """Yield the ports of this process's block, again and again; a forked process has another."""
    first = _FIRST + _BLOCK * _block()
    return cycle(range(first, first + _BLOCK))


def _block() -> int:
    """Return a block that no other process has."""
    directory = Path(tempfile.gettempdir()) / f"kvstack-test-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    for number in range(_BLOCKS):
        file = (directory / str(number)).open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            continue
        _held.append(file)
        return number
    raise AssertionError(f"{_BLOCKS} test processes at once have all ports: {directory}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
