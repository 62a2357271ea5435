"""Links between API servers and their store that can be cut off, from tests that are no coroutines.

with store_links(store.client_port, 2) as links:
    links.urls → one for each API server
    links.stall(0); links.flow(0); links.cut(0)
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from tests.support.network.tcp_relay import TcpRelay

TIMEOUT_S = 60.0


class StoreLinks:
    """Relays on a loop of their own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, relays: list[TcpRelay]) -> None:
        self._loop = loop
        self._relays = relays

    @property
    def urls(self) -> list[str]:
        return [f"http://{relay.endpoint}" for relay in self._relays]

    def stall(self, number: int) -> None:
        """Let nothing through; who waits is not told."""
        self._do(self._relays[number].stall)

    def flow(self, number: int) -> None:
        """Let everything through again, also what was held back."""
        self._do(self._relays[number].flow)

    def cut(self, number: int) -> None:
        """Reset all connections; new ones are taken."""
        self._do(self._relays[number].cut)

    def _do(self, operation: Callable[[], None]) -> None:
        async def run() -> None:
            operation()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(TIMEOUT_S)


@contextmanager
def store_links(port: int, count: int) -> Iterator[StoreLinks]:
    """Make links to a store's port; end them in the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def wait(coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(TIMEOUT_S)

    stack = AsyncExitStack()

    async def open_all() -> list[TcpRelay]:
        return [await stack.enter_async_context(TcpRelay(port)) for _ in range(count)]

    try:
        yield StoreLinks(loop, wait(open_all()))
    finally:
        wait(stack.aclose())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(TIMEOUT_S)
        loop.close()
