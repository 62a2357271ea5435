"""Reports to the parent process which file will be read through a mapping.

Each report is the file's name and a zero byte, over a pipe; the last one is the file that was being
read. Without a parent (the tool used as a library) nothing is reported.
"""

import os
from pathlib import Path

_pipe_fd: int | None = None


def note_to(pipe_fd: int) -> None:
    """Report to pipe_fd from now on."""
    global _pipe_fd  # noqa: PLW0603 - the pipe is that of the whole process
    _pipe_fd = pipe_fd


def note(path: Path) -> None:
    """Report that path will be mapped."""
    if _pipe_fd is not None:
        os.write(_pipe_fd, str(path).encode(errors="replace") + b"\0")


def describe(path: str) -> str:
    """Describe a file without reading it."""
    try:
        return f"the file has {os.stat(path).st_size} bytes"
    except OSError as error:
        return str(error.strerror)
