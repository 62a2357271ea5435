"""What every transport must do, tested through its Protocol and real gRPC clients.

A transport joins by adding itself to IMPLEMENTATIONS; the tests know no other name of it.
"""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import grpc
import hpack
import pytest

from kvstack.component.errors import ConfigError
from kvstore.batch import Inbox, Outbox
from kvstore.transport import native
from kvstore.transport.base import Transport
from kvstore.transport.grpcio.server import GrpcOptions, GrpcTransport
from kvstore.transport.mailbox import MailboxLimits
from kvstore.transport.native import NativeOptions, NativeTransport
from kvstore.wire import rpc
from tests.support import raw_grpc

WAIT_S = 60.0
REQUEST_BYTES_MAX = 2 << 20
BACKLOG_BYTES_MAX = 4 << 20
UNSERVED = rpc.COMPACT
SERVED = frozenset(range(len(rpc.METHODS))) - {UNSERVED}
PUT = rpc.METHODS[rpc.PUT].path
WATCH = rpc.METHODS[rpc.WATCH].path
RANGE_STREAM = rpc.METHODS[rpc.RANGE_STREAM].path


@dataclass(frozen=True)
class Settings:
    """What a test may ask of a transport."""

    urls: tuple[str, ...] = ("http://127.0.0.1:0",)
    streams_max: int = 2**32 - 1
    keepalive_min_s: float = 5.0
    calls_per_poll_max: int = 8192
    bytes_per_poll_max: int = 64 << 20
    stream_frames_max: int = 256
    waiting_bytes_max: int = 256 << 20


def mailbox_limits(settings: Settings) -> MailboxLimits:
    return MailboxLimits(
        calls_max=settings.calls_per_poll_max,
        bytes_max=settings.bytes_per_poll_max,
        stream_frames_max=settings.stream_frames_max,
        waiting_bytes_max=settings.waiting_bytes_max,
    )


def start_grpc(settings: Settings) -> tuple[Transport, list[str]]:
    transport = GrpcTransport(
        settings.urls,
        SERVED,
        GrpcOptions(
            request_bytes_max=REQUEST_BYTES_MAX,
            stream_backlog_bytes_max=BACKLOG_BYTES_MAX,
            concurrent_streams_max=settings.streams_max,
            keepalive_min_s=settings.keepalive_min_s,
            mailbox=mailbox_limits(settings),
        ),
    )
    return transport, transport.bound_urls


def start_native(settings: Settings) -> tuple[Transport, list[str]]:
    if not native.is_available():
        pytest.skip("the native transport is not built: it needs a Rust toolchain")
    transport = NativeTransport(
        settings.urls,
        SERVED,
        NativeOptions(
            request_bytes_max=REQUEST_BYTES_MAX,
            stream_backlog_bytes_max=BACKLOG_BYTES_MAX,
            concurrent_streams_max=settings.streams_max,
            keepalive_min_s=settings.keepalive_min_s,
            mailbox=mailbox_limits(settings),
        ),
    )
    return transport, transport.bound_urls


IMPLEMENTATIONS = {"grpcio": start_grpc, "native": start_native}


class Driver:
    """A transport, and all that was polled from it so far."""

    def __init__(self, transport: Transport, urls: list[str]) -> None:
        self.transport = transport
        self.urls = urls
        self.seen = Inbox()

    @property
    def target(self) -> str:
        return self.urls[0].removeprefix("http://")

    def poll(self, timeout_s: float = 0.05) -> Inbox:
        inbox = self.transport.poll(timeout_s)
        for name in ("calls", "opened", "frames", "half_closed", "gone"):
            getattr(self.seen, name).extend(getattr(inbox, name))
        self.seen.backlog = inbox.backlog
        self.seen.metadata.update(inbox.metadata)
        return inbox

    def until(self, condition: Callable[[Inbox], object]) -> Inbox:
        """Poll until the condition holds of all that was seen."""
        deadline = time.monotonic() + WAIT_S
        while not condition(self.seen):
            assert time.monotonic() < deadline, f"still waiting; seen: {self.seen}"
            self.poll()
        return self.seen

    def until_calls(self, count: int) -> None:
        """Poll until there were so many calls."""
        self.until(lambda seen: len(seen.calls) == count)

    def flush(self, **columns: object) -> None:
        self.transport.flush(Outbox(**columns))  # type: ignore[arg-type]


StartDriver = Callable[..., Driver]


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def start(request: pytest.FixtureRequest) -> Iterator[StartDriver]:
    started: list[Transport] = []

    def begin(**settings: object) -> Driver:
        transport, urls = IMPLEMENTATIONS[request.param](Settings(**settings))  # type: ignore[arg-type]
        started.append(transport)
        return Driver(transport, urls)

    yield begin
    for transport in started:
        transport.stop(0.0)


@pytest.fixture
def driver(start: StartDriver) -> Driver:
    return start()


@pytest.fixture
def channel(driver: Driver) -> Iterator[grpc.Channel]:
    with connect(driver.target) as channel:
        yield channel


@contextlib.contextmanager
def connect(target: str, *options: tuple[str, int]) -> Iterator[grpc.Channel]:
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    local = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    fixed = [("grpc.http2.bdp_probe", 0)]  # a fast machine would be granted windows of megabytes
    with grpc.insecure_channel(target, [*unlimited, *local, *fixed, *options]) as channel:
        yield channel


def code_and_text(error: BaseException | None) -> tuple[grpc.StatusCode, str]:
    assert isinstance(error, grpc.RpcError)
    return error.code(), error.details() or ""


class Sender:
    """Requests for a bidi call, sent when the test says so."""

    def __init__(self, channel: grpc.Channel, path: str = WATCH, **kwargs: Any) -> None:
        self._ready = threading.Condition()
        self._queue: list[bytes | None] = []
        self.call = raw_grpc.stream(channel, path)(self._requests(), **kwargs)

    def send(self, *messages: bytes | None) -> None:
        """Send messages; None closes our half."""
        with self._ready:
            self._queue.extend(messages)
            self._ready.notify()

    def _requests(self) -> Iterator[bytes]:
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._queue)
                message = self._queue.pop(0)
            if message is None:
                return
            yield message


@pytest.fixture
def sender(channel: grpc.Channel) -> Iterator[Sender]:
    sender = Sender(channel)
    yield sender
    sender.call.cancel()
    sender.send(None)


# --- unary calls ---


def test_a_call_arrives_whole_and_its_reply_goes_back(
    driver: Driver, channel: grpc.Channel
) -> None:
    body = bytes(range(256)) * 40
    future = raw_grpc.unary(channel, PUT).future(body)
    [(call_id, method_id, arrived)] = driver.until(lambda seen: seen.calls).calls
    assert (method_id, arrived) == (rpc.PUT, body)
    driver.flush(replies=[(call_id, 0, b"answer\x00\xff")])
    assert future.result(WAIT_S) == b"answer\x00\xff"
    assert not driver.seen.gone


def test_an_empty_request_and_an_empty_reply(driver: Driver, channel: grpc.Channel) -> None:
    future = raw_grpc.unary(channel, PUT).future(b"")
    [(call_id, _, body)] = driver.until(lambda seen: seen.calls).calls
    assert body == b""
    driver.flush(replies=[(call_id, 0, b"")])
    assert future.result(WAIT_S) == b""


def test_many_calls_gather_and_are_answered_in_any_order(
    driver: Driver, channel: grpc.Channel
) -> None:
    put = raw_grpc.unary(channel, PUT)
    futures = {b"%d" % i: put.future(b"%d" % i) for i in range(100)}
    driver.until(lambda seen: len(seen.calls) == 100)
    assert len({call_id for call_id, _, _ in driver.seen.calls}) == 100
    driver.flush(
        replies=[(call_id, 0, b"re" + body) for call_id, _, body in driver.seen.calls[::-1]]
    )
    for body, future in futures.items():
        assert future.result(WAIT_S) == b"re" + body


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (3, "etcdserver: key is not provided"),
        (11, "etcdserver: mvcc: required revision has been compacted"),
        (16, "etcdserver: invalid auth token"),
        (2, "ünïcode, 100 % \n and a newline"),
        (13, ""),
    ],
)
def test_a_refusal_carries_code_and_text_exactly(
    driver: Driver, channel: grpc.Channel, code: int, text: str
) -> None:
    future = raw_grpc.unary(channel, PUT).future(b"x")
    [(call_id, _, _)] = driver.until(lambda seen: seen.calls).calls
    driver.flush(replies=[(call_id, code, text.encode())])
    status, details = code_and_text(future.exception(WAIT_S))
    assert (status.value[0], details) == (code, text)


def test_only_the_metadata_that_matters_is_passed_on(driver: Driver, channel: grpc.Channel) -> None:
    wanted = {
        "hasleader": "true",
        "token": "abc.7",
        "authorization": "Bearer x",
        "client-api-version": "3.7",
    }
    put, other = raw_grpc.unary(channel, PUT), ("x-other", "1")
    _held = (
        put.future(b"bare", metadata=(other,)),
        put.future(b"rich", metadata=(*wanted.items(), other)),
    )
    driver.until(lambda seen: len(seen.calls) == 2)
    ids = {body: call_id for call_id, _, body in driver.seen.calls}
    assert driver.seen.metadata == {ids[b"rich"]: wanted}


def test_a_long_token_arrives(driver: Driver, channel: grpc.Channel) -> None:
    token = "t" * 50_000
    _held = raw_grpc.unary(channel, PUT).future(b"x", metadata=(("token", token),))
    [(call_id, _, _)] = driver.until(lambda seen: seen.calls).calls
    assert driver.seen.metadata == {call_id: {"token": token}}


def test_a_reply_without_a_call_is_dropped(driver: Driver, channel: grpc.Channel) -> None:
    driver.flush(replies=[(999, 0, b"x")], deliveries=[(998, b"a", b"b")], ends=[(997, 0, b"")])
    future = raw_grpc.unary(channel, PUT).future(b"x")
    [(call_id, _, _)] = driver.until(lambda seen: seen.calls).calls
    driver.flush(replies=[(call_id, 0, b"still here"), (call_id, 0, b"twice")])
    assert future.result(WAIT_S) == b"still here"


def test_unknown_methods_are_refused_with_gos_text(driver: Driver, channel: grpc.Channel) -> None:
    def refusal(path: str) -> tuple[grpc.StatusCode, str]:
        return code_and_text(raw_grpc.unary(channel, path).future(b"x").exception(WAIT_S))

    unimplemented = grpc.StatusCode.UNIMPLEMENTED
    assert refusal("/etcdserverpb.KV/Nope") == (
        unimplemented,
        "unknown method Nope for service etcdserverpb.KV",
    )
    assert refusal("/no.Such/Put") == (unimplemented, "unknown service no.Such")
    assert refusal(rpc.METHODS[UNSERVED].path) == (
        unimplemented,
        "unknown method Compact for service etcdserverpb.KV",
    )
    driver.poll(0.0)
    assert not driver.seen.calls


def test_a_message_at_the_limit_passes_and_one_above_is_refused(
    driver: Driver, channel: grpc.Channel
) -> None:
    put = raw_grpc.unary(channel, PUT)
    future = put.future(b"x" * REQUEST_BYTES_MAX)
    [(call_id, _, body)] = driver.until(lambda seen: seen.calls).calls
    assert len(body) == REQUEST_BYTES_MAX
    driver.flush(replies=[(call_id, 0, body)])
    assert future.result(WAIT_S) == body
    refusal = put.future(b"x" * (REQUEST_BYTES_MAX + 1)).exception(WAIT_S)
    assert code_and_text(refusal) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "grpc: received message larger than max (2097153 vs. 2097152)",
    )


def test_an_absurd_message_is_refused_and_the_server_lives_on(
    driver: Driver, channel: grpc.Channel
) -> None:
    put = raw_grpc.unary(channel, PUT)
    refusal = put.future(b"x" * (REQUEST_BYTES_MAX + (32 << 20))).exception(WAIT_S)
    assert code_and_text(refusal)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    future = put.future(b"small")
    driver.until(lambda seen: seen.calls)
    driver.flush(replies=[(driver.seen.calls[-1][0], 0, b"ok")])
    assert future.result(WAIT_S) == b"ok"


# --- calls whose client goes away ---


def test_a_cancelled_call_is_gone_and_its_neighbour_is_not(
    driver: Driver, channel: grpc.Channel
) -> None:
    put = raw_grpc.unary(channel, PUT)
    victim, neighbour = put.future(b"victim"), put.future(b"neighbour")
    driver.until(lambda seen: len(seen.calls) == 2)
    ids = {body: call_id for call_id, _, body in driver.seen.calls}
    victim.cancel()
    assert driver.until(lambda seen: seen.gone).gone == [ids[b"victim"]]
    driver.flush(replies=[(ids[b"victim"], 0, b"late"), (ids[b"neighbour"], 0, b"in time")])
    assert neighbour.result(WAIT_S) == b"in time"


def test_a_call_past_its_deadline_is_gone(driver: Driver, channel: grpc.Channel) -> None:
    grpc.channel_ready_future(channel).result(WAIT_S)  # its time goes from here on
    future = raw_grpc.unary(channel, PUT).future(b"x", timeout=1.0)
    [(call_id, _, _)] = driver.until(lambda seen: seen.calls).calls
    assert driver.until(lambda seen: seen.gone).gone == [call_id]
    assert code_and_text(future.exception(WAIT_S))[0] is grpc.StatusCode.DEADLINE_EXCEEDED


def test_everything_on_a_lost_connection_is_gone(driver: Driver) -> None:
    with connect(driver.target) as channel:
        _held = raw_grpc.unary(channel, PUT).future(b"x")
        sender = Sender(channel)
        sender.send(b"frame")
        driver.until(lambda seen: seen.calls and seen.frames)
    ids = {driver.seen.calls[0][0], driver.seen.opened[0][0]}
    driver.until(lambda seen: set(seen.gone) == ids)
    assert len(driver.seen.gone) == 2
    sender.send(None)


# --- server streams ---


def test_a_server_stream_delivers_and_ends(driver: Driver, channel: grpc.Channel) -> None:
    call = raw_grpc.unary_stream(channel, RANGE_STREAM)(b"request")
    [(stream_id, method_id, body)] = driver.until(lambda seen: seen.calls).calls
    assert (method_id, body) == (rpc.RANGE_STREAM, b"request")
    driver.flush(deliveries=[(stream_id, b"he", b"ad"), (stream_id, b"second", b"")])
    driver.flush(deliveries=[(stream_id, b"", b"third")], ends=[(stream_id, 0, b"")])
    assert list(call) == [b"head", b"second", b"third"]
    driver.poll(0.0)
    assert not driver.seen.gone


def test_a_server_stream_ends_with_an_error_after_its_messages(
    driver: Driver, channel: grpc.Channel
) -> None:
    call = raw_grpc.unary_stream(channel, RANGE_STREAM)(b"request")
    [(stream_id, _, _)] = driver.until(lambda seen: seen.calls).calls
    driver.flush(deliveries=[(stream_id, b"one", b"")], ends=[(stream_id, 14, b"no leader")])
    assert next(call) == b"one"
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert code_and_text(caught.value) == (grpc.StatusCode.UNAVAILABLE, "no leader")


def test_a_server_stream_may_be_refused_by_a_reply(driver: Driver, channel: grpc.Channel) -> None:
    call = raw_grpc.unary_stream(channel, RANGE_STREAM)(b"request")
    [(stream_id, _, _)] = driver.until(lambda seen: seen.calls).calls
    driver.flush(replies=[(stream_id, 12, b"does not sort")])
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert code_and_text(caught.value) == (grpc.StatusCode.UNIMPLEMENTED, "does not sort")


def test_a_cancelled_server_stream_is_gone(driver: Driver, channel: grpc.Channel) -> None:
    call = raw_grpc.unary_stream(channel, RANGE_STREAM)(b"request")
    [(stream_id, _, _)] = driver.until(lambda seen: seen.calls).calls
    driver.flush(deliveries=[(stream_id, b"one", b"")])
    assert next(call) == b"one"
    call.cancel()
    assert driver.until(lambda seen: seen.gone).gone == [stream_id]


# --- bidi streams ---


def test_a_bidi_stream_carries_frames_both_ways(driver: Driver, sender: Sender) -> None:
    [(stream_id, method_id)] = driver.until(lambda seen: seen.opened).opened
    assert method_id == rpc.WATCH
    driver.flush(deliveries=[(stream_id, b"before any frame", b"")])
    assert next(sender.call) == b"before any frame"
    sender.send(b"one", b"", b"three")
    driver.until(lambda seen: len(seen.frames) == 3)
    assert driver.seen.frames == [(stream_id, b"one"), (stream_id, b""), (stream_id, b"three")]
    driver.flush(deliveries=[(stream_id, b"%d" % i, b"!") for i in range(50)])
    assert [next(sender.call) for _ in range(50)] == [b"%d!" % i for i in range(50)]


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
@pytest.mark.parametrize(("count", "tail_bytes"), [(3, 10), (3, 100_000), (500, 3_000)])
def test_a_fan_out_is_a_message_for_each_middle(
    driver: Driver,
    channel: grpc.Channel,
    count: int,
    tail_bytes: int,
    compression: grpc.Compression | None,
) -> None:
    senders = []
    for number in (1, 2):
        senders.append(Sender(channel, compression=compression))
        driver.until(lambda seen, number=number: len(seen.opened) == number)  # type: ignore[misc]
    (first, _), (second, _) = driver.seen.opened
    head, tail = b"head", b"t" * tail_bytes
    middles = tuple(b"%d" % number for number in range(count))
    fan_outs = [(stream_id, head, tail, middles) for stream_id in (first, second)]
    driver.flush(deliveries=[(first, b"before", b""), *fan_outs, (second, b"after", b"")])
    expected = [head + middle + tail for middle in middles]
    for sender, messages in zip(
        senders, ([b"before", *expected], [*expected, b"after"]), strict=True
    ):
        assert [next(sender.call) for _ in messages] == messages
        sender.call.cancel()
        sender.send(None)


def test_a_half_close_comes_after_the_last_frame_and_the_answer_still_goes_out(
    driver: Driver, sender: Sender
) -> None:
    sender.send(*[b"%d" % i for i in range(20)], None)
    driver.until(lambda seen: seen.half_closed)
    [(stream_id, _)] = driver.seen.opened
    assert driver.seen.half_closed == [stream_id]
    assert [message for _, message in driver.seen.frames] == [b"%d" % i for i in range(20)]
    driver.flush(deliveries=[(stream_id, b"last word", b"")], ends=[(stream_id, 0, b"")])
    assert list(sender.call) == [b"last word"]
    driver.poll(0.0)
    assert not driver.seen.gone


def test_the_server_may_end_an_open_stream(driver: Driver, sender: Sender) -> None:
    [(stream_id, _)] = driver.until(lambda seen: seen.opened).opened
    driver.flush(ends=[(stream_id, 14, b"etcdserver: no leader"), (stream_id, 0, b"")])
    with pytest.raises(grpc.RpcError) as caught:
        next(sender.call)
    assert code_and_text(caught.value) == (grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")


def test_a_cancelled_bidi_stream_is_gone_once(driver: Driver, sender: Sender) -> None:
    sender.send(b"frame")
    driver.until(lambda seen: seen.frames)
    sender.call.cancel()
    [(stream_id, _)] = driver.seen.opened
    driver.until(lambda seen: seen.gone)
    driver.poll(0.1)
    assert driver.seen.gone == [stream_id]


def test_a_frame_above_the_limit_ends_its_stream_only(
    driver: Driver, channel: grpc.Channel, sender: Sender
) -> None:
    sender.send(b"x" * (REQUEST_BYTES_MAX + 1))
    [(stream_id, _)] = driver.until(lambda seen: seen.opened).opened
    assert driver.until(lambda seen: seen.gone).gone == [stream_id]
    with pytest.raises(grpc.RpcError) as caught:
        next(sender.call)
    assert code_and_text(caught.value) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "grpc: received message larger than max (2097153 vs. 2097152)",
    )


def test_metadata_of_a_stream(driver: Driver, channel: grpc.Channel) -> None:
    sender = Sender(channel, metadata=[("hasleader", "true")])
    [(stream_id, _)] = driver.until(lambda seen: seen.opened).opened
    assert driver.seen.metadata == {stream_id: {"hasleader": "true"}}
    sender.call.cancel()
    sender.send(None)


# --- limits ---


def test_one_poll_takes_a_limited_number_of_calls_and_leaves_the_rest(start: StartDriver) -> None:
    driver = start(calls_per_poll_max=10)
    with connect(driver.target) as channel:
        put = raw_grpc.unary(channel, PUT)
        futures = [put.future(b"%d" % i) for i in range(95)]
        sizes = []
        while len(driver.seen.calls) < 95:
            sizes.append(len(driver.poll(WAIT_S).calls))
        assert max(sizes) <= 10
        assert sorted(int(body) for _, _, body in driver.seen.calls) == list(range(95))
        driver.flush(replies=[(call_id, 0, body) for call_id, _, body in driver.seen.calls])
        assert [int(future.result(WAIT_S)) for future in futures] == list(range(95))


def test_one_poll_takes_a_limited_number_of_bytes(start: StartDriver) -> None:
    driver = start(bytes_per_poll_max=100_000)
    with connect(driver.target) as channel:
        put = raw_grpc.unary(channel, PUT)
        futures = [put.future(b"x" * 40_000) for _ in range(12)]
        while len(driver.seen.calls) < 12:
            assert sum(len(call[2]) for call in driver.poll(WAIT_S).calls) <= 100_000
        driver.flush(replies=[(call_id, 0, b"ok") for call_id, _, _ in driver.seen.calls])
        assert all(future.result(WAIT_S) == b"ok" for future in futures)


def test_a_stream_is_read_no_further_than_its_share_a_poll(start: StartDriver) -> None:
    driver = start(stream_frames_max=5)
    with connect(driver.target) as channel:
        sender = Sender(channel)
        sender.send(*[b"%d" % i for i in range(60)], None)
        while not driver.seen.half_closed:
            assert len(driver.poll(WAIT_S).frames) <= 5
        assert [int(message) for _, message in driver.seen.frames] == list(range(60))
        driver.flush(ends=[(driver.seen.opened[0][0], 0, b"")])
        assert list(sender.call) == []


def test_a_call_given_up_before_it_was_polled_is_not_gone_before_it_came(
    start: StartDriver,
) -> None:
    driver = start(calls_per_poll_max=1)
    with connect(driver.target) as channel:
        grpc.channel_ready_future(channel).result(WAIT_S)  # their time goes from here on
        futures = [raw_grpc.unary(channel, PUT).future(b"%d" % i, timeout=1.0) for i in range(5)]
        for future in futures:
            future.exception(WAIT_S)
        while len(driver.seen.gone) < 5:
            inbox = driver.poll(WAIT_S)
            came = {call_id for call_id, _, _ in driver.seen.calls}
            assert set(inbox.gone) <= came


def test_the_backlog_of_a_slow_reader_is_reported_and_its_end_wakes_the_driver(
    driver: Driver, sender: Sender
) -> None:
    [(stream_id, _)] = driver.until(lambda seen: seen.opened).opened
    message = b"x" * 65536
    for _ in range(40):
        driver.flush(deliveries=[(stream_id, message, b"")])
    inbox = driver.poll(0.0)
    assert 0 < inbox.backlog[stream_id] <= 40 * 65536
    for _ in range(40):
        assert next(sender.call) == message
    driver.until(lambda seen: not seen.backlog)


def test_a_hopelessly_slow_reader_loses_its_stream_with_a_clear_text(
    driver: Driver, sender: Sender
) -> None:
    [(stream_id, _)] = driver.until(lambda seen: seen.opened).opened
    message = b"x" * (1 << 20)
    for _ in range(16):
        driver.flush(deliveries=[(stream_id, message, b"")])
    assert driver.until(lambda seen: seen.gone).gone == [stream_id]
    received: list[bytes] = []
    with pytest.raises(grpc.RpcError) as caught:
        received.extend(iter(sender.call))
    assert len(received) < 16
    code, text = code_and_text(caught.value)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "too slow" in text
    assert str(BACKLOG_BYTES_MAX) in text
    assert not driver.poll(0.0).backlog


def test_one_message_larger_than_the_backlog_limit_still_goes_out(
    driver: Driver, channel: grpc.Channel
) -> None:
    call = raw_grpc.unary_stream(channel, RANGE_STREAM)(b"request")
    [(stream_id, _, _)] = driver.until(lambda seen: seen.calls).calls
    large = b"x" * (BACKLOG_BYTES_MAX + 1)
    driver.flush(deliveries=[(stream_id, large, b"")], ends=[(stream_id, 0, b"")])
    assert list(call) == [large]


def test_the_limit_of_streams_per_connection_is_announced(start: StartDriver) -> None:
    with raw_connection(start(streams_max=3)) as (_, settings):
        assert settings[0x3] == 3


# --- waiting and waking ---


def test_poll_returns_empty_when_the_time_is_over(driver: Driver) -> None:
    begin = time.monotonic()
    inbox = driver.transport.poll(0.05)
    assert time.monotonic() - begin >= 0.045
    assert inbox == Inbox()


def test_wake_ends_a_wait_and_is_not_lost_before_one(driver: Driver) -> None:
    begin = time.monotonic()
    driver.transport.wake()
    driver.transport.poll(WAIT_S)
    timer = threading.Timer(0.05, driver.transport.wake)
    timer.start()
    driver.transport.poll(WAIT_S)
    timer.join()
    assert time.monotonic() - begin < WAIT_S / 2


# --- addresses ---


def test_a_second_server_on_the_port_is_refused_by_name(start: StartDriver) -> None:
    url = start().urls[0]
    with pytest.raises(ConfigError, match=f"{url}: Address already in use"):
        start(urls=(url,))


def test_a_port_held_by_any_socket_is_refused(start: StartDriver) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        for host in ("127.0.0.1", "localhost", "0.0.0.0"):
            with pytest.raises(ConfigError, match=f"http://{host}:{port}"):
                start(urls=(f"http://{host}:{port}",))


def test_several_addresses_and_a_unix_socket(start: StartDriver, tmp_path: Path) -> None:
    driver = start(urls=("http://127.0.0.1:0", "http://127.0.0.1:0", f"unix://{tmp_path}/kv.sock"))
    targets = [url.removeprefix("http://").replace("unix://", "unix:") for url in driver.urls]
    assert len(set(targets)) == 3
    for count, target in enumerate(targets, start=1):
        with connect(target) as channel:
            future = raw_grpc.unary(channel, PUT).future(target.encode())
            driver.until_calls(count)
            driver.flush(replies=[(driver.seen.calls[-1][0], 0, b"ok")])
            assert future.result(WAIT_S) == b"ok"
    with pytest.raises(ConfigError, match="in use"):
        start(urls=(f"unix://{tmp_path}/kv.sock",))


def test_a_stale_unix_socket_is_taken_over_and_a_bad_path_is_not(
    start: StartDriver, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(f"{tmp_path}/kv.sock")
    start(urls=(f"unix://{tmp_path}/kv.sock",))
    with pytest.raises(ConfigError, match="missing/kv"):
        start(urls=(f"unix://{tmp_path}/missing/kv.sock",))


def test_tls_is_not_served_in_plaintext(start: StartDriver) -> None:
    with pytest.raises(ConfigError, match="only http:// and unix:// are served"):
        start(urls=("https://127.0.0.1:0",))


def test_a_call_tells_whose_it_is_also_after_its_client_has_left(driver: Driver) -> None:
    with raw_connection(driver) as (raw, _):
        raw.sendall(open_call(PUT, b"\0\0\0\0\x01x", end=True))
        [(call_id, _, _)] = driver.until(lambda seen: seen.calls).calls
        address = "{}:{}".format(*raw.getsockname())
        assert driver.transport.peer_of(call_id) == address
        driver.flush(replies=[(call_id, 0, b"ok")])
        assert read_status(raw) == ("0", "")
    with raw_connection(driver):  # a connection that could be taken for the first
        driver.poll()
        assert driver.transport.peer_of(call_id) == address


def test_a_client_at_a_unix_socket_has_no_address(start: StartDriver, tmp_path: Path) -> None:
    driver = start(urls=(f"unix://{tmp_path}/socket",))
    with connect(f"unix:{tmp_path}/socket") as channel:
        waiting = raw_grpc.unary(channel, PUT).future(b"x")
        [(call_id, _, _)] = driver.until(lambda seen: seen.calls).calls
        assert driver.transport.peer_of(call_id) == "@"
        waiting.cancel()


# --- stopping ---


def test_stop_lets_what_was_flushed_drain_and_ends_the_rest(
    driver: Driver, channel: grpc.Channel, sender: Sender
) -> None:
    answered, open_ = (raw_grpc.unary(channel, PUT).future(body) for body in (b"answered", b"open"))
    driver.until(lambda seen: len(seen.calls) == 2 and seen.opened)
    ids = {body: call_id for call_id, _, body in driver.seen.calls}
    [(stream_id, _)] = driver.seen.opened
    driver.flush(
        replies=[(ids[b"answered"], 0, b"ok")],
        deliveries=[(stream_id, b"%d" % i, b"") for i in range(100)],
    )
    driver.transport.stop(WAIT_S)
    assert answered.result(WAIT_S) == b"ok"
    stopped = (grpc.StatusCode.UNAVAILABLE, "etcdserver: server stopped")
    assert code_and_text(open_.exception(WAIT_S)) == stopped
    received: list[bytes] = []
    with pytest.raises(grpc.RpcError) as caught:
        received.extend(iter(sender.call))
    assert code_and_text(caught.value) == stopped
    with pytest.raises(ConnectionRefusedError), socket.socket() as late:
        late.connect(("127.0.0.1", int(driver.target.rpartition(":")[2])))


def test_stop_waits_no_longer_than_its_grace_for_a_client_that_does_not_read(
    driver: Driver, sender: Sender
) -> None:
    [(stream_id, _)] = driver.until(lambda seen: seen.opened).opened
    driver.flush(deliveries=[(stream_id, b"x" * (3 << 20), b"") for _ in range(1)])
    begin = time.monotonic()
    driver.transport.stop(0.2)
    assert time.monotonic() - begin < WAIT_S / 2
    driver.transport.stop(0.2)  # a second stop is nothing


def test_a_drain_lets_what_is_in_flight_be_answered_and_takes_nothing_new(
    driver: Driver, channel: grpc.Channel, sender: Sender
) -> None:
    transport = driver.transport
    put = raw_grpc.unary(channel, PUT).future(b"early")
    some = raw_grpc.unary_stream(channel, RANGE_STREAM)(b"early")
    endless = raw_grpc.unary_stream(channel, rpc.METHODS[rpc.ELECTION_OBSERVE].path)(b"early")
    driver.until(lambda seen: len(seen.calls) == 3 and seen.opened)
    ids = {method: call_id for call_id, method, _ in driver.seen.calls}
    [(stream_id, _)] = driver.seen.opened
    states: list[grpc.ChannelConnectivity] = []
    channel.subscribe(states.append)
    transport.drain()
    deadline = time.monotonic() + WAIT_S
    ready = grpc.ChannelConnectivity.READY
    while isinstance(transport, NativeTransport) and states[-1:] in ([], [ready]):
        assert time.monotonic() < deadline
        driver.poll(0.01)  # until GOAWAY has arrived
    late = raw_grpc.unary(channel, PUT).future(b"late")
    while not late.done():  # on the native transport once the client has seen GOAWAY
        assert time.monotonic() < deadline
        driver.poll()
        for call_id, _, body in driver.seen.calls:
            if body == b"late":  # it was on its way before the client knew
                driver.flush(replies=[(call_id, 0, b"ok")])
    assert late.exception() is None or late.code() is grpc.StatusCode.UNAVAILABLE
    assert not put.done()
    assert not transport.is_drained
    driver.flush(
        replies=[(ids[rpc.PUT], 0, b"ok")],
        deliveries=[(ids[rpc.RANGE_STREAM], b"row", b""), (stream_id, b"event", b"")],
        ends=[(ids[rpc.RANGE_STREAM], 0, b"")],
    )
    assert put.result(WAIT_S) == b"ok"
    assert list(some) == [b"row"]
    assert next(sender.call) == b"event"
    while not transport.is_drained:
        assert time.monotonic() < deadline
        driver.poll()
    sender.send(b"renew")
    driver.until(lambda seen: (stream_id, b"renew") in seen.frames)
    transport.stop(WAIT_S)
    for stream in (sender.call, endless):  # neither has held it up
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_client_with_nothing_open_is_sent_away_by_a_drain(start: StartDriver) -> None:
    driver = start()
    if isinstance(driver.transport, GrpcTransport):
        pytest.skip("grpcio sends GOAWAY only when it stops")
    with raw_connection(driver) as (raw, _):
        driver.transport.drain()
        kinds = []
        with contextlib.suppress(EOFError):
            while True:
                kind, _, payload = read_frame(raw)
                kinds.append(kind)
                if kind == 0x6:
                    raw.sendall(http2_frame(0x6, 0x1, 0, payload))
        assert kinds.count(0x7) == 2
    with pytest.raises(ConnectionRefusedError), socket.socket() as late:
        late.connect(("127.0.0.1", int(driver.target.rpartition(":")[2])))
    deadline = time.monotonic() + WAIT_S
    while not driver.transport.is_drained:
        assert time.monotonic() < deadline
        driver.poll()


def test_a_call_begun_before_the_client_heard_of_the_drain_costs_no_other_call(
    start: StartDriver,
) -> None:
    driver = start()
    if isinstance(driver.transport, GrpcTransport):
        pytest.skip("grpcio sends GOAWAY only when it stops")
    with raw_connection(driver) as (raw, _):
        raw.sendall(open_call(PUT, b"\0\0\0\0\x01x", end=True))
        [(call_id, _, _)] = driver.until(lambda seen: seen.calls).calls
        driver.transport.drain()
        ping, payload = 0x6, b""
        while not payload:
            kind, _, data = read_frame(raw)
            payload = data if kind == ping else b""
        late = open_call(PUT, b"\0\0\0\0\x01y", end=True, stream=3)
        credit = http2_frame(0x8, 0, 3, struct.pack(">I", 1 << 20))  # as gRPC's C core sends
        raw.sendall(http2_frame(ping, 0x1, 0, payload) + late + credit)
        goaway, last_stream = 0x7, -1
        while last_stream != 1:
            kind, _, data = read_frame(raw)
            if kind == goaway:
                last_stream, error = struct.unpack(">II", data[:8])
                assert error == 0
        driver.flush(replies=[(call_id, 0, b"ok")])
        assert read_status(raw) == ("0", "")
    assert [body for _, _, body in driver.seen.calls] == [b"x"]


# --- clients that do not speak well ---


@contextlib.contextmanager
def raw_connection(driver: Driver) -> Iterator[tuple[socket.socket, dict[int, int]]]:
    """Open HTTP/2 by hand; yields the socket and the server's settings."""
    host, port = driver.target.split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as raw:
        raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2_frame(0x4, 0, 0, b""))
        kind, _, payload = read_frame(raw)
        assert kind == 0x4
        yield raw, dict(struct.iter_unpack(">HI", payload))


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )


def read_frame(raw: socket.socket) -> tuple[int, int, bytes]:
    head = read_exactly(raw, 9)
    size = int.from_bytes(head[:3], "big")
    return head[3], int.from_bytes(head[5:], "big"), read_exactly(raw, size)


def read_exactly(raw: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = raw.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


def open_call(path: str, body: bytes, *, end: bool, stream: int = 1) -> bytes:
    """Frames that open a call by hand; body is raw, so it may be no whole gRPC message."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "test",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in headers.items()
    )
    return http2_frame(0x1, 0x4, stream, block) + http2_frame(0x0, int(end), stream, body)


class StreamReset(Exception):  # noqa: N818  # it is no error of ours
    """The server reset call 1."""


def read_status(raw: socket.socket) -> tuple[str, str]:
    """Read until call 1 ends; returns its status and its text."""
    decoder = hpack.Decoder()
    while True:
        kind, stream, payload = read_frame(raw)
        if kind == 0x3 and stream == 1:
            raise StreamReset
        if kind == 0x1 and stream == 1:
            headers = dict(cast("list[tuple[str, str]]", decoder.decode(payload)))
            if "grpc-status" in headers:
                return headers["grpc-status"], unquote(headers.get("grpc-message", ""))


@pytest.mark.parametrize("path", [PUT, RANGE_STREAM])
@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0\0\0\0\x05ab"])
def test_a_call_without_a_whole_request_is_answered_as_go_does(
    driver: Driver, path: str, body: bytes
) -> None:
    with raw_connection(driver) as (raw, _):
        raw.sendall(open_call(path, body, end=True))
        status, text = read_status(raw)
    assert status == "2"
    assert "EOF" in text
    driver.poll(0.0)
    assert not driver.seen.calls


def test_a_path_that_is_no_method_name_is_refused_with_gos_text(driver: Driver) -> None:
    with raw_connection(driver) as (raw, _):
        raw.sendall(open_call("/Put", b"\0\0\0\0\x01x", end=True))
        assert read_status(raw) == ("12", 'malformed method name: "/Put"')


def test_a_path_without_a_slash_is_refused_with_gos_text_or_as_malformed(driver: Driver) -> None:
    with raw_connection(driver) as (raw, _):
        raw.sendall(open_call("Put", b"\0\0\0\0\x01x", end=True))
        with contextlib.suppress(StreamReset):
            assert read_status(raw) == ("12", 'malformed method name: "Put"')


@pytest.mark.parametrize("path", [PUT, RANGE_STREAM, WATCH])
def test_a_connection_that_breaks_takes_its_call_with_it(driver: Driver, path: str) -> None:
    with raw_connection(driver) as (raw, _):
        raw.sendall(open_call(path, b"\0\0\0\0\x01x", end=False))
        driver.until(lambda seen: seen.calls or seen.frames)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    call_id = (driver.seen.calls or driver.seen.opened)[0][0]
    assert driver.until(lambda seen: seen.gone).gone == [call_id]


def test_requests_are_not_read_while_too_much_waits(start: StartDriver) -> None:
    driver = start(waiting_bytes_max=100_000)
    with connect(driver.target) as channel:
        put = raw_grpc.unary(channel, PUT)
        futures = [put.future(b"x" * 50_000) for _ in range(20)]
        largest_bytes = 0
        while len(driver.seen.calls) < 20:
            time.sleep(0.01)  # let as much come in as would
            largest_bytes = max(largest_bytes, sum(len(c[2]) for c in driver.poll(WAIT_S).calls))
        assert largest_bytes < 20 * 50_000
        driver.flush(replies=[(call_id, 0, b"ok") for call_id, _, _ in driver.seen.calls])
        assert all(future.result(WAIT_S) == b"ok" for future in futures)


def test_garbage_on_a_connection_does_not_affect_others(
    driver: Driver, channel: grpc.Channel
) -> None:
    host, port = driver.target.split(":")
    for junk in (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\x16\x03\x01\x00\xff" * 20, b"\x00" * 500):
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as raw:
            raw.sendall(junk)
            with contextlib.suppress(ConnectionResetError):
                while raw.recv(4096):
                    pass
    future = raw_grpc.unary(channel, PUT).future(b"x")
    driver.until(lambda seen: seen.calls)
    driver.flush(replies=[(driver.seen.calls[-1][0], 0, b"ok")])
    assert future.result(WAIT_S) == b"ok"


def ping_until_goodbye(driver: Driver, interval_s: float, pings: int) -> bool:
    """Ping an idle connection at an interval; tell whether the server ended it."""
    with raw_connection(driver) as (raw, _):
        raw.sendall(http2_frame(0x4, 1, 0, b""))
        for _ in range(pings):
            raw.sendall(http2_frame(0x6, 0, 0, b"12345678"))
            kind = -1
            while kind not in {0x6, 0x7}:
                kind, _, _ = read_frame(raw)
            if kind == 0x7:
                return True
            time.sleep(interval_s)
    return False


def test_a_client_that_pings_as_often_as_allowed_is_not_cut_off(start: StartDriver) -> None:
    assert not ping_until_goodbye(start(keepalive_min_s=0.02), interval_s=0.03, pings=8)


def test_a_client_that_pings_without_measure_is_cut_off(start: StartDriver) -> None:
    assert ping_until_goodbye(start(keepalive_min_s=60.0), interval_s=0.0, pings=8)
