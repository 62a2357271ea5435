"""The mount table of this machine: mounts under a directory, and unmounting.

points_below("/var/lib/x/pods/u")     the deepest first
"""

import os
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import syscalls

_TABLE: Final = Path("/proc/self/mountinfo")
_ESCAPES: Final = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))
_NO_SUCH: Final = 22  # EINVAL: not a mount point


def points_below(directory: Path, table: str | None = None) -> list[str]:
    """Return where something is mounted in a directory or at it, the deepest first; OSError.

    table: as the kernel writes it; None: of this process.
    """
    place = os.path.realpath(directory)
    points = []
    for line in (_TABLE.read_text() if table is None else table).splitlines():
        point = _plain(line.split(" ", 5)[4])
        if point == place or point.startswith(f"{place}/"):
            points.append(point)
    return points[::-1]


def source_of(path: Path, table: str | None = None) -> str:
    """Return what is mounted where a path is, as the device of a disk; OSError.

    table: as the kernel writes it; None: of this process.
    """
    place = os.path.realpath(path)
    longest, found = -1, ""
    for line in (_TABLE.read_text() if table is None else table).splitlines():
        own, _, of_disk = line.partition(" - ")
        point = _plain(own.split(" ", 5)[4])
        if len(point) >= longest and (place == point or place.startswith(f"{point.rstrip('/')}/")):
            longest, found = len(point), _plain(of_disk.split(" ")[1])
    return found


def _plain(text: str) -> str:
    for escape, character in _ESCAPES:
        text = text.replace(escape, character)
    return text


def take_away(directory: Path, *, spares: str = "") -> None:
    """Unmount everything in a directory, or at it; OSError.

    spares: the name of a directory; what is mounted below one of that name stays.
    """
    for point in points_below(directory):
        if spares and f"/{spares}/" in point:
            continue
        try:
            syscalls.unmount(point, syscalls.MNT_DETACH)
        except OSError as error:
            if error.errno != _NO_SUCH:
                raise
