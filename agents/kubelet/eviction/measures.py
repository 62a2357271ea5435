"""Available memory, disk and processes of a machine."""

import os
from pathlib import Path
from typing import NamedTuple

from kvstack.agents.kubelet.eviction.evictions import Measure


class Memory(NamedTuple):
    """The memory of a machine, in bytes."""

    total: int
    used: int
    working_set: int
    """The usage without inactive files."""
    rss: int
    swap_total: int = 0
    swap_used: int = 0


def memory_of(text: str) -> Memory:
    """Return what /proc/meminfo says, as the sum of all control groups would."""
    values = {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (line.partition(":") for line in text.splitlines())
    }
    files = values["Cached"] + values["Buffers"]
    used = values["AnonPages"] + files
    working_set = max(used - values.get("Inactive(file)", 0), 0)
    swap = values.get("SwapTotal", 0)
    swapped = swap - values.get("SwapFree", swap)
    return Memory(values["MemTotal"], used, working_set, values["AnonPages"], swap, swapped)


def measures(pods: Path, images: Path) -> dict[str, Measure]:
    """Return what is left, by signal; pods, images: places on the disks that they use."""
    memory = memory_of(Path("/proc/meminfo").read_text())
    pids_max = int(Path("/proc/sys/kernel/pid_max").read_text())
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    return {
        "memory.available": Measure(max(memory.total - memory.working_set, 0), memory.total),
        **_of_disk("nodefs", pods),
        **_of_disk("imagefs", images),
        "pid.available": Measure(pids_max - running, pids_max),
    }


def disk_available(path: Path) -> Measure:
    """Return what is left of the disk that a directory is on."""
    return _of_disk("nodefs", path)["nodefs.available"]


def _of_disk(name: str, path: Path) -> dict[str, Measure]:
    disk = os.statvfs(path)
    return {
        f"{name}.available": Measure(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize),
        f"{name}.inodesFree": Measure(disk.f_favail, disk.f_files),
    }
