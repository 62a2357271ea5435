"""Which file is being read through a mapping, told to the parent process before it is opened.

A name and a zero byte a file, over a pipe; the last one is the one that was being read. Without a
parent that listens (the tool used as a library) notes go nowhere.
"""

import os
from pathlib import Path

_pipe_fd: int | None = None


def note_to(pipe_fd: int) -> None:
    """Send notes to pipe_fd from now on."""
    global _pipe_fd
    _pipe_fd = pipe_fd


def note(path: Path) -> None:
    """Tell that path is about to be mapped."""
    if _pipe_fd is not None:
        os.write(_pipe_fd, str(path).encode(errors="replace") + b"\0")


def describe(path: str) -> str:
    """Return what is known of a file without reading it."""
    try:
        return f"the file has {os.stat(path).st_size} bytes"
    except OSError as error:
        return str(error.strerror)
