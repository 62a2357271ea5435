"""The disk usage of a directory."""

import errno
import os
from pathlib import Path
from typing import NamedTuple

from kvstack.agents.kubelet.disk.tree_walk import entries_below


class Size(NamedTuple):
    """The disk usage of a directory."""

    bytes: int
    inodes: int


def size_of(directory: Path) -> Size:
    """Return what files under a directory take of its file system.

    What is mounted below it is not counted, nor what goes or is moved meanwhile.
    """
    total = inodes = 0
    try:
        top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return Size(0, 0)
    try:
        device = os.fstat(top).st_dev
        for _, _, status in entries_below(top, crosses_mounts=False):
            if status.st_dev == device:
                total += status.st_blocks * 512
                inodes += 1
    except OSError as error:
        if error.errno != errno.ESTALE:  # what was counted until then counts
            raise
    finally:
        os.close(top)
    return Size(total, inodes)
