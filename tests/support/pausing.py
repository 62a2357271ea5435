"""A process that stands still, as on a machine that hangs, and that goes on."""

import os
import signal
from pathlib import Path
from typing import Final

from tests.support.waiting import wait_for

STOPS_S: Final = 60.0


def pause(pid: int) -> None:
    """Stop every thread of a process; return when all of them stand still.

    The signal alone is not enough: a thread on another core runs on until the kernel reaches it,
    and may answer a call meanwhile. AssertionError after a minute.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_for(
        lambda: all(_state(thread) in "TtZX" for thread in _threads(pid)),
        f"process {pid} stands still",
        STOPS_S,
        every_s=0.001,
    )


def resume(pid: int) -> None:
    """Let a paused process go on."""
    os.kill(pid, signal.SIGCONT)


def _threads(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _state(thread: Path) -> str:
    """Return the state of a thread: R, S, T …; X if it is gone (proc(5))."""
    try:
        text = (thread / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return text.rpartition(")")[2].split()[0]
