"""A client for callers without an event loop: its own loop runs while they wait.

    with OwnLoop() as loop:
        store = loop.enter(connect([url]))
        key = loop.run(store.get(b"k"))
        for piece in loop.iterate(pieces): ...

Between the calls the loop does not run: no answer is read, and watches do not advance.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class OwnLoop:
    """An event loop in the calling thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._entered = AsyncExitStack()

    def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter an asynchronous context manager, which close exits."""
        return self.run(self._entered.enter_async_context(context))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run an awaitable; return its result."""
        return self._loop.run_until_complete(work)

    def iterate(self, values: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator."""
        while True:
            try:
                yield self.run(_next(values))
            except StopAsyncIteration:
                return

    def close(self) -> None:
        """Exit the entered context managers and close the loop."""
        if self._loop.is_closed():
            return
        try:
            self.run(self._entered.aclose())
            self.run(self._loop.shutdown_asyncgens())
            self.run(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def _next(values: AsyncIterator[T]) -> T:
    return await anext(values)
