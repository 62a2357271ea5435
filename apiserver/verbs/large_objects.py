"""Work on large objects, on a thread beside the loop, so that other requests go on meanwhile.

    obj = await large_objects.run(read_body, call, given)

Only pure functions of a request's own objects are run here: to decode, default, validate, own and
encode. One thread takes them in the order in which they came: two would not be faster, since Python
runs one of them at a time, and the loop would have to wait for its turn twice as often. How long
the loop waits for the thread is the interpreter's switch interval (SWITCH_S).

What does not take long is done on the loop: see `Call.apart`.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

LARGE_BYTES: Final = 64 << 10
"""A body, an object or a list of so many bytes is large: it may take 10 ms a step."""
SWITCH_S: Final = 0.0005
"""How long one thread keeps Python's lock while another wants it."""

P = ParamSpec("P")
T = TypeVar("T")


class LargeObjects:
    """The thread; it starts with the first large object."""

    def __init__(self) -> None:
        """Begin without a thread."""
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function returns, or raise what it raises."""
        if self._executor is None:
            sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
            self._executor = ThreadPoolExecutor(1, "large-objects")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Let the thread end when it is done; what waits for it is not begun."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None
