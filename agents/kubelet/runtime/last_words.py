"""What a container said last: the file at its terminationMessagePath, or the end of its log."""

import os
from pathlib import Path
from typing import Final

_BYTES_MAX: Final = 4096
_LOG_BYTES_MAX: Final = 2048
_LOG_LINES_MAX: Final = 80
_TAIL_BYTES: Final = 1 << 18
"""Of a log file: enough for so many lines of usual length."""


def last_words(message: Path | None, log: Path, *, falls_back: bool) -> str:
    """Return the text for a container's status.

    message: where it may have left one. log: in the form of CRI. falls_back: whether the end of the
    log stands in for a message that is missing. A file that is gone counts as empty.
    """
    data = _end_of(message, _BYTES_MAX) if message is not None else b""
    if not data and falls_back:
        lines = _end_of(log, _TAIL_BYTES).split(b"\n")[:-1]
        texts = [line.split(b" ", 3)[-1] for line in lines[-_LOG_LINES_MAX:]]
        data = b"".join(text + b"\n" for text in texts)[-_LOG_BYTES_MAX:]
    return data.decode("utf-8", "replace")


def _end_of(file: Path, bytes_max: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(max(os.fstat(opened.fileno()).st_size - bytes_max, 0))
            return opened.read()
    except OSError:
        return b""  # it went with its pod
