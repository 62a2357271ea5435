"""Work that goes on when the task that waits for it is cancelled.

    container = await until_done(runtime.start(wanted))

A thread cannot be cancelled, and neither can a process that was begun: what they make after their
task has ended would be lost, and left behind when the node stops.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


async def until_done(work: Coroutine[Any, Any, _T]) -> _T:
    """Return what the work returns; a task that is cancelled waits for its end first.

    CancelledError then has what the work raised as its cause.
    """
    doing = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait([doing])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from doing.exception()
    return doing.result()
