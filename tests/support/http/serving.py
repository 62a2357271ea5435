"""A server under test on the running loop, in all its ways, and what went wrong in it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pytest

from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import Listener, ListenerLimits
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.server import Handler, HttpOptions, HttpServer
from kvstore.transport import native
from tests.support.http.clients import Client, connect
from tests.support.waiting import eventually

WAIT_S = 60.0
until = partial(eventually, every_s=0.002)
T = TypeVar("T")


class Way(NamedTuple):
    """Which server, and what is spoken with it."""

    portable: bool
    protocol: str

    def connect(self, url: str, **options: Any) -> contextlib.AbstractAsyncContextManager[Client]:
        return connect(url, self.protocol, **options)


NEEDS_NATIVE = pytest.mark.skipif(
    not native.is_available(), reason="the native transport is not built: it needs a Rust toolchain"
)
WAYS = [
    pytest.param(Way(portable=False, protocol="h1"), id="native-h1", marks=NEEDS_NATIVE),
    pytest.param(Way(portable=False, protocol="h2"), id="native-h2", marks=NEEDS_NATIVE),
    pytest.param(Way(portable=True, protocol="h1"), id="portable-h1"),
]
SERVERS = [WAYS[0], WAYS[2]]  # those of HTTP/1.1


class Under:
    """A server, where it listens, and what it reported."""

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.notices: list[str] = []
        self.failures: list[BaseException] = []

    @property
    def url(self) -> str:
        return self.server.urls[0]


@contextlib.asynccontextmanager
async def serving(
    handler: Handler,
    *listeners: Listener,
    portable: bool,
    limits: ListenerLimits | None = None,
    failures: int = 0,
    **options: Any,
) -> AsyncIterator[Under]:
    """Serve; at the end exactly so many failures must have been reported."""
    loop = asyncio.get_running_loop()
    if not listeners:
        listeners = (Listener("http://127.0.0.1:0", limits=limits or ListenerLimits()),)
    notices: list[str] = []
    server = HttpServer(
        listeners, handler, HttpOptions(portable=portable, **options), notices.append
    )
    under = Under(server)
    under.notices = notices

    def report(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        under.failures.append(context.get("exception") or RuntimeError(context["message"]))

    loop.set_exception_handler(report)
    try:
        async with server:
            yield under
    finally:
        loop.set_exception_handler(None)
    assert len(under.failures) == failures, under.failures


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine in a loop of its own."""

    async def timed() -> T:
        async with asyncio.timeout(WAIT_S * 3):
            return await scenario

    return asyncio.run(timed(), debug=False)


async def echo(request: Request, answer: Answer) -> None:
    """Answer with what was asked."""
    body = await request.read()
    text = f"{request.method} {request.target} {len(body)} ".encode()
    answer.send(200, [("Content-Type", "text/x"), ("X-A", "1"), ("X-A", "2")], text + body)


Scenario = Callable[[], Awaitable[None]]
Listeners = Sequence[Listener]
