"""--memory-mlock: the pages this process has touched stay in memory and are never swapped out.

The whole process is locked, the database's map with it, also the one that comes after a
defragmentation. A page is locked when it is first used (MCL_ONFAULT): locking the map as a whole
would count all of the address space that is set aside for it.
"""

import ctypes
import os
from typing import Final

from kvstore.errors import ConfigError

_CURRENT: Final = 1
_FUTURE: Final = 2
_ON_FAULT: Final = 4


def lock_memory() -> None:
    """Lock now and from now on; ConfigError if the system does not allow it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_CURRENT | _FUTURE | _ON_FAULT) != 0:
        raise ConfigError(
            f"--memory-mlock: {os.strerror(ctypes.get_errno())}: "
            "the process may not lock that much (ulimit -l, or the capability CAP_IPC_LOCK)"
        )
