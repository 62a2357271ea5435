"""Metrics of the process as the operating system gives them: process_*, os_fd_*, and the threads.

Read in the side loop's thread. Names and help texts are Go's client library's; on a system without
/proc most of them are missing, as they are there.
"""

import os
import resource
from pathlib import Path
from typing import Final

from kvstack.component.metrics.exposition import FamilyKind, FamilySamples, Number

_STAT: Final = Path("/proc/self/stat")
_FDS: Final = Path("/proc/self/fd")
_NET: Final = Path("/proc/self/net/netstat")
_BOOT: Final = Path("/proc/stat")
_PAGE_BYTES: Final = resource.getpagesize()
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_UNLIMITED: Final = float(2**64 - 1)
# Positions in /proc/self/stat after the command, from 0; see proc(5).
_UTIME, _STIME, _THREADS, _START, _VSIZE, _RSS = 11, 12, 17, 19, 20, 21


def read_process() -> list[FamilySamples]:
    """Return the metrics that can be read."""
    if not _STAT.exists():
        return [_cpu(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))]
    fields = _STAT.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    open_fds = len(os.listdir(_FDS))
    fds_max = _limit(resource.RLIMIT_NOFILE)
    started_s = _boot_s() + int(fields[_START]) / _TICKS
    received, sent = _network_bytes()
    rows: list[tuple[str, FamilyKind, str, Number]] = [
        _cpu((int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS),
        ("process_max_fds", FamilyKind.GAUGE, "Maximum number of open file descriptors.", fds_max),
        ("process_network_receive_bytes_total", FamilyKind.COUNTER,
         "Number of bytes received by the process over the network.", received),
        ("process_network_transmit_bytes_total", FamilyKind.COUNTER,
         "Number of bytes sent by the process over the network.", sent),
        ("process_open_fds", FamilyKind.GAUGE, "Number of open file descriptors.", open_fds),
        ("process_resident_memory_bytes", FamilyKind.GAUGE, "Resident memory size in bytes.",
         int(fields[_RSS]) * _PAGE_BYTES),
        ("process_start_time_seconds", FamilyKind.GAUGE,
         "Start time of the process since unix epoch in seconds.", started_s),
        ("process_virtual_memory_bytes", FamilyKind.GAUGE, "Virtual memory size in bytes.",
         int(fields[_VSIZE])),
        ("process_virtual_memory_max_bytes", FamilyKind.GAUGE,
         "Maximum amount of virtual memory available in bytes.", _limit(resource.RLIMIT_AS)),
        ("os_fd_limit", FamilyKind.GAUGE, "The file descriptor limit.", fds_max),
        ("os_fd_used", FamilyKind.GAUGE, "The number of used file descriptors.", open_fds),
        ("go_threads", FamilyKind.GAUGE, "Number of OS threads created.", int(fields[_THREADS])),
    ]  # fmt: skip
    return list(rows)


def _cpu(spent_s: float) -> tuple[str, FamilyKind, str, Number]:
    text = "Total user and system CPU time spent in seconds."
    return "process_cpu_seconds_total", FamilyKind.COUNTER, text, spent_s


def _limit(which: int) -> float:
    soft, _ = resource.getrlimit(which)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _boot_s() -> int:
    """Return the machine's boot time in Unix seconds."""
    for line in _BOOT.read_text(encoding="ascii").splitlines():
        if line.startswith("btime "):
            return int(line.split()[1])
    raise ValueError("no btime in /proc/stat")


def _network_bytes() -> tuple[int, int]:
    """Return bytes received and sent in the process's network namespace."""
    lines = _NET.read_text(encoding="ascii").splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        if names.startswith("IpExt:"):
            row = dict(zip(names.split()[1:], values.split()[1:], strict=True))
            return int(row["InOctets"]), int(row["OutOctets"])
    return 0, 0
