"""Settings of the C library's allocator: freed memory is kept for the next turn.

By default glibc returns the end of its heap to the system as soon as it is free, and takes large
blocks from the system one by one. A turn that answers large ranges frees some megabytes and the
next one needs as many again; the page faults cost as much as the answers. Blocks above LARGE_BYTES
still come from the system and are returned to it at once.

Settings from the environment (MALLOC_*, GLIBC_TUNABLES) and other C libraries are left alone.

protobuf's runtime has glibc give back everything that is free (malloc_trim) after every 10,000
messages. After a gigabyte of large entries was dropped from the log, one such call took 190 ms.
`FreedMemory` therefore gives memory back while entries are dropped, RETURNED_BYTES at a time.
"""

import ctypes
import os
from collections.abc import Mapping
from typing import Final

KEPT_BYTES: Final = 32 << 20  # free bytes kept at the end of the heap
RETURNED_BYTES: Final = 16 << 20
LARGE_BYTES: Final = 8 << 20
_TRIM_THRESHOLD: Final = -1  # parameters of mallopt(3)
_MMAP_THRESHOLD: Final = -3
_OPERATORS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def is_set_by_operator(environment: Mapping[str, str]) -> bool:
    """Return whether the environment configures the allocator."""
    return any(name in environment for name in _OPERATORS)


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Keep freed memory in the whole process from now on; return whether that is supported."""
    libc = ctypes.CDLL(None)
    is_glibc = hasattr(libc, "gnu_get_libc_version") and hasattr(libc, "mallopt")
    if not is_glibc or is_set_by_operator(environment):
        return False
    kept = libc.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
    return bool(kept and libc.mallopt(_MMAP_THRESHOLD, LARGE_BYTES))


class FreedMemory:
    """Gives freed memory back to the system, some megabytes at a time."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._trim = getattr(libc, "malloc_trim", None)  # None: another C library
        self._freed_bytes = 0

    def add(self, freed_bytes: int) -> None:
        """Count large objects that were freed; give memory back once there is enough of it."""
        self._freed_bytes += freed_bytes
        if self._freed_bytes >= RETURNED_BYTES and self._trim is not None:
            self._freed_bytes = 0
            self._trim(0)
