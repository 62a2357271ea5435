"""What one turn frees the next one gets: the C library is told to keep it.

By itself glibc gives the end of its heap back to the system as soon as it is free, and takes large
blocks from the system one by one. A turn that answers large ranges frees some megabytes and needs
as many again in the next; the page faults of getting them back cost as much as the answers. Blocks
beyond LARGE_BYTES still come from the system and go back to it at once.

What an operator sets by environment (MALLOC_*, GLIBC_TUNABLES) is left alone, and so is any other C
library.
"""

import ctypes
import os
from collections.abc import Mapping
from typing import Final

KEPT_BYTES: Final = 32 << 20  # free at the end of the heap; more goes back
LARGE_BYTES: Final = 8 << 20
_TRIM_THRESHOLD: Final = -1  # parameters of mallopt(3)
_MMAP_THRESHOLD: Final = -3
_OPERATORS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Keep what is freed from now on, in the whole process; tell whether that can be had here."""
    libc = ctypes.CDLL(None)
    is_glibc = hasattr(libc, "gnu_get_libc_version") and hasattr(libc, "mallopt")
    if not is_glibc or any(name in environment for name in _OPERATORS):
        return False
    kept = libc.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
    return bool(kept and libc.mallopt(_MMAP_THRESHOLD, LARGE_BYTES))
