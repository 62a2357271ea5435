"""The limit of open files: raised for the servers, not for the programs that they start.

    soft 1024, hard 524288  ──raise_limit()──► soft 524288
                            original_limit() ► 1024        for programs of others, as in containers

A program that was built for `select()` fails with descriptors above 1023, and some close every
number up to the limit when they start. So code that starts such programs gives them the limit that
this process was started with, as Go's runtime does. Listeners leave RESERVE descriptors to the rest
of the process.
"""

import contextlib
import os
import resource
import select
import socket
import sys
import time
from typing import Final

RESERVE: Final = 150  # descriptors that connections leave to the rest of the process, as in etcd
_COUNT_INTERVAL_S: Final = 0.05
_OPEN: Final = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"

_original: list[int] = []


def raise_limit() -> None:
    """Raise the soft limit of this process to the hard one; a second call does nothing."""
    if _original:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _original.append(soft)
    if soft != hard:
        # macOS refuses some values that it reports as the hard limit; the soft one then stays.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def original_limit() -> int:
    """Return the soft limit that the process was started with; -1 is none."""
    return _original[0] if _original else resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Descriptors:
    """Checks how many descriptors the process has left, for code that accepts connections.

    A new descriptor gets the lowest free number, so there are enough as long as no number of a
    connection lies in the reserve. From then on descriptors are counted, at intervals. Of a limit
    below 2 * RESERVE half is kept.
    """

    def __init__(self) -> None:
        self._is_counting = False
        self._counted_s = float("-inf")
        self._used = 0
        self._highest = 0

    def are_short_with(self, new: int) -> bool:
        """Return whether fewer than RESERVE are left with a new one."""
        if not self._is_counting and new < _first_reserved():
            return False
        self._used += 1
        self._highest = max(self._highest, new)
        return self.are_short()

    def are_short(self) -> bool:
        """Return whether fewer than RESERVE are left."""
        now_s = time.monotonic()
        if now_s - self._counted_s >= _COUNT_INTERVAL_S:
            try:
                numbers = [int(name) for name in os.listdir(_OPEN)]
            except OSError:
                return True  # there is none for the listing
            self._counted_s = now_s
            self._used, self._highest = len(numbers), max(numbers)
        first = _first_reserved()
        self._is_counting = self._highest >= first
        return self._used > first

    def note_closed(self) -> None:
        """Note that a connection is closed."""
        self._used -= 1


def is_silent(connection: socket.socket) -> bool:
    """Return whether the socket has no unread bytes."""
    poll = select.poll()
    try:
        poll.register(connection, select.POLLIN)
    except ValueError:
        return False  # it is closed
    return not poll.poll(0)


def _first_reserved() -> float:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if limit < 0 else limit - min(RESERVE, limit // 2)
