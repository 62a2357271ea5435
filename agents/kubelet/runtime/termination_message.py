"""The termination message of a container: the file of its spec, or the end of its log."""

import os
import stat
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.pods.logs import Reader, Selection

_BYTES_MAX: Final = 4096
_LOG_BYTES_MAX: Final = 2048
_LOG_LINES_MAX: Final = 80
_TAIL_BYTES: Final = 1 << 18
"""The part of a log file that is read: enough for so many lines of usual length."""


def termination_message(message: Path | None, log: Path, *, falls_back: bool) -> str:
    """Return the text for a container's status.

    message: where it may have left one. log: in the form of CRI. falls_back: whether the end of the
    log stands in for a message that is missing. A file that is gone counts as empty.
    """
    data = _end_of(message, _BYTES_MAX) if message is not None else b""
    if not data and falls_back:
        entries = _end_of(log, _TAIL_BYTES).split(b"\n")[:-1]
        # As a reader of the log sees it: a line in several entries has one newline, at its end.
        data = Reader(Selection()).read(entries[-_LOG_LINES_MAX:])[-_LOG_BYTES_MAX:]
    return data.decode("utf-8", "replace")


def _end_of(file: Path, bytes_max: int) -> bytes:
    """Return the end of a file that a container may have written; no link, no pipe."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(file, flags), "rb") as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                return b""
            opened.seek(max(found.st_size - bytes_max, 0))
            return opened.read(bytes_max)
    except OSError:
        return b""  # it went with its pod
