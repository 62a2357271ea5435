"""Work on large objects, in a thread beside the event loop, so that other requests go on.

    obj = await large_objects.run(read_body, call, given)

Only pure functions on a request's own objects run here: decoding, defaults, validation, field
ownership, encoding. One thread processes them in order: two would not be faster, since Python runs
one at a time, and the loop would wait for its turn twice as often. The loop waits for the thread at
most for the interpreter's switch interval (SWITCH_S).

Short work runs on the loop: see `Call.apart`.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

LARGE_BYTES: Final = 64 << 10
"""A body, object or list of this size is large: it may take 10 ms per step."""
SWITCH_S: Final = 0.0005
"""How long one thread keeps the interpreter lock while another waits for it."""

P = ParamSpec("P")
T = TypeVar("T")


class LargeObjects:
    """The thread; it starts with the first large object."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function, or raise its exception."""
        if self._executor is None:
            sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
            self._executor = ThreadPoolExecutor(1, "large-objects")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Stop the thread after its current work; queued work is not started."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None
