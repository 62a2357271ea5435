"""The usage of a pod's volume, from its driver or its file system."""

import os
from pathlib import Path
from typing import NamedTuple


class Usage(NamedTuple):
    """The usage of a resource of a volume."""

    available: int
    total: int
    used: int


class Fill(NamedTuple):
    """The usage of a volume; None: unknown."""

    bytes: Usage | None
    inodes: Usage | None


class VolumeStats(NamedTuple):
    """The usage of a pod's volume."""

    name: str
    """The volume's name in the pod."""
    claim: str
    """The claim that it is bound to; empty: it is inline."""
    fill: Fill


def fill_of(path: Path) -> Fill | None:
    """Return how full the file system of a path is; None: it cannot be read."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return None
    size = disk.f_frsize
    used = (disk.f_blocks - disk.f_bfree) * size
    inodes = Usage(disk.f_ffree, disk.f_files, disk.f_files - disk.f_ffree)
    return Fill(Usage(disk.f_bavail * size, disk.f_blocks * size, used), inodes)
