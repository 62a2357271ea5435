"""Servers that do not speak well: a clear error in time, no other call disturbed, no crash."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from h2.errors import ErrorCodes

from kvstore.client import ClientOptions, Store, connect
from kvstore.client.errors import (
    CallFailedError,
    InvalidArgumentError,
    MalformedAnswerError,
    OutcomeUnknownError,
    PermissionDeniedError,
    StoreError,
    StoreTimeoutError,
    TooLargeError,
    TooManyRequestsError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
)
from kvstore.client.values import Events, Interrupted, Progress, Resumed, Started
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.http.scripted_server import Call, ScriptedServer, message
from tests.support.network.tcp_listener import TcpListener
from tests.support.store_hosts import needs_crate

OPTIONS = ClientOptions(timeout_s=10.0, response_bytes_max=1 << 20)
SHORT_S = 0.5
GOOD = pb.RangeResponse(
    header=pb.ResponseHeader(revision=7), kvs=[kv_pb2.KeyValue(key=b"k", value=b"v")], count=1
).SerializeToString()
GOOD_PUT = pb.PutResponse(header=pb.ResponseHeader(revision=8)).SerializeToString()


@pytest.fixture(params=["native", "grpcio"])
def options(request: pytest.FixtureRequest) -> ClientOptions:
    if why := needs_crate(request.param):
        pytest.skip(why)
    return replace(OPTIONS, transport=request.param)


def is_native(options: ClientOptions) -> bool:
    return options.transport == "native"


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(bounded())


async def answered(store: Store) -> None:
    """Check that a call that is answered well gets its answer."""
    found = (await store.get(b"good")).kv
    assert found is not None
    assert found.value == b"v"


def odd(call: Call) -> bool:
    """Tell whether a call is one that is to be answered badly."""
    return b"bad" in call.body


Answer = Callable[[Call], None]


def head_404(call: Call) -> None:
    call.head(404, "text/html")
    call.send(b"<html>", is_last=True)


def no_status(call: Call) -> None:
    call.head()
    call.send(message(GOOD))
    call.end(None)


def no_trailers(call: Call) -> None:
    call.head()
    call.send(message(GOOD), is_last=True)


def odd_status(call: Call) -> None:
    call.head()
    call.send(message(GOOD))
    call.end("many")


def cut_message(call: Call) -> None:
    call.head()
    call.send(message(GOOD)[:-3])
    call.end()


def two_messages(call: Call) -> None:
    call.head()
    call.send(message(GOOD) * 2)
    call.end()


def no_message(call: Call) -> None:
    call.head()
    call.end()


def compressed(call: Call) -> None:
    call.head()
    call.send(message(GOOD, flag=1))
    call.end()


def odd_flag(call: Call) -> None:
    call.head()
    call.send(message(GOOD, flag=9))
    call.end()


def no_protobuf(call: Call) -> None:
    call.answer(b"\xff\xff\xff\xff")


def cut_protobuf(call: Call) -> None:
    call.answer(GOOD[:-1])


def reset(call: Call) -> None:
    call.reset(ErrorCodes.INTERNAL_ERROR)


BAD_ANSWERS: list[Answer] = [
    head_404, no_status, no_trailers, odd_status, cut_message, two_messages, no_message,
    compressed, odd_flag, no_protobuf, cut_protobuf, reset,
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_ANSWERS)
def test_an_answer_that_is_none(bad: Answer, options: ClientOptions) -> None:
    taken = (no_status, no_trailers, odd_status, odd_flag, two_messages)
    if not is_native(options) and bad in taken:
        pytest.skip("grpcio takes it for an answer")

    async def script(call: Call) -> None:
        if odd(call):
            bad(call)
        else:
            call.answer(GOOD)

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            for _ in range(3):
                results = await asyncio.gather(
                    store.get(b"bad"),
                    store.put(b"bad", b"v"),
                    *[answered(store) for _ in range(10)],
                    return_exceptions=True,
                )
                assert isinstance(results[0], StoreError), results[0]
                assert isinstance(results[1], OutcomeUnknownError | UnsupportedError), results[1]
                assert results[2:] == [None] * 10
            assert server.connections == 1

    run(play())


def test_statuses_are_errors_of_the_tree(options: ClientOptions) -> None:
    errors: dict[str, type[StoreError]] = {
        "3": InvalidArgumentError,
        "7": PermissionDeniedError,
        "8": TooManyRequestsError,
        "12": UnsupportedError,
        "16": UnauthenticatedError,
    }

    async def script(call: Call) -> None:
        code = call.messages[0].rpartition(b"/")[2].decode()
        call.refuse(code, "why%20not%25")

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            for code, error in errors.items():
                with pytest.raises(error, match="why not%"):
                    await store.get(b"x/" + code.encode())

    run(play())


def test_answers_above_the_limit(options: ClientOptions) -> None:
    async def script(call: Call) -> None:
        if odd(call):
            call.head()
            call.raw(b"")
            call.send(b"\0\x40\0\0\0" + bytes(1000))  # a gigabyte is announced
        else:
            call.answer(GOOD)

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            with pytest.raises(TooLargeError):
                await store.get(b"bad")
            with pytest.raises(OutcomeUnknownError):
                await store.put(b"bad", b"v")
            await answered(store)

    run(play())


def test_metadata_that_cannot_be_sent_costs_no_other_call(options: ClientOptions) -> None:
    """A server may have made up such a token."""

    async def script(call: Call) -> None:
        call.answer(GOOD)

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            good = asyncio.create_task(answered(store))
            bad = store._channel.call(0, b"", 5.0, (("token", "a\nb"),))  # type: ignore[attr-defined]
            results = await asyncio.gather(good, bad, return_exceptions=True)
            assert results[0] is None
            assert isinstance(results[1], CallFailedError)
            assert (results[1].code, results[1].was_sent) == (3, False)

    run(play())


def test_a_request_above_the_limit(options: ClientOptions) -> None:
    async def script(call: Call) -> None:
        call.answer(GOOD_PUT if call.path.endswith("Put") else GOOD)

    async def play() -> None:
        small = replace(options, request_bytes_max=1000)
        async with ScriptedServer(script) as server, connect([server.endpoint], small) as store:
            with pytest.raises(TooLargeError):
                await store.put(b"k", bytes(1000))
            assert (await store.put(b"k", bytes(900))).revision == 8

    run(play())


def test_what_was_refused_is_made_elsewhere(options: ClientOptions) -> None:
    """A server that has not taken a change up lets it be made again."""
    refused = 0

    async def script(call: Call) -> None:
        nonlocal refused
        if call.path.endswith("Put") and refused < 3:
            refused += 1
            call.reset(ErrorCodes.REFUSED_STREAM)
        else:
            call.answer(GOOD_PUT)

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            assert (await store.put(b"k", b"v")).revision == 8
            assert refused == 3

    if not is_native(options):
        pytest.skip("grpcio does not say that a stream was refused")
    run(play())


def test_a_server_that_goes_away(options: ClientOptions) -> None:
    """Streams above the last that it names were not taken up, those below may have been."""
    seen: list[bytes] = []

    async def script(call: Call) -> None:
        seen.append(call.body)
        if len(seen) == 1:
            call.answer(GOOD_PUT)
        elif len(seen) == 2:
            call.go_away(call.stream - 2)
        else:
            call.answer(GOOD_PUT)

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            await store.put(b"k", b"first")
            if is_native(options):
                assert (await store.put(b"k", b"second")).revision == 8
                assert server.connections == 2
                assert len(seen) == 3

    run(play())


def test_a_server_that_goes_away_with_what_it_has(options: ClientOptions) -> None:
    async def script(call: Call) -> None:
        call.go_away(call.stream)
        call.hang_up()

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            with pytest.raises(OutcomeUnknownError):
                await store.put(b"k", b"v")
            # On a busy machine the time may be over while it connects again.
            with pytest.raises((UnavailableError, StoreTimeoutError)):
                await store.get(b"k", timeout_s=SHORT_S)

    run(play())


@pytest.mark.parametrize(
    "protocol",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n",
        bytes(range(256)) * 100,
        b"\0\0\0\x04\0\0\0\0\0" + b"\xff" * 1000,
        b"\xff\xff\xff\x04\0\0\0\0\0" + bytes(1000),
        b"",
    ],
    ids=["http1", "ssh", "anything", "settings", "huge", "silence"],
)
def test_a_server_without_http2(protocol: bytes, options: ClientOptions) -> None:

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(protocol)
        while not protocol and await reader.read(1 << 16):
            pass  # it listens, and says nothing

    async def play() -> None:
        async with TcpListener(serve) as server, connect([server.endpoint], options) as store:
            with pytest.raises(StoreError):
                await store.get(b"k", timeout_s=SHORT_S)
            with pytest.raises(StoreError):
                await store.lease_revoke(7, timeout_s=SHORT_S)
            with pytest.raises((UnavailableError, OutcomeUnknownError)):
                await store.put(b"k", b"v", timeout_s=SHORT_S)

    run(play())


def test_frames_that_cannot_be(options: ClientOptions) -> None:
    """The connection is given up, and another made; nothing is told that is not so."""
    frames = [
        b"\0\0\4\x08\0\0\0\0\0\0\0\0\0",  # credit of nothing
        b"\0\0\1\x00\0\0\0\0\0x",  # data of no stream
        b"\0\0\5\x01\4\0\0\0\x63abcde",  # headers of nobody, no HPACK
        b"\0\0\4\x03\0\0\0\0\0\0\0\0\0",  # a reset of the connection
        b"\0\0\x08\x05\4\0\0\0\1" + bytes(8),  # a push
        b"\0\0\7\x06\0\0\0\0\0" + bytes(7),  # a short ping
        b"\0\x40\1\x00\0\0\0\0\1" + bytes(0x4001),  # too long
    ]
    at = 0

    async def script(call: Call) -> None:
        nonlocal at
        if odd(call):
            call.raw(frames[at % len(frames)])
            at += 1
        else:
            call.answer(GOOD)

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            for _ in frames:
                with pytest.raises(OutcomeUnknownError):
                    await store.put(b"bad", b"v", timeout_s=2)
                await answered(store)

    run(play())


def test_headers_without_end(options: ClientOptions) -> None:
    async def script(call: Call) -> None:
        if odd(call):
            headers: dict[str, Any] = {f"x_{n}": "y" * 8_000 for n in range(400)}
            call.head(**headers)
            call.send(message(GOOD))
            call.end()
        else:
            call.answer(GOOD)

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            results = await asyncio.gather(
                store.put(b"bad", b"v", timeout_s=3), return_exceptions=True
            )
            assert isinstance(results[0], StoreError)
            await answered(store)

    run(play())


def created(watch_id: int, revision: int = 5) -> bytes:
    header = pb.ResponseHeader(revision=revision)
    return pb.WatchResponse(header=header, watch_id=watch_id, created=True).SerializeToString()


def watch_response(watch_id: int, *revisions: int, fragment: bool = False) -> bytes:
    events = [
        kv_pb2.Event(kv=kv_pb2.KeyValue(key=b"k", value=b"v", mod_revision=each, version=1))
        for each in revisions
    ]
    return pb.WatchResponse(
        header=pb.ResponseHeader(revision=max(revisions, default=0)),
        watch_id=watch_id,
        events=events,
        fragment=fragment,
    ).SerializeToString()


class WatchScript:
    """Answers watches; each stream gets the next list of messages, the last one again and again."""

    def __init__(self, *streams: Callable[[int], list[bytes]]) -> None:
        self._streams = streams
        self.opened = 0
        self.starts: list[int] = []

    async def __call__(self, call: Call) -> None:
        if not call.path.endswith("Watch"):
            call.answer(GOOD)
            return
        at, self.opened = self.opened, self.opened + 1
        call.head()
        create = pb.WatchRequest.FromString(await call.first_message()).create_request
        self.starts.append(create.start_revision)
        for each in self._streams[min(at, len(self._streams) - 1)](create.watch_id):
            await call.send_all(message(each))
        await asyncio.sleep(60)


async def read(store: Store, count: int, start_revision: int = 0) -> list[object]:
    async with store.watch(b"k", start_revision=start_revision) as watch:
        return [await anext(watch) for _ in range(count)]


def test_a_watch_that_receives_nonsense_begins_anew(options: ClientOptions) -> None:
    nonsense = (b"\xff\xff", b"\x0a\x7f", b"\x5a\x05abcde")
    script = WatchScript(
        *[lambda w, bad=bad: [created(w), watch_response(w, 6), bad] for bad in nonsense],
        lambda w: [created(w, 9), watch_response(w, 7, 8)],
    )

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            values = await read(store, 9)
        events = [e.kv.mod_revision for v in values if isinstance(v, Events) for e in v.events]
        assert events == [6, 7, 8]
        assert [type(each) for each in values] == [
            Started, Events, Interrupted, Resumed, Interrupted, Resumed, Interrupted, Resumed,
            Events,
        ]  # fmt: skip
        assert script.starts[:4] == [0, 7, 7, 7]

    run(play())


def test_events_of_others_and_again_are_passed_over(options: ClientOptions) -> None:
    script = WatchScript(
        lambda w: [
            created(77),
            created(w),
            watch_response(w + 1, 6),
            watch_response(w, 6),
            watch_response(w, 6),
            watch_response(w, 6, 7),
            watch_response(99, 8),
            pb.WatchResponse(watch_id=98, canceled=True).SerializeToString(),
            watch_response(w, 8),
        ]
    )

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            values = await read(store, 4)
        events = [[e.kv.mod_revision for e in v.events] for v in values if isinstance(v, Events)]
        assert events == [[6], [7], [8]]

    run(play())


def test_fragments_are_put_together_by_revision(options: ClientOptions) -> None:
    script = WatchScript(
        lambda w: [
            created(w),
            watch_response(w, 6, 7, fragment=True),
            watch_response(w, 7, 7, fragment=True),
            watch_response(w, 7, 8, fragment=True),
            watch_response(w, 8),
        ]
    )

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            values = await read(store, 4)
        events = [[e.kv.mod_revision for e in v.events] for v in values if isinstance(v, Events)]
        assert events == [[6], [7, 7, 7, 7], [8, 8]]

    run(play())


def test_a_revision_without_end_is_an_error(options: ClientOptions) -> None:
    large = pb.WatchResponse(
        watch_id=1,
        fragment=True,
        events=[kv_pb2.Event(kv=kv_pb2.KeyValue(value=bytes(100_000), mod_revision=6))],
    )

    def stream(watch_id: int) -> list[bytes]:
        large.watch_id = watch_id
        return [created(watch_id), *[large.SerializeToString()] * 30]

    async def play() -> None:
        script = WatchScript(stream)
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            watch = store.watch(b"k")
            assert isinstance(await anext(watch), Started)
            with pytest.raises(MalformedAnswerError):
                await anext(watch)

    run(play())


def test_watches_that_end_for_no_reason_begin_anew(options: ClientOptions) -> None:
    over = pb.WatchResponse(canceled=True)

    def stream(watch_id: int) -> list[bytes]:
        over.watch_id = watch_id
        return [created(watch_id), over.SerializeToString(), created(watch_id + 1)]

    async def play() -> None:
        script = WatchScript(stream)
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            values = await read(store, 3)
        assert [type(each) for each in values] == [Started, Interrupted, Resumed]
        assert Progress not in values

    run(play())


def test_watches_refused_for_good_end(options: ClientOptions) -> None:
    async def script(call: Call) -> None:
        call.refuse("12", "unknown service")

    async def play() -> None:
        async with ScriptedServer(script) as server, connect([server.endpoint], options) as store:
            watches = [store.watch(b"k"), store.watch(b"l")]
            for watch in watches:
                with pytest.raises(UnsupportedError):
                    await anext(watch)
                with pytest.raises(StopAsyncIteration):
                    await anext(watch)
            # grpcio may say no more than that it failed.
            with pytest.raises(UnsupportedError if is_native(options) else StoreError):
                await store.lease_keep_alive(7)

    run(play())
