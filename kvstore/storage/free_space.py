"""The disk space that database files written for clients and members must leave free."""

import os
from pathlib import Path
from typing import Final

from kvstore.errors import DataDirError

FREE_BYTES_MIN: Final = 128 << 20  # two segments of the log


def check_free_space(directory: Path) -> None:
    """Raise DataDirError if less than FREE_BYTES_MIN are free."""
    disk = os.statvfs(directory)
    free_bytes = disk.f_bavail * disk.f_frsize
    if free_bytes < FREE_BYTES_MIN:
        raise DataDirError(
            f"{directory} has {free_bytes} bytes free; a snapshot must leave {FREE_BYTES_MIN} free"
        )
