"""Runs a function in a temporary network namespace, of which nothing remains.

    in_own_network(lambda: subprocess.run(["iptables-restore", …]))

It serves to try what the kernel lets this process do. Raises OSError if no namespace can be made,
and the errors of the function.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

_T = TypeVar("_T")
_NEW_NETWORK: Final = 0x40000000


def in_own_network(work: Callable[[], _T]) -> _T:
    """Return the result of a function, run in a thread with a network namespace of its own."""

    def run() -> _T:
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot create a network namespace: {os.strerror(code)}")
        return work()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(run).result()
