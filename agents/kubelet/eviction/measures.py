"""How much of memory, disks and processes a machine has left."""

import os
from pathlib import Path

from kvstack.agents.kubelet.eviction.evictions import Measure


def measures(pods: Path, images: Path) -> dict[str, Measure]:
    """Return what is left, by signal; pods, images: places on the disks that they use."""
    memory = dict(
        line.partition(":")[::2] for line in Path("/proc/meminfo").read_text().splitlines()
    )
    pids_max = int(Path("/proc/sys/kernel/pid_max").read_text())
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    return {
        "memory.available": Measure(_kib(memory["MemAvailable"]), _kib(memory["MemTotal"])),
        **_of_disk("nodefs", pods),
        **_of_disk("imagefs", images),
        "pid.available": Measure(pids_max - running, pids_max),
    }


def _of_disk(name: str, place: Path) -> dict[str, Measure]:
    disk = os.statvfs(place)
    return {
        f"{name}.available": Measure(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize),
        f"{name}.inodesFree": Measure(disk.f_favail, disk.f_files),
    }


def _kib(text: str) -> int:
    return int(text.split()[0]) * 1024
