"""Waiting for conditions, with a deadline: what tests do instead of sleeping.

    wait_for(lambda: server.is_ready, "the server is ready")     returns the condition's result
    await eventually(lambda: stream.events)                      the same on an event loop

A condition is asked again and again, so it may not change anything. One that raises ends the wait.
One that takes long (a program that is run, say) is asked the less often: a wait takes a third of a
processor at most, and what is waited for has the rest.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

WAIT_S: Final = 90.0
"""Long enough for a busy machine; a test that fails waits so long."""
POLL_S: Final = 0.02
PAUSES: Final = 2
"""So many times what the condition took passes before it is asked again…"""
PAUSE_MAX_S: Final = 1.0
"""…but no longer than this."""


def wait_for(
    condition: Callable[[], T | None],
    what: str = "the condition",
    timeout_s: float = WAIT_S,
    *,
    every_s: float = POLL_S,
) -> T:
    """Return the condition's result once it is true; AssertionError: not within timeout_s."""
    begin_s = time.monotonic()
    deadline_s = begin_s + timeout_s
    while not (found := condition()):
        now_s = time.monotonic()
        assert now_s < deadline_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(_pause_s(every_s, now_s - begin_s))
        begin_s = time.monotonic()
    return found


async def eventually(
    condition: Callable[[], T | None], *, within_s: float = 60.0, every_s: float = POLL_S
) -> T:
    """Return the condition's result once it is true; AssertionError: not within within_s.

    Time is that of the running loop, which may be virtual.
    """
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    deadline_s = begin_s + within_s
    while not (found := condition()):
        now_s = loop.time()
        assert now_s <= deadline_s, f"not within {within_s:g} s"
        await asyncio.sleep(_pause_s(every_s, now_s - begin_s))
        begin_s = loop.time()
    return found


def _pause_s(every_s: float, took_s: float) -> float:
    return max(every_s, min(took_s * PAUSES, PAUSE_MAX_S))
