"""A disk of a chosen size: a tmpfs, where this process may mount one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MEASURES_MAX = 100


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, size_mib: int) -> None:
        """Make it larger or smaller."""
        self._mount(f"remount,size={size_mib}m")

    def read_only(self) -> None:
        """Let nobody write any more."""
        self._mount("remount,ro")

    def leave(self, free_bytes: int) -> None:
        """Make it so small that free_bytes are free.

        A server that writes meanwhile may use more by the time of the remount, which is refused
        then: what is used is measured again.
        """
        for _ in range(_MEASURES_MAX):
            status = os.statvfs(self.path)
            used_bytes = (status.f_blocks - status.f_bfree) * status.f_frsize
            try:
                self._mount(f"remount,size={used_bytes + free_bytes}")
            except subprocess.CalledProcessError:
                continue
            return
        raise AssertionError(f"{self.path} fills faster than it can be made smaller")

    def _mount(self, options: str) -> None:
        subprocess.run(["mount", "-o", options, str(self.path)], check=True)


@contextmanager
def small_disk(path: Path, size_mib: int) -> Iterator[SmallDisk]:
    """Mount a tmpfs at path; the test is skipped where that is not allowed."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "none", str(path)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no tmpfs can be mounted: {error}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
