"""Blocks of data.mdb that are reserved beyond its used pages: the space the database keeps back.

    | pages in use and free pages | ◄──── AHEAD_BYTES reserved ────► |
    0                             used                               reserved

Others that fill the disk cannot take them. So what the log holds can still be committed when the
disk is full, also by the next process, and compactions have pages to write to. The reserve is
extended after a commit that took more than STEP_BYTES of it. When that fails, at least
AHEAD_BYTES - STEP_BYTES are left, and the caller stops taking writes.

Where the file system cannot reserve blocks, the current free space counts instead.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kvstore.storage.allocation import free_reserved, is_refused, reserve
from kvstore.storage.lmdb.files import free_bytes

AHEAD_BYTES: Final = 64 << 20
STEP_BYTES: Final = 16 << 20


class AheadBlocks:
    """The reserve of one data.mdb."""

    def __init__(self, data_path: Path) -> None:
        """Create the reserve, empty."""
        self._path = data_path
        self._reserved_bytes = 0  # from the start of the file
        self._is_refused = False  # whether the file system cannot reserve blocks
        self.shortage = ""  # why the reserve is incomplete; empty if it is complete

    def is_due(self, used_bytes: int) -> bool:
        """Return whether the reserve is to be extended."""
        return self._reserved_bytes - used_bytes < AHEAD_BYTES - STEP_BYTES

    def extend(self, used_bytes: int) -> None:
        """Reserve up to AHEAD_BYTES beyond used_bytes; `shortage` has the reason of a failure."""
        desired_bytes = used_bytes + AHEAD_BYTES
        try:
            self._reserve(desired_bytes)
        except OSError as error:
            has_bytes = free_bytes(self._path)
            self._is_refused = is_refused(error)
            if not self._is_refused or has_bytes < AHEAD_BYTES:
                self._reserve_less(desired_bytes)
                self.shortage = (
                    f"cannot reserve {AHEAD_BYTES} bytes beyond the {used_bytes} in use of "
                    f"{self._path}: {error.strerror} ({has_bytes} bytes are free)"
                )
                return
        self.shortage = ""

    def room_bytes(self, used_bytes: int) -> int:
        """Return how many bytes beyond used_bytes are reserved, or free if none can be reserved."""
        if self._is_refused:
            return free_bytes(self._path)
        return max(self._reserved_bytes - used_bytes, 0)

    def give_back(self, used_bytes: int) -> None:
        """Free all but STEP_BYTES of the reserve, for a copy of the database; raises OSError."""
        with _opened(self._path) as descriptor:
            free_reserved(descriptor)
        self._reserved_bytes = used_bytes
        self._reserve(used_bytes + STEP_BYTES)

    def _reserve_less(self, desired_bytes: int) -> None:
        """Reserve as many steps as there is space for."""
        size_bytes = desired_bytes - STEP_BYTES
        while size_bytes > max(self._reserved_bytes, desired_bytes - AHEAD_BYTES):
            with suppress(OSError):
                self._reserve(size_bytes)
                return
            size_bytes -= STEP_BYTES

    def _reserve(self, size_bytes: int) -> None:
        with _opened(self._path) as descriptor:
            # From the start: pages that were never written may have no blocks either.
            reserve(descriptor, 0, size_bytes)
        self._reserved_bytes = size_bytes


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
