"""Clients that read nothing: their connections are closed, and those of others are not."""

import asyncio
import contextlib
import socket
import time
from dataclasses import replace

import pytest

from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import ListenerLimits
from kvstack.component.http.serving.request import Request
from tests.support.http.raw_http2 import (
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from tests.support.http.serving import WAYS, Way, run, serving, until

STALL_S = 0.4
SLOW_STALL_S = 1.5  # a client that reads must be able to, on a busy machine
LIMITS = ListenerLimits(write_stall_timeout_s=STALL_S, backlog_bytes_max=256 << 20)
LARGE = bytes(32 << 20)
WINDOW_MAX = (1 << 31) - 1
# GET / of the scheme http, with an authority: RFC 7541, C.4.1.
GET = bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff")
H1 = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
H2 = (
    PREFACE
    + frame(SETTINGS, 0, 0, b"\0\x04" + WINDOW_MAX.to_bytes(4, "big"))
    + frame(WINDOW_UPDATE, 0, 0, (WINDOW_MAX - 65535).to_bytes(4, "big"))
    + frame(HEADERS, END_HEADERS | END_STREAM, 1, GET)
)

pytestmark = pytest.mark.parametrize("way", WAYS)


def connected(url: str, way: Way) -> socket.socket:
    """Ask for an answer, without reading it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, _, port = url.partition("://")[2].partition(":")
    client.connect((host, int(port)))
    client.sendall(H2 if way.protocol == "h2" else H1)
    return client


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_client_that_reads_nothing_is_disconnected(way: Way, *, is_streamed: bool) -> None:
    async def handle(_: Request, answer: Answer) -> None:
        if not is_streamed:
            answer.send(200, [], LARGE)
            return
        answer.start(200, [])
        answer.write_now(LARGE)
        await asyncio.Event().wait()  # it is cancelled when the client is gone

    async def scenario() -> None:
        async with serving(handle, portable=way.portable, limits=LIMITS) as under:
            began = time.monotonic()
            with connected(under.url, way):
                await until(lambda: any("has read nothing" in each for each in under.notices))
                assert time.monotonic() - began >= STALL_S * 0.9

    run(scenario())


def test_a_slow_reader_stays_and_so_does_one_without_anything_to_read(way: Way) -> None:
    async def handle(_: Request, answer: Answer) -> None:
        answer.start(200, [])
        answer.write_now(LARGE[: 4 << 20])
        await asyncio.Event().wait()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with serving(
            handle,
            portable=way.portable,
            limits=replace(LIMITS, write_stall_timeout_s=SLOW_STALL_S),
        ) as under:
            with connected(under.url, way) as client:
                client.setblocking(False)
                got, began = 0, loop.time()
                while loop.time() - began < 1.5 * SLOW_STALL_S:  # some, now and then
                    piece = await loop.sock_recv(client, 1 << 10)
                    assert piece
                    got += len(piece)
                    await asyncio.sleep(SLOW_STALL_S / 50)
                while got < 4 << 20:
                    piece = await loop.sock_recv(client, 1 << 20)
                    assert piece
                    got += len(piece)
                with contextlib.suppress(BlockingIOError):
                    while client.recv(1 << 16):
                        pass
                await asyncio.sleep(1.5 * SLOW_STALL_S)  # nothing waits for it
                with pytest.raises(BlockingIOError):
                    client.recv(1)
                assert under.notices == []

    run(scenario())
