"""How much of a disk the database files on their way to somebody may take."""

import os
from pathlib import Path
from typing import Final

from kvstore.errors import DataDirError

FREE_BYTES_MIN: Final = 128 << 20  # two segments of the log


def check_room(directory: Path) -> None:
    """Raise DataDirError if the disk has no room left that a snapshot may take."""
    disk = os.statvfs(directory)
    free_bytes = disk.f_bavail * disk.f_frsize
    if free_bytes < FREE_BYTES_MIN:
        raise DataDirError(
            f"{directory} has {free_bytes} bytes left, a snapshot leaves {FREE_BYTES_MIN} free"
        )
