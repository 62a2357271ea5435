"""What a process costs, read from Linux's /proc: memory now, CPU time so far.

    memory(pid)       resident, of it anonymous (heap) and of it file pages (a mapped database)
    cpu_seconds(pid)  user and system time of all its threads, in steps of a clock tick (10 ms)

File pages are the page cache seen through a mapping: the kernel takes them back when it needs the
room, so `anon` is what a process really holds. Both count in what `ps` and a container's limit see.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_KIB: Final = 1024


class Memory(NamedTuple):
    """Bytes of resident memory."""

    rss_bytes: int
    anon_bytes: int
    file_bytes: int


def parse_status(text: str) -> Memory:
    """Return the memory lines of a /proc/<pid>/status; KeyError if one is missing."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    rss, anon, file = (
        int(fields[name].split()[0]) * _KIB for name in ("VmRSS", "RssAnon", "RssFile")
    )
    return Memory(rss, anon, file)


def parse_stat(text: str) -> int:
    """Return user and system clock ticks of a /proc/<pid>/stat line."""
    fields = text[text.rindex(")") + 2 :].split()  # the command before it may hold anything
    return int(fields[11]) + int(fields[12])


def memory(pid: int) -> Memory:
    """Return what a process has in memory now."""
    return parse_status(Path(f"/proc/{pid}/status").read_text())


def cpu_seconds(pid: int) -> float:
    """Return the CPU time a process has used, without that of its children."""
    return parse_stat(Path(f"/proc/{pid}/stat").read_text()) / _TICKS_PER_SECOND


class Meter:
    """CPU time that some processes use from when this is made."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._begin = {pid: cpu_seconds(pid) for pid in pids}

    def used_s(self) -> tuple[float, ...]:
        """Return the seconds of each, in the order they were given."""
        return tuple(cpu_seconds(pid) - begin for pid, begin in self._begin.items())
