"""Waiting for conditions, with a deadline: what tests do instead of sleeping.

    wait_for(lambda: server.is_ready, "the server is ready")     returns the condition's result
    await eventually(lambda: stream.events)                      the same on an event loop

A condition is asked again and again, so it may not change anything. One that raises ends the wait.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

WAIT_S: Final = 90.0
"""Long enough for a busy machine; a test that fails waits so long."""
POLL_S: Final = 0.02


def wait_for(
    condition: Callable[[], T | None],
    what: str = "the condition",
    timeout_s: float = WAIT_S,
    *,
    every_s: float = POLL_S,
) -> T:
    """Return the condition's result once it is true; AssertionError: not within timeout_s."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(every_s)
    return found


async def eventually(
    condition: Callable[[], T | None], *, within_s: float = 60.0, every_s: float = POLL_S
) -> T:
    """Return the condition's result once it is true; AssertionError: not within within_s.

    Time is that of the running loop, which may be virtual.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not (found := condition()):
        assert loop.time() <= deadline_s, f"not within {within_s:g} s"
        await asyncio.sleep(every_s)
    return found
