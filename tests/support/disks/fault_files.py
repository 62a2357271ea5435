"""Disks for the tests of whatever stands on the disk port: one that fails, one that is fast."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from typing_extensions import override

from kvstore.storage.files import OsFiles

T = TypeVar("T")
SECTOR_BYTES = 512


class UnsyncedFiles(OsFiles):
    """The real disk without its slowest part, for tests in which nobody pulls a real plug."""

    @override
    def begin_writeback(self, handle: int, offset: int, size_bytes: int) -> None:
        pass

    @override
    def sync_data(self, handle: int) -> None:
        pass

    @override
    def sync(self, handle: int) -> None:
        pass

    @override
    def sync_directory(self, path: Path) -> None:
        pass


class FaultFiles(UnsyncedFiles):
    """A disk whose changing call number fail_at (from 0) fails, and with it all later ones.

    A short write takes some whole sectors first, as a full disk does. `calls` names what was done.
    """

    def __init__(
        self,
        fail_at: int | None = None,
        *,
        short_write: bool = False,
        error_number: int = errno.ENOSPC,
    ) -> None:
        self.error_number = error_number
        self.calls: list[str] = []
        self.fail_at = fail_at
        self.short_write = short_write

    def _do(self, name: str, operation: Callable[[], T]) -> T:
        self.calls.append(name)
        if self.fail_at is not None and len(self.calls) > self.fail_at:
            raise OSError(self.error_number, os.strerror(self.error_number))
        return operation()

    @override
    def make_directory(self, path: Path) -> None:
        self._do("make_directory", lambda: super(FaultFiles, self).make_directory(path))

    @override
    def remove(self, path: Path) -> None:
        self._do("remove", lambda: super(FaultFiles, self).remove(path))

    @override
    def remove_tree(self, path: Path) -> None:
        self._do("remove_tree", lambda: super(FaultFiles, self).remove_tree(path))

    @override
    def rename(self, old: Path, new: Path) -> None:
        self._do("rename", lambda: super(FaultFiles, self).rename(old, new))

    @override
    def sync_directory(self, path: Path) -> None:
        self._do("sync_directory", lambda: super(FaultFiles, self).sync_directory(path))

    @override
    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        if not create:
            return super().open(path, write=write)
        return self._do("create", lambda: super(FaultFiles, self).open(path, create=True))

    @override
    def write(self, handle: int, offset: int, data: bytes) -> int:
        taken = (offset + len(data) // 2) // SECTOR_BYTES * SECTOR_BYTES - offset
        if self.short_write and self.fail_at == len(self.calls) and taken > 0:
            self.calls.append("short_write")
            return super().write(handle, offset, data[:taken])
        return self._do("write", lambda: super(FaultFiles, self).write(handle, offset, data))

    @override
    def truncate(self, handle: int, size_bytes: int) -> None:
        self._do("truncate", lambda: super(FaultFiles, self).truncate(handle, size_bytes))

    @override
    def allocate(self, handle: int, size_bytes: int) -> None:
        self._do("allocate", lambda: super(FaultFiles, self).allocate(handle, size_bytes))

    @override
    def begin_writeback(self, handle: int, offset: int, size_bytes: int) -> None:
        self.calls.append("begin_writeback")  # it never fails

    @override
    def sync_data(self, handle: int) -> None:
        self._do("sync_data", lambda: super(FaultFiles, self).sync_data(handle))

    @override
    def sync(self, handle: int) -> None:
        self._do("sync", lambda: super(FaultFiles, self).sync(handle))
