"""Resolves host names at a start, to compare peer URLs."""

import socket
import time
from collections.abc import Callable
from typing import Final

RETRY_S: Final = 1.0
BUDGET_S: Final = 30.0


def patient_resolver(
    budget_s: float = BUDGET_S, look_up: Callable[[str], str] | None = None
) -> Callable[[str], str]:
    """Return a function from a host name to its first address.

    It retries each second until all its lookups together took budget_s, since the names of members
    that start together appear one by one; then it raises the last OSError.
    """
    look_up = look_up or _look_up
    deadline_s = 0.0

    def resolve(host: str) -> str:
        nonlocal deadline_s
        deadline_s = deadline_s or time.monotonic() + budget_s
        while True:
            try:
                return look_up(host)
            except OSError:
                if time.monotonic() + RETRY_S > deadline_s:
                    raise
                time.sleep(RETRY_S)

    return resolve


def _look_up(host: str) -> str:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(found[0][4][0])
