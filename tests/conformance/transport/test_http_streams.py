"""Streamed HTTP on the native transport's port: bodies that come and leave bit by bit, upgrades."""

import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from kvstore.batch import Inbox, Outbox
from kvstore.transport import native
from kvstore.transport.mailbox import MailboxLimits
from kvstore.transport.native import NativeOptions, NativeTransport
from tests.support.http.raw_http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    RawConnection,
    frame,
    request_headers,
)

pytestmark = pytest.mark.skipif(
    not native.is_available(), reason="the native transport is not built: it needs a Rust toolchain"
)

WAIT_S = 60.0
BACKLOG_BYTES_MAX = 2 << 20
UPGRADE = b"GET /ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
SWITCHED = [("connection", "upgrade"), ("upgrade", "websocket")]


class Desk:
    """A transport that the test polls and flushes itself, and raw clients of it."""

    def __init__(self, **options: object) -> None:
        self.notices: list[str] = []
        options = {
            "serves_http": True,
            "stream_backlog_bytes_max": BACKLOG_BYTES_MAX,
            **options,
        }
        self.transport = NativeTransport(
            ["http://127.0.0.1:0"],
            [],
            NativeOptions(**options),  # type: ignore[arg-type]
            self.notices.append,
        )
        self.target = self.transport.bound_urls[0].removeprefix("http://")
        self.seen = Inbox()
        self._clients: list[socket.socket] = []

    def poll(self, timeout_s: float = 0.05) -> Inbox:
        inbox = self.transport.poll(timeout_s)
        for name in ("requests", "frames", "half_closed", "gone"):
            getattr(self.seen, name).extend(getattr(inbox, name))
        self.seen.backlog = inbox.backlog
        return inbox

    def until(self, condition: Callable[[Inbox], object]) -> Inbox:
        deadline = time.monotonic() + WAIT_S
        while not condition(self.seen):
            assert time.monotonic() < deadline, f"still waiting; seen: {self.seen}"
            self.poll()
        return self.seen

    def flush(self, **columns: object) -> None:
        self.transport.flush(Outbox(**columns))  # type: ignore[arg-type]

    def client(self) -> socket.socket:
        host, port = self.target.split(":")
        self._clients.append(socket.create_connection((host, int(port)), timeout=WAIT_S))
        return self._clients[-1]

    def request_id(self) -> int:
        """Wait for the next request; its id."""
        count = len(self.seen.requests)
        return self.until(lambda seen: len(seen.requests) > count).requests[-1][0]

    def until_body_ends(self, request_id: int, data: bytes) -> None:
        self.until(lambda _: self.body_of(request_id).endswith(data))

    def body_of(self, request_id: int) -> bytes:
        """Return what came of a request's body so far."""
        return b"".join(data for each, data in self.seen.frames if each == request_id)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.transport.stop(0.0)


@pytest.fixture
def start() -> Iterator[Callable[..., Desk]]:
    started: list[Desk] = []

    def begin(**options: object) -> Desk:
        started.append(Desk(**options))
        return started[-1]

    yield begin
    for desk in started:
        desk.close()


@pytest.fixture
def desk(start: Callable[..., Desk]) -> Desk:
    return start()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def read_until(client: socket.socket, ending: bytes) -> bytes:
    data = b""
    while not data.endswith(ending):
        more = client.recv(65536)
        assert more, data
        data += more
    return data


CHUNKED = b"POST /v3/watch HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


def test_a_body_of_unknown_length_comes_in_frames(desk: Desk) -> None:
    client = desk.client()
    client.sendall(CHUNKED + chunk(b"one"))
    request_id = desk.request_id()
    assert desk.seen.requests[0][1:3] == ("POST", "/v3/watch")
    assert desk.seen.requests[0][4] is None
    desk.until(lambda _: desk.body_of(request_id) == b"one")
    assert desk.seen.half_closed == []
    client.sendall(chunk(b"two") + chunk(b""))
    desk.until(lambda seen: seen.half_closed == [request_id])
    assert desk.body_of(request_id) == b"onetwo"
    desk.flush(responses=[(request_id, 200, [], b"thanks")])
    assert b"content-length: 6\r\n" in read_until(client, b"thanks")
    client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")  # the connection goes on
    assert desk.request_id() > request_id
    assert desk.seen.gone == []


def test_an_answer_leaves_bit_by_bit_and_ends(desk: Desk) -> None:
    client = desk.client()
    for _ in range(2):  # on one connection
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        request_id = desk.request_id()
        desk.flush(responses=[(request_id, 200, [("x-a", "1")], None)])
        head = read_until(client, b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"transfer-encoding: chunked\r\n" in head
        desk.flush(deliveries=[(request_id, b"head", b"tail")])
        read_until(client, b"8\r\nheadtail\r\n")
        large = b"x" * 100_000
        desk.flush(deliveries=[(request_id, b"", large)], ends=[(request_id, 0, b"")])
        assert read_until(client, b"0\r\n\r\n").count(b"x") == len(large)
    desk.poll(0.0)
    assert desk.seen.gone == []


def test_head_body_and_end_in_one_flush(desk: Desk) -> None:
    connection = http.client.HTTPConnection(desk.target, timeout=WAIT_S)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        request_id = desk.request_id()
        desk.flush(
            responses=[(request_id, 200, [], None)],
            deliveries=[(request_id, b"a", b""), (request_id, b"b", b"")],
            ends=[(request_id, 0, b"")],
        )
        assert connection.getresponse().read() == b"ab"
        connection.request("HEAD", "/metrics")
        desk.flush(responses=[(desk.request_id(), 200, [], b"never seen")])
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"")


def test_both_ways_at_once(desk: Desk) -> None:
    client = desk.client()
    client.sendall(CHUNKED)
    request_id = desk.request_id()
    desk.flush(responses=[(request_id, 200, [], None)])
    read_until(client, b"\r\n\r\n")
    for number in range(3):
        client.sendall(chunk(b"ask%d" % number))
        desk.until_body_ends(request_id, b"%d" % number)
        desk.flush(deliveries=[(request_id, b"answer%d" % number, b"")])
        read_until(client, b"answer%d\r\n" % number)
    client.sendall(chunk(b""))
    desk.until(lambda seen: seen.half_closed == [request_id])
    desk.flush(ends=[(request_id, 0, b"")])
    read_until(client, b"0\r\n\r\n")


def open_http2(client: RawConnection, stream: int) -> None:
    headers = request_headers("/v3/watch", content_type="application/json")
    client.send(client.headers(stream, headers, END_HEADERS))


def test_both_ways_at_once_over_http2(desk: Desk) -> None:
    with RawConnection(desk.target) as client:
        open_http2(client, 1)
        request_id = desk.request_id()
        assert desk.seen.requests[0][4] is None
        assert ("host", "test") in desk.seen.requests[0][3]
        desk.flush(responses=[(request_id, 200, [("connection", "close")], None)])
        for number in range(3):
            client.send(frame(DATA, 0, 1, b"ask%d" % number))
            desk.until_body_ends(request_id, b"%d" % number)
            desk.flush(deliveries=[(request_id, b"answer%d" % number, b"")])
            assert next(f for f in client.frames() if f.kind == DATA).payload == (
                b"answer%d" % number
            )
        client.send(frame(DATA, END_STREAM, 1, b""))
        desk.until(lambda seen: seen.half_closed == [request_id])
        desk.flush(ends=[(request_id, 0, b"")])
        last = next(f for f in client.frames() if f.kind == DATA)
        assert (last.payload, last.flags) == (b"", END_STREAM)
    desk.poll(0.05)
    assert desk.seen.gone == []


def test_a_whole_answer_over_http2_larger_than_its_window(desk: Desk) -> None:
    with RawConnection(desk.target) as client:
        client.call(1, "/", b"", content_type="", content_length="0")
        request_id = desk.request_id()
        desk.flush(responses=[(request_id, 200, [], b"x" * 100_000)])
        size = 0
        for each in client.frames():
            size += len(each.payload) if each.kind == DATA else 0
            if each.kind == DATA:
                credit = len(each.payload).to_bytes(4, "big")
                client.send(frame(8, 0, 0, credit) + frame(8, 0, 1, credit))
            if each.flags & END_STREAM and each.kind == DATA:
                break
        assert size == 100_000


def test_an_answer_with_a_fault_is_torn(desk: Desk) -> None:
    connection = http.client.HTTPConnection(desk.target, timeout=WAIT_S)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        request_id = desk.request_id()
        desk.flush(
            responses=[(request_id, 200, [], None)],
            deliveries=[(request_id, b"half", b"")],
            ends=[(request_id, 13, b"")],
        )
        response = connection.getresponse()
        with pytest.raises(http.client.IncompleteRead) as torn:
            response.read()
        assert torn.value.partial == b"half"
    with RawConnection(desk.target) as client:
        client.call(1, "/", b"", content_type="", content_length="0")
        request_id = desk.request_id()
        desk.flush(responses=[(request_id, 200, [], None)], ends=[(request_id, 13, b"")])
        assert client.answer(1)[0]["reset"] == "2"


def test_an_end_without_an_answer_is_a_fault(desk: Desk) -> None:
    connection = http.client.HTTPConnection(desk.target, timeout=WAIT_S)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        desk.flush(ends=[(desk.request_id(), 0, b"")])
        assert connection.getresponse().status == 500


@pytest.mark.parametrize(
    ("status", "headers"),
    [(200, [("bad name", "x")]), (200, [("x", "a\nb")]), (101, []), (100, []), (9, [])],
)
def test_an_answer_that_cannot_be_is_reported(
    desk: Desk, status: int, headers: list[tuple[str, str]]
) -> None:
    connection = http.client.HTTPConnection(desk.target, timeout=WAIT_S)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        request_id = desk.request_id()
        desk.flush(responses=[(request_id, status, headers, None)])
        assert connection.getresponse().status == 500
    desk.until(lambda seen: seen.gone == [request_id])
    assert "bad answer to the HTTP request" in desk.notices[0]


@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_leaves_is_gone(desk: Desk, *, begun: bool) -> None:
    client = desk.client()
    client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    ids = [desk.request_id()]
    with RawConnection(desk.target) as other:
        for stream in (1, 3):
            open_http2(other, stream)
            ids.append(desk.request_id())
        if begun:
            desk.flush(responses=[(each, 200, [], None) for each in ids])
            read_until(client, b"\r\n\r\n")
        client.close()
        desk.until(lambda seen: seen.gone == ids[:1])
        other.send(frame(RST_STREAM, 0, 1, (8).to_bytes(4, "big")))
        desk.until(lambda seen: seen.gone == ids[:2])
    desk.until(lambda seen: seen.gone == ids)
    desk.flush(deliveries=[(each, b"late", b"") for each in ids], ends=[(ids[0], 0, b"")])
    desk.poll(0.05)
    assert len(desk.seen.gone) == 3


def test_a_torn_request_body_is_gone(desk: Desk) -> None:
    client = desk.client()
    client.sendall(CHUNKED + b"5\r\nab")
    request_id = desk.request_id()
    client.shutdown(socket.SHUT_WR)
    desk.until(lambda seen: seen.gone == [request_id])
    assert desk.seen.half_closed == []
    assert client.recv(4096).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert client.recv(4096) == b""  # and the connection is not kept


def test_a_torn_body_of_known_length_asks_nothing(desk: Desk) -> None:
    client = desk.client()
    client.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab")
    client.shutdown(socket.SHUT_WR)
    data = b""
    while more := client.recv(4096):
        data += more
    assert data.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    desk.poll(0.0)
    assert desk.seen.requests == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_slow_reader_is_reported_and_then_cut(desk: Desk, version: int) -> None:
    with contextlib.ExitStack() as stack:
        if version == 1:
            client = desk.client()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        else:
            open_http2(stack.enter_context(RawConnection(desk.target)), 1)
        request_id = desk.request_id()
        desk.flush(responses=[(request_id, 200, [], None)])
        piece = b"x" * (256 << 10)
        deadline = time.monotonic() + WAIT_S
        most = 0
        while not desk.seen.gone:
            assert time.monotonic() < deadline
            desk.flush(deliveries=[(request_id, b"", piece)])
            desk.poll(0.0)
            most = max(most, desk.seen.backlog.get(request_id, 0))
        assert desk.seen.gone == [request_id]
        assert most > BACKLOG_BYTES_MAX // 2


def test_a_body_is_read_no_further_than_its_share_a_poll(start: Callable[..., Desk]) -> None:
    desk = start(mailbox=MailboxLimits(stream_bytes_max=100_000))
    client = desk.client()
    client.sendall(CHUNKED)
    request_id = desk.request_id()
    client.settimeout(1.0)
    flood = chunk(b"x" * 65_536) * 1000
    with pytest.raises(TimeoutError):
        client.sendall(flood)
    before = len(desk.body_of(request_id))
    share = sum(len(data) for _, data in desk.poll().frames)
    assert before == 0
    assert 100_000 <= share < 1_000_000
    desk.until(lambda _: len(desk.body_of(request_id)) > 2 * share)  # and it goes on


def test_an_upgraded_connection_is_bytes_both_ways(desk: Desk) -> None:
    client = desk.client()
    client.sendall(UPGRADE + b"early")
    request_id = desk.request_id()
    assert desk.seen.requests[0][4] is None
    desk.flush(
        responses=[(request_id, 101, SWITCHED, None)], deliveries=[(request_id, b"\x81\x00", b"")]
    )
    head = read_until(client, b"\x81\x00")
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"upgrade: websocket\r\n" in head
    desk.until(lambda _: desk.body_of(request_id) == b"early")
    client.sendall(b"later")
    desk.until(lambda _: desk.body_of(request_id) == b"earlylater")
    desk.flush(deliveries=[(request_id, b"", b"y" * 50_000)])
    read_until(client, b"y" * 10_000)
    client.shutdown(socket.SHUT_WR)
    desk.until(lambda seen: seen.half_closed == [request_id])
    desk.flush(deliveries=[(request_id, b"bye", b"")], ends=[(request_id, 0, b"")])
    data = b""
    while more := client.recv(65536):
        data += more
    assert data.endswith(b"bye")
    assert desk.seen.gone == []


def test_an_offer_of_another_protocol_changes_nothing(desk: Desk) -> None:
    client = desk.client()
    client.sendall(
        b"POST /put HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n"
        b"content-length: 4\r\n\r\nbody"
    )
    request_id = desk.request_id()
    assert desk.seen.requests[0][4] == b"body"
    desk.flush(responses=[(request_id, 200, [], b"fine")])
    read_until(client, b"fine")


def test_an_upgrade_may_be_refused_and_its_client_may_leave(desk: Desk) -> None:
    client = desk.client()
    client.sendall(UPGRADE)
    desk.flush(responses=[(desk.request_id(), 400, [], b"no")])
    assert read_until(client, b"no").startswith(b"HTTP/1.1 400 Bad Request\r\n")
    other = desk.client()
    other.sendall(UPGRADE)
    request_id = desk.request_id()
    desk.flush(responses=[(request_id, 101, SWITCHED, None)])
    read_until(other, b"\r\n\r\n")
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    other.close()  # by a reset
    desk.until(lambda seen: seen.gone == [request_id])


def test_stop_ends_what_is_open(desk: Desk) -> None:
    streaming, upgraded = desk.client(), desk.client()
    streaming.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    first = desk.request_id()
    upgraded.sendall(UPGRADE)
    second = desk.request_id()
    desk.flush(responses=[(first, 200, [], None), (second, 101, SWITCHED, None)])
    desk.flush(deliveries=[(first, b"last", b""), (second, b"last", b"")])
    desk.transport.stop(WAIT_S)
    for client in (streaming, upgraded):
        data = b""
        while more := client.recv(65536):
            data += more
        assert b"last" in data
        assert not data.endswith(b"0\r\n\r\n")  # torn, not ended


def test_headers_frames_are_not_confused_by_a_body_that_follows_at_once(desk: Desk) -> None:
    with RawConnection(desk.target) as client:
        headers = request_headers("/", content_type="")
        client.send(
            client.headers(1, headers, END_HEADERS)
            + frame(DATA, 0, 1, b"a")
            + frame(DATA, END_STREAM, 1, b"b")
        )
        request_id = desk.request_id()
        desk.until(lambda seen: seen.half_closed == [request_id])
        assert desk.body_of(request_id) == b"ab"
        desk.flush(responses=[(request_id, 204, [], b"")])
        assert next(f for f in client.frames() if f.kind == HEADERS).flags & END_STREAM
