"""Waiting for conditions, with a deadline: what tests do instead of sleeping.

    wait_for(lambda: server.is_ready, "the server is ready")     returns the condition's result
    is_met(lambda: server.is_ready, 5.0)                         whether it became so in time
    await eventually(lambda: stream.events)                      the same on an event loop
    await answered(lambda: api.get(PODS, "default", "web"))      what is awaited
    await stands_still(lambda: stream.sent)                      until it changes no more

A condition is asked again and again, so it may not change anything. One that raises ends the wait.
One that takes long (a program that is run, say) is asked the less often: a wait takes a third of a
processor at most, and what is waited for has the rest.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
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
    what: str | Callable[[], object] = "the condition",
    timeout_s: float = WAIT_S,
    *,
    every_s: float = POLL_S,
) -> T:
    """Return the condition's result once it is true; AssertionError: not within timeout_s.

    what: is waited for, or a function that says then how it stands, such as a server's log.
    """
    found = _tried(condition, timeout_s, every_s)
    if not found:
        text = what if isinstance(what, str) else what()
        raise AssertionError(f"{text}: not within {timeout_s:g} s")
    return found


def is_met(
    condition: Callable[[], object], timeout_s: float = WAIT_S, *, every_s: float = POLL_S
) -> bool:
    """Return whether a condition became true in time."""
    return bool(_tried(condition, timeout_s, every_s))


def _tried(condition: Callable[[], T | None], timeout_s: float, every_s: float) -> T | None:
    """Return the condition's result once it is true, or what it was at the end."""
    begin_s = time.monotonic()
    deadline_s = begin_s + timeout_s
    while not (found := condition()):
        now_s = time.monotonic()
        if now_s >= deadline_s:
            break
        time.sleep(_pause_s(every_s, now_s - begin_s))
        begin_s = time.monotonic()
    return found


async def eventually(
    condition: Callable[[], T | None], *, within_s: float = 60.0, every_s: float = POLL_S
) -> T:
    """Return the condition's result once it is true; AssertionError: not within within_s.

    Time is that of the running loop, which may be virtual.
    """

    async def read() -> T | None:
        return condition()

    return await answered(read, within_s=within_s, every_s=every_s)


async def answered(
    read: Callable[[], Awaitable[T | None]], *, within_s: float = 60.0, every_s: float = POLL_S
) -> T:
    """Return what is read once it is true; AssertionError: not within within_s of the loop."""
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    deadline_s = begin_s + within_s
    while not (found := await read()):
        now_s = loop.time()
        assert now_s <= deadline_s, f"not within {within_s:g} s"
        await asyncio.sleep(_pause_s(every_s, now_s - begin_s))
        begin_s = loop.time()
    return found


async def stands_still(value: Callable[[], T], *, for_s: float = 0.1) -> T:
    """Return a value once it is for so long what it was."""
    before = value()
    while True:
        await asyncio.sleep(for_s)
        if (now := value()) == before:
            return now
        before = now


def _pause_s(every_s: float, took_s: float) -> float:
    return max(every_s, min(took_s * PAUSES, PAUSE_MAX_S))
