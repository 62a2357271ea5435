"""The own HTTP/1.1 server: connections, limits, clients that go away."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from operator import contains
from pathlib import Path

import pytest

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.http import h1_server
from kvstore.http.exchange import PageRequest, Responder
from kvstore.http.h1_server import H1Server
from tests.support.http.harness import Pages
from tests.support.http.plain_client import WebSocket, Wire, ask
from tests.support.waiting import wait_for

WAIT_S = 60.0
GET = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"


class Echo:
    """A handler for every way to answer, and a server on a loop of its own."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.left: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        self.port: int = listening.getsockname()[1]
        self._run = asyncio.run_coroutine_threadsafe(
            H1Server(listening, self.serve, LineLogger([], "info")).run(), self._loop
        )

    async def serve(self, request: PageRequest, respond: Responder) -> None:
        path = request.path
        self.entered.append(path)
        try:
            if path == "/ignore":
                await respond.whole(200, [], b"ignored")
            elif path == "/fail":
                raise RuntimeError("planted")
            elif path == "/stream":
                await respond.start(200, [])
                async for piece in request.body:
                    await respond.write(piece.upper())
                await respond.finish()
            elif path == "/flood":
                await respond.start(200, [])
                while True:
                    await respond.write(b"x" * 65536)
            elif path == "/hang":
                await asyncio.Event().wait()
            else:
                data = b"".join([piece async for piece in request.body])
                await respond.whole(200, [("X-Ip", request.remote_ip)], data or path.encode())
        finally:
            self.left.append(path)

    def until(self, condition: Callable[[], object]) -> None:
        wait_for(condition, timeout_s=WAIT_S, every_s=0.005)

    def close(self) -> None:
        async def stop() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


def test_requests_follow_each_other_on_a_connection(echo: Echo) -> None:
    with Wire(echo.port) as wire:
        wire.send(GET % b"/one" + GET % b"/two")  # the second is sent before the first is answered
        one = wire.until(b"/one")
        assert one.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"X-Ip: 127.0.0.1\r\n" in one
        wire.until(b"/two")
        wire.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        wire.until(b"\r\n\r\nabc")


def test_old_clients_get_the_end_of_the_connection(echo: Echo) -> None:
    with Wire(echo.port) as wire:
        wire.send(b"POST /stream HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc")
        assert wire.rest().endswith(b"\r\n\r\nABC")


def test_head_has_no_body(echo: Echo) -> None:
    with Wire(echo.port) as wire:
        wire.send(b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n" + GET % b"/b")
        assert b"Content-Length: 2\r\n" in wire.until(b"\r\n\r\n")
        wire.until(b"/b")


def test_a_body_is_asked_for_when_it_is_read(echo: Echo) -> None:
    with Wire(echo.port) as wire:
        wire.send(
            b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        )
        wire.until(b"HTTP/1.1 100 \r\n\r\n")
        wire.send(b"abc")
        wire.until(b"\r\n\r\nabc")


@pytest.mark.parametrize(("size", "is_kept"), [(100_000, True), (2_000_000, False)])
def test_an_unread_body(echo: Echo, size: int, is_kept: bool) -> None:  # noqa: FBT001
    with Wire(echo.port) as wire:
        wire.send(b"POST /ignore HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
        wire.until(b"ignored")
        if is_kept:
            wire.send(b"x" * size)
            wire.send(GET % b"/next")
            wire.until(b"/next")
        else:
            with pytest.raises(OSError):  # noqa: PT011 — reset or broken pipe, by timing
                _send_for_ever(wire)


def _send_for_ever(wire: Wire) -> None:
    while True:
        wire.send(b"x" * 65536)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400 "),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", b"501 "),
        (b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * h1_server.HEADER_BYTES_MAX * 2, b"431 "),
    ],
)
def test_invalid_requests_are_answered(echo: Echo, data: bytes, status: bytes) -> None:
    with Wire(echo.port) as wire:
        wire.send(data)
        assert wire.rest().startswith(b"HTTP/1.1 " + status)
    assert echo.entered == []


def test_a_body_that_breaks_its_form_ends_its_request(echo: Echo) -> None:
    with Wire(echo.port) as wire:
        wire.send(b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        wire.rest()
        echo.until(lambda: echo.left == ["/x"])


def test_a_client_that_leaves_ends_its_handler(echo: Echo) -> None:
    for path in (b"/hang", b"/flood"):
        wire = Wire(echo.port)
        wire.send(GET % path)
        echo.until(partial(contains, echo.entered, path.decode()))
        wire.socket.close()
        echo.until(partial(contains, echo.left, path.decode()))


def test_a_client_that_does_not_read_is_waited_for(echo: Echo) -> None:
    with Wire(echo.port) as slow, Wire(echo.port) as other:
        slow.send(GET % b"/flood")
        slow.until(b"\r\n\r\n")
        other.send(GET % b"/free")
        other.until(b"/free")
        echo.until(lambda: echo.left == ["/free"])


def test_a_handler_that_fails(echo: Echo) -> None:
    with Wire(echo.port) as wire:
        wire.send(GET % b"/fail")
        answer = wire.rest()
    assert answer.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert answer.endswith(b"internal error\n")
    assert b"planted" not in answer


def test_too_many_connections_are_closed(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h1_server, "CONNECTIONS_MAX", 2)
    with Wire(echo.port) as one, Wire(echo.port) as two:
        for wire in (one, two):
            wire.send(GET % b"/in")
            wire.until(b"/in")
        with Wire(echo.port) as three:
            assert three.rest() == b""
    echo.until(lambda: _answers(echo.port))


def _answers(port: int) -> bool:
    try:
        return ask(port, "GET", "/again")[0] == 200
    except OSError:
        return False


def test_an_idle_connection_is_closed(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h1_server, "HEADER_S_MAX", 0.05)
    with Wire(echo.port) as wire:
        wire.send(b"GET / HT")
        assert wire.rest() == b""


def test_streams_of_clients_that_went_away_are_ended(tmp_path: Path) -> None:
    """The node is told, and nothing of them is kept."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    port = listening.getsockname()[1]
    with Pages(tmp_path) as pages:
        server = H1Server(listening, pages.service._client_pages.serve, LineLogger([], "info"))
        pages.side.run(server.run(), "server")
        hub = pages.harness.node._parts.state.hub
        wires = []
        for _ in range(5):
            wire = Wire(port)
            wire.send(
                b"POST /v3/watch HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            wire.chunk(b'{"create_request":{"key":"Zm9v"}}')
            wire.until(b'"created":true}}')
            wires.append(wire)
        sockets = [WebSocket(port, "/v3/watch") for _ in range(5)]
        for each in sockets:
            each.send('{"create_request":{"key":"Zm9v"}}')
            each.receive()
        assert len(hub._streams) == 10
        for wire in wires:
            wire.socket.close()
        for each in sockets:
            each.wire.socket.close()
        client = pages.side.client
        wait_for(lambda: not (hub._streams or client._streams or client._outstanding))
