"""The process of `kvstore-util`: the work runs in a child, so that a crash gives an error message.

    parent ── fork ──► child: commands.main
       └─ waits ◄── exit code, or a signal

LMDB reads its file through a mapping and does not check its pages: a truncated file ends the
process by SIGBUS, a damaged page by SIGSEGV or SIGABRT. The parent turns the signal into an error
that names the file, which the child reported (`mapped_file`) before it opened it.
"""

import os
import signal
import sys
from typing import Final

from kvstore.util import mapped_file

_DAMAGE: Final = frozenset({signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT})


def run() -> int:
    """Run the command with the process's own arguments; return its exit code."""
    read_fd, write_fd = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(read_fd)
        mapped_file.note_to(write_fd)
        _work()
    os.close(write_fd)
    status = _wait(child)
    with os.fdopen(read_fd, "rb") as pipe:
        files = pipe.read().decode(errors="replace").split("\0")
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    ended_by = signal.Signals(os.WTERMSIG(status))
    if ended_by in _DAMAGE and len(files) > 1:
        text = f"its pages are damaged or it was truncated (reading it ended in {ended_by.name}"
        sys.stderr.write(f"Error: {files[-2]}: {text}, {mapped_file.describe(files[-2])})\n")
        return 1
    sys.stderr.write(f"Error: ended by {ended_by.name}\n")
    return 128 + ended_by


def _work() -> None:
    """Run the command in the child and end it."""
    from kvstore.util.commands import main

    code = 1
    try:
        code = main()
        sys.stdout.flush()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int) -> int:
    """Wait for the child, even if the terminal interrupts both processes."""
    while True:
        try:
            return os.waitpid(child, 0)[1]
        except KeyboardInterrupt:
            continue
