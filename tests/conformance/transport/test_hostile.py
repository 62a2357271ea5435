"""Clients that speak badly, too much, too slowly or not at all: they harm themselves only.

Raw HTTP/2 against the native transport, which owns its framing; what grpcio does with such clients
is grpcio's.
"""

import contextlib
import gzip
import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from queue import SimpleQueue
from types import FrameType
from typing import Any

import grpc
import hpack
import pytest

from kvstore.batch import AnyDelivery, Inbox, Outbox
from kvstore.transport import native
from kvstore.transport.native import NativeOptions, NativeTransport
from kvstore.wire import rpc
from tests.support import raw_grpc
from tests.support.http import raw_http2 as raw
from tests.support.http.raw_http2 import RawConnection, frame, message
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    not native.is_available(), reason="the native transport is not built: it needs a Rust toolchain"
)

WAIT_S = 60.0
REQUEST_BYTES_MAX = 1 << 20
PUT = rpc.METHODS[rpc.PUT].path
WATCH = rpc.METHODS[rpc.WATCH].path
WINDOW_MAX = (1 << 31) - 1
RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
WATCH = rpc.METHODS[rpc.WATCH].path


class Echo:
    """A transport whose calls are answered with their own bodies by a thread."""

    def __init__(self, **options: object) -> None:
        self.notices: list[str] = []
        self.seen = Inbox()
        self.answering = True
        self.reply: bytes | None = None  # instead of the call's own body
        self.transport = NativeTransport(
            ["http://127.0.0.1:0"],
            range(len(rpc.METHODS)),
            NativeOptions(request_bytes_max=REQUEST_BYTES_MAX, **options),  # type: ignore[arg-type]
            self.notices.append,
        )
        self.target = self.transport.bound_urls[0].removeprefix("http://")
        host, _, port = self.target.rpartition(":")
        self.address = host, int(port)
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over:
            inbox = self.transport.poll(0.05)
            for name in ("calls", "opened", "frames", "half_closed", "gone"):
                getattr(self.seen, name).extend(getattr(inbox, name))
            if self.answering:
                replies = [(c[0], 0, self.reply or c[2]) for c in inbox.calls]
                self.transport.flush(Outbox(replies=replies))

    def until(self, condition: Callable[[], object]) -> None:
        wait_for(condition, lambda: (self.seen, self.notices), WAIT_S, every_s=0.005)

    def is_well(self) -> None:
        """Assert that an honest client is served."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(self.target, options) as channel:
            assert raw_grpc.unary(channel, PUT)(b"honest", timeout=WAIT_S) == b"honest"

    def close(self) -> None:
        self._over = True
        self.transport.wake()
        self._thread.join(WAIT_S)
        self.transport.stop(0.0)


@pytest.fixture
def start() -> Iterator[Callable[..., Echo]]:
    started: list[Echo] = []

    def begin(**options: object) -> Echo:
        started.append(Echo(**options))
        return started[-1]

    yield begin
    for echo in started:
        echo.close()


@pytest.fixture
def echo(start: Callable[..., Echo]) -> Echo:
    return start()


# --- requests that are wrong ---


def test_an_ordinary_call_by_hand(echo: Echo) -> None:
    with RawConnection(echo.target) as client:
        client.call(1, PUT, message(b"hello"))
        headers, data = client.answer(1)
    assert (headers["grpc-status"], data) == ("0", message(b"hello"))
    assert headers["content-type"] == "application/grpc"


def test_who_asks_in_gzip_is_answered_in_gzip(echo: Echo) -> None:
    """As etcd does: the request's own encoding decides, not what else the client would accept."""
    bodies = [b"plain" * 99, b"", b"small", os.urandom(12_000)]
    with RawConnection(echo.target) as client:
        for stream, body in enumerate(bodies):
            asked = message(gzip.compress(body), 1) if stream % 2 == 0 else message(body)
            client.call(2 * stream + 1, PUT, asked, grpc_encoding="gzip")
            headers, data = client.answer(2 * stream + 1)
            assert (headers["grpc-encoding"], headers["grpc-status"]) == ("gzip", "0")
            flag, size = data[0], int.from_bytes(data[1:5], "big")
            assert (flag, size) == (int(bool(body)), len(data) - 5)
            assert (gzip.decompress(data[5:]) if flag else data[5:]) == body
        client.call(99, PUT, message(b"x"), grpc_accept_encoding="gzip")
        headers, data = client.answer(99)
        assert ("grpc-encoding" in headers, data) == (False, message(b"x"))
    large = os.urandom(300_000)
    with grpc.insecure_channel(echo.target, compression=grpc.Compression.Gzip) as channel:
        assert raw_grpc.unary(channel, PUT)(large, timeout=WAIT_S) == large


def test_streams_in_gzip(echo: Echo) -> None:
    with grpc.insecure_channel(echo.target) as channel:
        requests: SimpleQueue[bytes | None] = SimpleQueue()
        call = raw_grpc.stream(channel, WATCH)(
            iter(requests.get, None), compression=grpc.Compression.Gzip
        )
        requests.put(b"ask" * 100)
        echo.until(lambda: echo.seen.frames)
        [(stream, frame_body)] = echo.seen.frames
        assert frame_body == b"ask" * 100
        tail = b"y" * 20_000
        deliveries: list[AnyDelivery] = [
            (stream, b"one", b""),
            (stream, b"two", tail),
            (stream, b"", b""),
        ]
        echo.transport.flush(Outbox(deliveries=deliveries, ends=[(stream, 0, b"")]))
        assert list(call) == [b"one", b"two" + tail, b""]
        requests.put(None)


def test_an_error_is_sent_instead_of_an_oversized_message(start: Callable[..., Echo]) -> None:
    echo = start(send_bytes_max=10)
    text = "grpc: trying to send message larger than max (11 vs. 10)"
    with grpc.insecure_channel(echo.target) as channel:
        assert raw_grpc.unary(channel, PUT)(b"x" * 10, timeout=WAIT_S) == b"x" * 10
        with pytest.raises(grpc.RpcError) as unary:
            raw_grpc.unary(channel, PUT)(b"x" * 11, timeout=WAIT_S)
        assert (unary.value.code(), unary.value.details()) == (RESOURCE_EXHAUSTED, text)
        requests: SimpleQueue[bytes | None] = SimpleQueue()
        call = raw_grpc.stream(channel, WATCH)(iter(requests.get, None))
        requests.put(b"a")
        echo.until(lambda: echo.seen.frames)
        stream = echo.seen.frames[0][0]
        deliveries: list[AnyDelivery] = [
            (stream, b"1", b""),
            (stream, b"12345", b"678901"),
            (stream, b"2", b""),
        ]
        echo.transport.flush(Outbox(deliveries=deliveries))
        assert next(call) == b"1"
        with pytest.raises(grpc.RpcError) as streamed:
            list(call)
        assert (streamed.value.code(), streamed.value.details()) == (RESOURCE_EXHAUSTED, text)
        echo.until(lambda: stream in echo.seen.gone)
        requests.put(None)


@pytest.mark.parametrize(
    ("body", "headers", "code", "text"),
    [
        (
            message(gzip.compress(b"\0" * (REQUEST_BYTES_MAX + 1)), 1),
            {"grpc_encoding": "gzip"},
            8,
            f"grpc: received message after decompression larger than max {REQUEST_BYTES_MAX}",
        ),
        (message(b"junk", 1), {"grpc_encoding": "gzip"}, 13, "failed to decompress"),
        (message(b"x", 1), {}, 13, "compressed flag set with identity or empty encoding"),
        (
            message(b"x", 1),
            {"grpc_encoding": "snappy"},
            12,
            'grpc: Decompressor is not installed for grpc-encoding "snappy"',
        ),
        (message(b"x", 7), {}, 13, "payload format"),
        (b"\0\xff\xff\xff\xff", {}, 8, "larger than max (4294967295 vs. 1048576)"),
        (message(b"x"), {"grpc_timeout": "soon"}, 13, "malformed grpc-timeout"),
        (message(b"x"), {"content_type": "text/html"}, 3, 'content-type "text/html"'),
        (message(b"x"), {":method": "GET"}, 13, ':method "GET" which should be POST'),
    ],
)
def test_a_bad_request_is_refused_with_the_reason(
    echo: Echo, body: bytes, headers: dict[str, Any], code: int, text: str
) -> None:
    with RawConnection(echo.target) as client:
        client.call(1, PUT, body, **headers)
        status, details = client.status(1)
        assert (status, text in details) == (code, True), details
        client.call(3, PUT, message(b"the connection lives"))
        assert client.answer(3)[1] == message(b"the connection lives")
    assert [call[2] for call in echo.seen.calls] == [b"the connection lives"]


def test_a_deadline_counts_while_the_request_is_on_its_way(echo: Echo) -> None:
    with RawConnection(echo.target) as client:
        client.call(1, PUT, message(b"xy")[:-1], end=False, grpc_timeout="50m")
        assert client.status(1) == (4, "context deadline exceeded")


def test_a_torn_frame_ends_its_stream(echo: Echo) -> None:
    with RawConnection(echo.target) as client:
        client.call(1, WATCH, message(b"whole") + message(b"torn")[:-1])
        assert client.status(1) == (2, "unexpected EOF")
    echo.until(lambda: echo.seen.gone)
    assert [body for _, body in echo.seen.frames] == [b"whole"]


# --- connections that are wrong ---


def test_headers_without_end_cost_the_connection(echo: Echo) -> None:
    with RawConnection(echo.target) as client:
        client.send(frame(raw.HEADERS, 0, 1, b"\0\x01a\x01b" * 1000))
        block = b"\0\x01a\x7f\xe1\x1f" + b"v" * 4192
        try:
            for _ in range(1000):
                client.send(frame(raw.CONTINUATION, 0, 1, block))
        except ConnectionError:
            pass
        client.wait_closed()
    echo.is_well()


def test_rapid_resets_close_the_connection_and_every_call_is_reported_as_gone(echo: Echo) -> None:
    echo.answering = False
    with RawConnection(echo.target) as client:
        try:
            for stream in range(1, 20_001, 2):
                client.call(stream, PUT, message(b"x"), end=False)
                client.send(frame(raw.RST_STREAM, 0, stream, b"\0\0\0\x08"))
        except ConnectionError:
            pass
    echo.until(lambda: len(echo.seen.gone) >= len(echo.seen.calls))
    assert sorted(echo.seen.gone) == sorted(call[0] for call in echo.seen.calls)
    echo.answering = True
    echo.is_well()


def test_a_handshake_that_takes_too_long_is_ended(start: Callable[..., Echo]) -> None:
    echo = start(handshake_timeout_s=0.2)
    for beginning in (b"", raw.PREFACE[:10]):
        with RawConnection(echo.target, preface=False) as client:
            client.send(beginning)
            client.wait_closed()
    echo.is_well()
    assert any("takes too long" in notice for notice in echo.notices)


def test_a_client_that_is_no_more_is_noticed(start: Callable[..., Echo]) -> None:
    echo = start(keepalive_interval_s=0.1, keepalive_timeout_s=0.1)
    with RawConnection(echo.target) as client:
        client.call(1, WATCH, message(b"x"), end=False)
        frames = client.wait_closed()  # it never answers the ping
        assert any(each.kind == raw.PING and not each.flags & raw.ACK for each in frames)
    echo.until(lambda: echo.seen.gone)
    assert echo.seen.gone == [echo.seen.opened[0][0]]


def test_a_client_that_answers_pings_is_kept(start: Callable[..., Echo]) -> None:
    echo = start(keepalive_interval_s=0.05, keepalive_timeout_s=1.0)
    with RawConnection(echo.target) as client:
        answered = 0
        for each in client.frames():
            if each.kind == raw.PING and not each.flags & raw.ACK:
                client.send(frame(raw.PING, raw.ACK, 0, each.payload))
                answered += 1
                if answered == 3:
                    break
        assert answered == 3


def unread(client: RawConnection) -> None:
    """Make a call whose answer fills the socket: the client's windows are as large as can be."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    window = frame(raw.SETTINGS, 0, 0, b"\0\x04" + WINDOW_MAX.to_bytes(4, "big"))
    client.send(window + frame(raw.WINDOW_UPDATE, 0, 0, (WINDOW_MAX - 65535).to_bytes(4, "big")))
    client.call(1, PUT, message(b"x"))


def test_a_client_whose_socket_takes_nothing_is_disconnected(start: Callable[..., Echo]) -> None:
    echo = start(write_stall_timeout_s=0.4, connection_backlog_bytes_max=256 << 20)
    echo.reply = bytes(32 << 20)
    began = time.monotonic()
    with RawConnection(echo.target, timeout_s=WAIT_S) as client:
        unread(client)
        echo.until(lambda: any("has read nothing" in notice for notice in echo.notices))
        assert time.monotonic() - began >= 0.4
    echo.reply = None
    echo.is_well()


def test_a_client_that_reads_slowly_is_kept(start: Callable[..., Echo]) -> None:
    """Also one that has nothing to read: a watch may be silent for hours."""
    stall_s = 1.5
    echo = start(write_stall_timeout_s=stall_s, connection_backlog_bytes_max=256 << 20)
    echo.reply = bytes(8 << 20)
    with (
        RawConnection(echo.target, timeout_s=WAIT_S) as silent,
        RawConnection(echo.target, timeout_s=WAIT_S) as client,
    ):
        silent.call(1, WATCH, message(b"x"), end=False)
        echo.until(lambda: echo.seen.opened)
        unread(client)
        began = time.monotonic()
        while time.monotonic() - began < 2 * stall_s:
            assert client.socket.recv(1 << 10)
            time.sleep(stall_s / 50)
        silent.call(3, PUT, message(b"x"))
        echo.until(lambda: len(echo.seen.calls) == 2)
    assert echo.notices == []


def test_too_many_pings_are_answered_as_in_go(start: Callable[..., Echo]) -> None:
    echo = start(keepalive_min_s=60.0)
    with RawConnection(echo.target) as client:
        client.send(frame(raw.PING, 0, 0, b"12345678") * 6)
        goaway = [each for each in client.wait_closed() if each.kind == raw.GOAWAY]
    assert goaway[-1].payload[4:] == struct.pack(">I", 11) + b"too_many_pings"


def test_a_client_that_never_reads_loses_its_connection(start: Callable[..., Echo]) -> None:
    echo = start(connection_backlog_bytes_max=2 << 20)
    echo.reply = b"x" * 500_000
    with RawConnection(echo.target) as client:
        with contextlib.suppress(ConnectionError):  # it may be cut off before the last
            for stream in range(1, 41, 2):
                client.call(stream, PUT, message(b"more"))
        echo.until(lambda: any("wait unread" in notice for notice in echo.notices))
        client.wait_closed()
    echo.reply = None
    echo.is_well()


def test_requests_that_never_become_whole_share_a_budget(start: Callable[..., Echo]) -> None:
    echo = start(assembling_bytes_max=100_000)
    with RawConnection(echo.target) as client:
        half = struct.pack(">BI", 0, 50_000) + b"x" * 16_000
        assert any(each.kind == raw.WINDOW_UPDATE for each in client.frames())  # now it may send
        for stream in range(1, 20, 2):
            client.call(stream, PUT, half, end=False)
        # Six fit; which ones is up to the tasks that read them.
        refused = [headers for _, headers in islice(client.trailers(), 4)]
        assert {headers["grpc-status"] for headers in refused} == {"8"}
        assert {headers["grpc-message"] for headers in refused} == {"etcdserver: too many requests"}
        client.send(frame(raw.PING, 0, 0, b"12345678"))
        kinds = {
            each.kind for each in takewhile(lambda each: each.kind != raw.PING, client.frames())
        }
        assert raw.HEADERS not in kinds  # the six wait on
    echo.is_well()


def test_connections_have_a_limit(start: Callable[..., Echo]) -> None:
    echo = start(connections_max=3)
    clients = [RawConnection(echo.target) for _ in range(3)]
    for client in clients:
        next(client.frames())
    with RawConnection(echo.target, preface=False) as refused:
        assert refused.wait_closed() == []
    clients.pop().socket.close()
    echo.until(lambda: _is_served(echo))
    for client in clients:
        client.socket.close()


def _is_served(echo: Echo) -> bool:
    with RawConnection(echo.target) as client:
        return next(client.frames(), None) is not None


def _session(random_: random.Random) -> bytes:
    """The bytes of an honest client: calls, a stream, pings, window updates."""
    encoder = hpack.Encoder()

    def headers(stream: int, path: str) -> bytes:
        block = encoder.encode(list(raw.request_headers(path).items()))
        return frame(raw.HEADERS, raw.END_HEADERS, stream, block)

    parts = [raw.PREFACE, frame(raw.SETTINGS, 0, 0)]
    for stream in range(1, 12, 2):
        path = random_.choice([PUT, WATCH, "/no.Such/Thing"])
        body = message(random_.randbytes(random_.randrange(300)))
        parts += [headers(stream, path), frame(raw.DATA, random_.randrange(2), stream, body)]
        if random_.random() < 0.3:
            parts.append(frame(raw.PING, 0, 0, b"12345678"))
        if random_.random() < 0.3:
            parts.append(frame(raw.RST_STREAM, 0, stream, b"\0\0\0\x08"))
        if random_.random() < 0.3:
            parts.append(frame(raw.WINDOW_UPDATE, 0, stream, b"\0\0\x10\0"))
    return b"".join(parts)


def _mutate(random_: random.Random, data: bytes) -> bytes:
    mutant = bytearray(data)
    for _ in range(random_.randrange(1, 12)):
        place = random_.randrange(len(mutant))
        match random_.randrange(4):
            case 0:
                mutant[place] ^= 1 << random_.randrange(8)
            case 1:
                mutant[place : place + 1] = random_.randbytes(random_.randrange(6))
            case 2:
                del mutant[place : place + random_.randrange(1, 20)]
            case _:
                mutant[place:place] = mutant[max(0, place - 40) : place]
        if not mutant:
            mutant = bytearray(b"x")
    return bytes(mutant)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_sessions_do_not_affect_others(echo: Echo, seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(60):
        with socket.create_connection(echo.address, timeout=WAIT_S) as client:
            client.sendall(_mutate(random_, _session(random_)))
    echo.is_well()
    echo.until(lambda: len(set(echo.seen.gone)) == len(echo.seen.opened) or _settled(echo))
    assert len(echo.seen.gone) == len(set(echo.seen.gone))


def _settled(echo: Echo) -> bool:
    return {stream_id for stream_id, _ in echo.seen.opened} <= set(echo.seen.gone)


# --- fan-out and signals ---


@pytest.mark.parametrize("tail_bytes", [0, 10, 100_000])
def test_a_shared_tail_reaches_every_stream_in_order(echo: Echo, tail_bytes: int) -> None:
    tail = bytes(i % 251 for i in range(tail_bytes))
    with grpc.insecure_channel(
        echo.target,
        [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)],
    ) as channel:
        calls = [raw_grpc.stream(channel, WATCH)(iter([b"open"])) for _ in range(20)]
        echo.until(lambda: len(echo.seen.opened) == 20)
        ids = [stream_id for stream_id, _ in echo.seen.opened]
        deliveries: list[AnyDelivery] = [
            (i, b"%d.%d|" % (i, turn), tail) for turn in range(5) for i in ids
        ]
        echo.transport.flush(Outbox(deliveries=deliveries, ends=[(i, 0, b"") for i in ids]))
        got = [list(call) for call in calls]
    expected = [[b"%d.%d|" % (i, turn) + tail for turn in range(5)] for i in ids]
    assert sorted(got) == sorted(expected)


def test_a_signal_handler_may_wake_a_waiting_poll() -> None:
    transport = NativeTransport(["http://127.0.0.1:0"], [rpc.PUT])
    handled: list[int] = []

    def handler(number: int, _frame: FrameType | None) -> None:
        handled.append(number)
        transport.wake()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        begin = time.monotonic()
        transport.poll(WAIT_S)
        assert time.monotonic() - begin < WAIT_S / 2
        assert handled == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)
        transport.stop(0.0)
