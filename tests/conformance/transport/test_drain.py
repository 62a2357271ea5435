"""Calls sent at the moment of a drain cost no other call its connection: proven under load.

Clients with many calls in flight do not notice the end for a while: they go on beginning calls,
giving credit, sending the rest of bodies and resetting calls. Whatever the last GOAWAY counts as
taken up is answered, and the connection lasts until it is.
"""

import asyncio
import random
import struct
import threading
import time
from collections.abc import Callable

import pytest
from typing_extensions import override

from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import Listener
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.server import HttpServer
from kvstore.batch import Inbox, Outbox
from kvstore.transport.native import NativeOptions, NativeTransport
from kvstore.wire import rpc
from tests.support.http.raw_http2 import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    RawConnection,
    frame,
    message,
    request_headers,
)
from tests.support.http.serving import NEEDS_NATIVE

pytestmark = NEEDS_NATIVE

ROUNDS = 12
CONNECTIONS = 4
IN_FLIGHT_MAX = 24
WAIT_S = 60.0
PUT = rpc.METHODS[rpc.PUT].path


class Client(threading.Thread):
    """Calls without pause on one connection, and for a while on after it is told to go."""

    def __init__(self, target: str, seed: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(daemon=True)
        self.rng = random.Random(seed)
        self.connection = RawConnection(target, timeout_s=WAIT_S)
        self.headers, self.body = headers, body
        self.begun: list[int] = []
        self.reset: set[int] = set()
        self.answered: set[int] = set()
        self.refused: set[int] = set()
        self.last: int | None = None
        self.goaway_code = 0
        self.is_closed = False
        self.fault: BaseException | None = None

    @override
    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - raised by the test's thread
            self.fault = error

    def work(self) -> None:
        stream = 1
        late = 40  # calls begun after the end was told
        frames = self.connection.frames()
        for first in frames:  # until the server has said how much it takes
            self.take(first)
            if first.kind == WINDOW_UPDATE:
                break
        while late > 0 and not self.is_done():
            while len(self.open()) < IN_FLIGHT_MAX and late > 0 and not self.is_closed:
                self.begin(stream)
                stream += 2
                late -= self.last is not None
            self.take(next(frames, None))
        while not self.is_done():
            self.take(next(frames, None))

    def open(self) -> list[int]:
        over = self.answered | self.reset | self.refused
        return [each for each in self.begun if each not in over and each <= self.limit()]

    def limit(self) -> int:
        return 2**31 - 1 if self.last is None else self.last

    def is_done(self) -> bool:
        return self.last is not None and self.last < 2**31 - 1 and not self.open()

    def begin(self, stream: int) -> None:
        connection, rng = self.connection, self.rng
        half = len(self.body) // 2
        pieces = [
            connection.headers(stream, self.headers, END_HEADERS),
            frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 1000)),
            frame(DATA, 0, stream, self.body[:half]),
        ]
        if rng.random() < 0.1:
            pieces.append(frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))
            self.reset.add(stream)
        else:
            pieces.append(frame(DATA, END_STREAM, stream, self.body[half:]))
            pieces.append(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 1000)))
        pieces.append(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 100_000)))
        self.begun.append(stream)
        data = b"".join(pieces)
        cut = rng.randrange(len(data))
        try:
            connection.send(data[:cut])
            connection.send(data[cut:])
        except ConnectionError:
            if self.last is None:
                raise
            self.is_closed = True  # all is answered there; it is to be read yet

    def take(self, each: tuple[int, int, int, bytes] | None) -> None:
        if each is None:
            open_now, last, code = self.open(), self.last, self.goaway_code
            raise EOFError(f"the end came with {open_now} open, last {last}, code {code}")
        kind, flags, stream, payload = each
        if kind == GOAWAY:
            if self.last is not None:
                time.sleep(0.02)  # the rest waits in the kernel
            self.last, self.goaway_code = struct.unpack(">II", payload[:8])
        elif kind == PING and not flags & ACK:
            self.connection.send(frame(PING, ACK, 0, payload))
        elif kind == SETTINGS and not flags & ACK:
            self.connection.send(frame(SETTINGS, ACK, 0))
        elif kind == RST_STREAM:
            self.refused.add(stream)
        elif kind in {HEADERS, DATA} and flags & END_STREAM:
            self.answered.add(stream)


def check(clients: list[Client]) -> bool:
    """Hold clients to the promise; tell whether any call came too late."""
    for client in clients:
        client.join(WAIT_S)
        client.connection.socket.close()
        if client.fault is not None:
            raise client.fault
        assert not client.is_alive()
        assert client.goaway_code == 0
        assert client.last is not None
        expected = {each for each in client.begun if each <= client.last} - client.reset
        assert expected <= client.answered, "all that was taken up is answered"
        assert not client.refused & expected
    return any(client.begun[-1] > client.limit() for client in clients)


def load(target: str, headers: dict[str, str], body: bytes, drain: Callable[[], None]) -> bool:
    clients = [Client(target, seed, headers, body) for seed in range(CONNECTIONS)]
    for client in clients:
        client.start()
    while min(len(client.answered) for client in clients) < 30:
        for client in clients:
            if client.fault is not None:
                raise client.fault
        time.sleep(0.002)
    drain()
    return check(clients)


@pytest.mark.parametrize(("delay_s", "size"), [(0.0, 100), (0.01, 100), (0.0, 30_000)])
def test_of_grpc(delay_s: float, size: int) -> None:
    late = 0
    for _ in range(ROUNDS):
        transport = NativeTransport(["http://127.0.0.1:0"], [rpc.PUT], NativeOptions())
        is_over = threading.Event()

        def turn(transport: NativeTransport = transport, over: threading.Event = is_over) -> None:
            waiting: list[tuple[float, Inbox]] = []
            while not over.is_set():
                inbox = transport.poll(0.005)
                waiting.append((time.monotonic() + delay_s, inbox))
                while waiting and waiting[0][0] <= time.monotonic():
                    _, due = waiting.pop(0)
                    transport.flush(Outbox(replies=[(call[0], 0, call[2]) for call in due.calls]))

        driver = threading.Thread(target=turn, daemon=True)
        driver.start()
        target = transport.bound_urls[0].removeprefix("http://")
        try:
            late += load(target, request_headers(PUT), message(b"x" * size), transport.drain)
        finally:
            is_over.set()
            driver.join(WAIT_S)
            transport.stop(0.0)
    assert late, "else nothing was tried"


@pytest.mark.parametrize(("delay_s", "size"), [(0.0, 100), (0.01, 100), (0.0, 30_000)])
def test_of_http(delay_s: float, size: int) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        body = await request.read()
        if delay_s:
            await asyncio.sleep(delay_s)
        if len(body) % 2:
            answer.start(200)
            await answer.write(body)
        else:
            answer.send(200, [], body)

    async def scenario(size: int) -> bool:
        loop = asyncio.get_running_loop()
        server = HttpServer([Listener("http://127.0.0.1:0")], handle)
        await server.start()
        headers = request_headers("/", content_type="text/x", te="")
        target = server.urls[0].removeprefix("http://")

        def drain() -> None:
            loop.call_soon_threadsafe(server.drain)

        late = await asyncio.to_thread(load, target, headers, b"x" * size, drain)
        await asyncio.wait_for(server.drained(), WAIT_S)
        await server.stop()
        return late

    late = sum(asyncio.run(scenario(size + n)) for n in range(ROUNDS))
    assert late, "else nothing was tried"
