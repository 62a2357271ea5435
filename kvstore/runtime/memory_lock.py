"""--memory-mlock: the pages this process uses stay in memory and are never swapped out.

This holds for the whole process, including the database's map and the new map after a
defragmentation. A page is locked when it is first used (MCL_ONFAULT), because locking the whole map
would count all the address space that is reserved for it.
"""

import ctypes
import os
from typing import Final

from kvstack.component.errors import ConfigError

_CURRENT: Final = 1
_FUTURE: Final = 2
_ON_FAULT: Final = 4


def lock_memory() -> None:
    """Lock all present and future pages; ConfigError if the system does not allow it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_CURRENT | _FUTURE | _ON_FAULT) != 0:
        raise ConfigError(
            f"--memory-mlock: {os.strerror(ctypes.get_errno())}: "
            "the process may not lock that much (ulimit -l, or the capability CAP_IPC_LOCK)"
        )
