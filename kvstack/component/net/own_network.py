"""Work in a network namespace that is made for it and ends with it: nothing of it stays.

    in_own_network(lambda: subprocess.run(["iptables-restore", …]))

What a kernel lets this process do is found out there by doing it. Raises OSError if no namespace
can be made, and what the work raises.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

_T = TypeVar("_T")
_NEW_NETWORK: Final = 0x40000000


def in_own_network(work: Callable[[], _T]) -> _T:
    """Return what a function does in a thread of its own, whose network is its own, too."""

    def run() -> _T:
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"no network namespace can be made: {os.strerror(code)}")
        return work()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(run).result()
