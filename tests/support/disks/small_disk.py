"""A disk of a chosen size: a tmpfs, or ext4 in a file, where this process may mount one."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MEASURES_MAX = 100


_FILLED_STEP_BYTES = 1 << 20
_BLOCK_BYTES = 4096


class SmallDisk:
    """A mounted file system."""

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

    def fill(self) -> Path:
        """Let somebody else take all that is free; return the file that has it."""
        path = self.path / "filler"
        with path.open("ab", buffering=0) as file:
            step_bytes = _FILLED_STEP_BYTES
            while step_bytes >= _BLOCK_BYTES:
                try:
                    written = file.write(b"x" * step_bytes)
                    os.fsync(file.fileno())
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    written = 0
                if written < step_bytes:
                    step_bytes //= 2
        return path

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


@contextmanager
def ext4_disk(path: Path, size_mib: int) -> Iterator[SmallDisk]:
    """Mount an ext4 in a file at path; the test is skipped where that is not allowed."""
    path.mkdir()
    image = path.with_name(f"{path.name}.img")
    with image.open("wb") as file:
        file.truncate(size_mib << 20)
    for command in (
        ["mkfs.ext4", "-q", "-F", "-m", "0", str(image)],
        ["mount", "-o", "loop", str(image), str(path)],
    ):
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no ext4 can be mounted from a file: {error}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
        image.unlink()
