"""The HTTP server on a loop, and clients that mean no good, know no better, or take their time.

Whatever comes, the server goes on, and a neighbour's answers stay his own.
"""

import asyncio
import itertools
import random
import socket
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import Listener, ListenerLimits
from kvstack.component.http.serving.request import Request
from tests.support.http.clients import H2Client, TornError, connect
from tests.support.http.raw_http2 import (
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    RawConnection,
    frame,
)
from tests.support.http.serving import (
    NEEDS_NATIVE,
    SERVERS,
    WAIT_S,
    WAYS,
    Way,
    echo,
    run,
    serving,
    until,
)
from tests.support.waiting import answered

if TYPE_CHECKING:
    from collections.abc import Sequence

EVERY_WAY = pytest.mark.parametrize("way", WAYS)
EVERY_SERVER = pytest.mark.parametrize("way", SERVERS)
SEEDS = Path("kvstore/native/fuzz/seeds/connection")
H1_SESSION = (
    b"GET /a HTTP/1.1\r\nHost: x\r\nX-Y: z\r\n\r\n"
    b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
    b"PUT /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nTrailer: t\r\n\r\n"
    b"GET /d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
)
ANSWERS = [b"GET /a 0 ", b"POST /b 5 hello", b"PUT /c 7 abcdefg", b"GET /d 0 "]


async def raw(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.partition("://")[2].partition(":")
    return await asyncio.open_connection(host, int(port))


async def say(url: str, *pieces: bytes, eof: bool = False, wait_s: float = 10.0) -> bytes:
    """Send pieces; return all that comes until the server closes, or the time is over."""
    reader, writer = await raw(url)
    answer = b""
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if eof:
            writer.write_eof()
        async with asyncio.timeout(wait_s):
            while data := await reader.read(65_536):
                answer += data
    except (OSError, TimeoutError):
        pass
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    return answer


@EVERY_SERVER
def test_requests_that_follow_at_once_are_answered_in_order(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        if request.target in {"/a", "/c"}:
            await asyncio.sleep(0.02)
        await echo(request, answer)

    async def scenario() -> None:
        async with serving(handle, portable=way.portable) as under:
            answer = await say(under.url, H1_SESSION)
            places = [answer.index(each) for each in ANSWERS]
            assert places == sorted(places)
            assert answer.count(b"HTTP/1.1 200 OK\r\n") == 4

    run(scenario())


@EVERY_SERVER
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(cuts=st.lists(st.integers(1, len(H1_SESSION) - 1), max_size=12))
def test_however_a_session_is_cut_its_answers_are_the_same(way: Way, cuts: list[int]) -> None:
    async def scenario() -> None:
        async with serving(echo, portable=way.portable) as under:
            places = [0, *sorted(set(cuts)), len(H1_SESSION)]
            pieces = [H1_SESSION[a:b] for a, b in itertools.pairwise(places)]
            answer = await say(under.url, *pieces)
            assert [each for each in ANSWERS if each in answer] == ANSWERS

    run(scenario())


async def ahead(url: str, session: bytes, cut: int, last_answer: bytes) -> bytes:
    """Send a session up to cut, the rest after the last answer to it; return the answers."""
    reader, writer = await raw(url)
    try:
        async with asyncio.timeout(20):
            writer.write(session[:cut])
            answer = await reader.readuntil(last_answer)
            writer.write(session[cut:])
            return answer + await reader.read()
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


@EVERY_SERVER
@pytest.mark.parametrize("before", [2, 3], ids=["after a body of a known length", "after chunks"])
def test_the_beginning_of_a_head_may_come_with_the_request_before(way: Way, before: int) -> None:
    """The rest comes when that request is answered, wherever it is cut."""
    heads = [H1_SESSION.index(line) for line in (b"GET /a", b"POST /b", b"PUT /c", b"GET /d")]
    session = H1_SESSION[: heads[before]] + H1_SESSION[heads[3] :]

    async def scenario() -> None:
        async with serving(echo, portable=way.portable) as under:
            for cut in range(heads[before], len(session)):
                answer = await ahead(under.url, session, cut, ANSWERS[before - 1])
                expected = [*ANSWERS[:before], ANSWERS[3]]
                assert [each for each in ANSWERS if each in answer] == expected, cut

    run(scenario())


@EVERY_SERVER
def test_a_header_that_comes_late_is_no_request_line(way: Way) -> None:
    """Its head began with the request before; what looks like a target in it stays as it is."""
    value = "/t>wo HTTP/1.1"

    async def handle(request: Request, answer: Answer) -> None:
        found = dict(request.headers).get("x-late", "")
        answer.send(200, [], f"{request.target} {found};".encode())

    head = b"GET /first HTTP/1.1\r\nHost: x\r\n\r\nGET /second HTTP/1.1\r\nHost: x\r\n"
    rest = f"X-Late: {value}\r\nConnection: close\r\n\r\n".encode()

    async def scenario() -> None:
        async with serving(handle, portable=way.portable) as under:
            answer = await ahead(under.url, head + rest, len(head), b"/first ;")
            assert f"/second {value};".encode() in answer, answer

    run(scenario())


@EVERY_SERVER
def test_a_client_of_http_1_0_gets_a_body_that_ends_with_the_connection(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        assert request.version == "HTTP/1.0"
        answer.start(200, [])
        await answer.write(b"some ")
        await answer.write(b"more")

    async def scenario() -> None:
        async with serving(handle, portable=way.portable) as under:
            answer = await say(under.url, b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
            assert answer.endswith(b"\r\n\r\nsome more")
            assert b"chunked" not in answer

    run(scenario())


BAD_HEADS = [
    (b"\r\n\r\nnonsense\r\n\r\n", 400),
    (b"GET\r\n\r\n", 400),
    (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", None),
    (b"GET / HTTP/1.1\r\nBad Header: x\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000 + b"\r\n\r\n", 431),
    (b"GET /" + b"y" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", None),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n", 400),
    (b"\0" * 40_000, None),
]


@EVERY_SERVER
@pytest.mark.parametrize(("head", "status"), BAD_HEADS, ids=range(len(BAD_HEADS)))
def test_a_head_that_cannot_be_understood_is_refused(
    way: Way, head: bytes, status: int | None
) -> None:
    asked: list[str] = []

    async def handle(request: Request, answer: Answer) -> None:
        asked.append(request.target)
        await echo(request, answer)

    async def scenario() -> None:
        limits = ListenerLimits(header_bytes_max=16_384)
        async with serving(handle, portable=way.portable, limits=limits) as under:
            answer = await say(under.url, head)
            if status is not None:
                assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:100]
            assert asked == []
            async with connect(under.url) as client:
                assert (await client.ask("GET", "/")).status == 200

    run(scenario())


@EVERY_SERVER
def test_both_ways_to_say_a_length_never_smuggle_a_request(way: Way) -> None:
    asked: list[str] = []

    async def handle(request: Request, answer: Answer) -> None:
        asked.append(request.target)
        await request.read()
        answer.send(200)

    async def scenario() -> None:
        smuggled = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
        for headers in (
            b"Content-Length: %d\r\nTransfer-Encoding: chunked" % (5 + len(smuggled)),
            b"Transfer-Encoding: chunked\r\nContent-Length: 5",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            b"Transfer-Encoding: xchunked",
        ):
            async with serving(handle, portable=way.portable) as under:
                head = b"POST / HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n\r\n"
                await say(under.url, head + b"0\r\n\r\n" + smuggled, wait_s=0.3)
            # One answer at most; the rest is a request only where chunks end before it.
            assert asked.count("/") <= 1
            if b"chunked" not in headers or headers.startswith(b"Content-Length"):
                assert "/smuggled" not in asked or way.portable
            asked.clear()

    run(scenario())


@EVERY_SERVER
@pytest.mark.parametrize(
    "tail", [b"zz\r\n", b"-1\r\nx", b"5\r\nabc", b"fffffffffffffffff\r\n", b""]
)
def test_a_torn_body_ends_its_request_alone(way: Way, tail: bytes) -> None:
    outcome: list[str] = []

    async def handle(request: Request, answer: Answer) -> None:
        try:
            body = await request.read()
            outcome.append(f"whole {len(body)}")
            answer.send(200, [], body)
        except asyncio.CancelledError:
            outcome.append("cancelled")
            raise

    async def scenario() -> None:
        async with serving(handle, portable=way.portable) as under:
            head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            await say(under.url, head, b"3\r\nabc\r\n", tail, eof=True)
            await until(lambda: outcome)
            assert outcome == ["cancelled"]
            assert under.server.open_count == 0
            await say(
                under.url, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", eof=True
            )
            async with connect(under.url) as client:
                assert (await client.ask("PUT", "/", [], b"abc")).body == b"abc"

    run(scenario())


class Neighbour:
    """A client that asks on while others misbehave, and checks that the answers are his."""

    def __init__(self, way: Way, url: str) -> None:
        self._task = asyncio.create_task(self._ask(way, url))
        self.count = 0

    async def _ask(self, way: Way, url: str) -> None:
        async with way.connect(url) as client:
            while True:
                body = b"%d" % self.count
                reply = await client.ask("PUT", f"/neighbour/{self.count}", [], body)
                expected = f"PUT /neighbour/{self.count} {len(body)} ".encode() + body
                assert (reply.status, reply.body) == (200, expected)
                self.count += 1
                await asyncio.sleep(0)

    async def leave(self) -> None:
        before = self.count
        await until(lambda: self.count > before or self._task.done())
        self._task.cancel()
        results = await asyncio.gather(self._task, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError), results


def mutated(rng: random.Random, seed: bytes) -> bytes:
    data = bytearray(seed)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                del data[at + 1 :]
            case 3:
                data[at:at] = data[at : at + rng.randrange(1, 64)]
            case _:
                data[at:at] = rng.randbytes(rng.randrange(1, 64))
    return bytes(data)


@EVERY_WAY
def test_any_bytes_leave_the_server_and_the_neighbour_alone(way: Way) -> None:
    opening = PREFACE + frame(SETTINGS, 0, 0)
    with_upgrade = H1_SESSION.replace(b"Connection: close", b"Connection: upgrade\r\nUpgrade: spdy")
    seeds = [
        H1_SESSION,
        with_upgrade,
        opening + frame(HEADERS, END_HEADERS, 1, b"\x82\x84\x86A\x01x"),
    ]
    seeds += [each.read_bytes() for each in sorted(SEEDS.iterdir())]

    async def handle(request: Request, answer: Answer) -> None:
        if request.may_upgrade:
            peer = answer.upgrade("spdy")
            while data := await peer.read():
                await peer.write(data)
        elif len(request.target) % 2:
            answer.start(200, [])
            async for piece in request.pieces():
                await answer.write(piece)
        else:
            await echo(request, answer)

    async def scenario() -> None:
        rng = random.Random(20_261_122)
        limits = ListenerLimits(
            handshake_timeout_s=1.0, idle_timeout_s=1.0, body_timeout_s=1.0, header_bytes_max=16_384
        )
        async with serving(
            handle, *[Listener("http://127.0.0.1:0", limits=limits)], portable=way.portable
        ) as under:

            async def neighbourly(request: Request, answer: Answer) -> None:
                await echo(request, answer)

            under.server._handler = lambda request, answer: (
                neighbourly(request, answer)
                if request.target.startswith("/neighbour")
                else handle(request, answer)
            )
            neighbour = Neighbour(way, under.url)
            for _ in range(12):
                sessions: list[Sequence[bytes]] = []
                for _ in range(20):
                    data = mutated(rng, rng.choice(seeds))
                    cut = rng.randrange(len(data))
                    sessions.append((data[:cut], data[cut:]))
                await asyncio.gather(
                    *(
                        say(under.url, *each, eof=rng.random() < 0.5, wait_s=0.3)
                        for each in sessions
                    )
                )
            await neighbour.leave()
            assert neighbour.count > 12
            await until(lambda: under.server.open_count == 0)

    run(scenario())


@EVERY_SERVER
def test_who_sends_no_request_in_time_is_closed(way: Way) -> None:
    limits = ListenerLimits(handshake_timeout_s=0.2, idle_timeout_s=0.2)

    async def scenario() -> None:
        async with serving(echo, portable=way.portable, limits=limits) as under:
            head = b"GET / HTTP/1.1\r\nHost: x\r\n"
            for first, then in ((b"", b""), (head, b""), (head + b"\r\n", head)):
                begin = time.monotonic()
                await say(under.url, first, then)
                assert time.monotonic() - begin < 30

    run(scenario())


@EVERY_WAY
def test_who_is_idle_for_long_is_asked_to_leave(way: Way) -> None:
    limits = ListenerLimits(idle_timeout_s=0.6)

    async def handle(request: Request, answer: Answer) -> None:
        if request.target == "/slow":
            await asyncio.sleep(1.2)
        await echo(request, answer)

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable, limits=limits) as under,
            way.connect(under.url) as client,
        ):
            reply = await client.ask("GET", "/slow")  # who waits for an answer is not idle
            assert reply.status == 200
            if isinstance(client, H2Client):
                await until(lambda: client.goaway is not None)
            else:
                assert await asyncio.wait_for(client.reader.read(), WAIT_S) == b""  # type: ignore[attr-defined]

    run(scenario())


@EVERY_WAY
def test_a_small_body_has_to_come_in_time(way: Way) -> None:
    limits = ListenerLimits(body_timeout_s=0.6)

    async def scenario() -> None:
        async with (
            serving(echo, portable=way.portable, limits=limits) as under,
            way.connect(under.url) as client,
        ):
            stream = await client.open("PUT", "/", [("content-length", "100")], has_body=True)
            await stream.send(b"slow")
            assert (await stream.reply()).status == 408

    run(scenario())


@EVERY_SERVER
def test_connections_beyond_the_limit_are_closed(way: Way) -> None:
    small = replace(ListenerLimits(), connections_max=5)
    listeners = (
        Listener("http://127.0.0.1:0", limits=small),
        Listener("http://127.0.0.1:0"),
    )

    async def scenario() -> None:
        async with serving(echo, *listeners, portable=way.portable) as under:
            first, second = under.server.urls
            held = [await raw(first) for _ in range(5)]
            for reader, writer in held:
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
            assert await say(first, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == b""
            await until(lambda: under.notices)
            assert under.notices[0].startswith("connection refused: limit 5: 127.0.0.1:")
            async with connect(second) as client:  # another listener's are its own
                assert (await client.ask("GET", "/")).status == 200
            for _, writer in held:
                writer.close()

            async def again() -> bool:
                answer = await say(first, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return answer.startswith(b"HTTP/1.1 200")

            await answered(again, within_s=WAIT_S)

    run(scenario())


@EVERY_WAY
def test_answers_reach_who_was_refused_while_still_sending(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        answer.send(413, [], b"too much")

    async def scenario() -> None:
        limits = ListenerLimits(whole_body_bytes_max=1000)
        async with serving(handle, portable=way.portable, limits=limits) as under:
            for size in (50_000, 200_000, 4_000_000):
                async with way.connect(under.url) as client:
                    length = [("content-length", str(size))]
                    stream = await client.open("PUT", "/", length, has_body=True)

                    async def send(size: int = size, stream: object = stream) -> None:
                        try:
                            await stream.send(b"x" * size)  # type: ignore[attr-defined]
                            await stream.end()  # type: ignore[attr-defined]
                        except (OSError, TornError):
                            pass

                    sending = asyncio.create_task(send())
                    reply = await stream.reply()
                    assert (reply.status, reply.body) == (413, b"too much")
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)

    run(scenario())


# HTTP/2 by hand.

pytestmark_h2 = NEEDS_NATIVE
GET = {":method": "GET", ":scheme": "http", ":path": "/", ":authority": "x"}


def in_thread(
    scenario: object, limits: ListenerLimits | None = None, handler: object = echo
) -> None:
    """Serve on this loop; a client by hand has a thread of its own, and a neighbour looks on."""

    async def serve() -> None:
        async with serving(handler, portable=False, limits=limits) as under:  # type: ignore[arg-type]
            neighbour = Neighbour(Way(portable=False, protocol="h2"), under.url)
            await asyncio.to_thread(scenario, under.url.removeprefix("http://"))  # type: ignore[arg-type]
            await neighbour.leave()
            await until(lambda: under.server.open_count == 0)

    run(serve())


@NEEDS_NATIVE
def test_streams_beyond_the_limit_are_refused() -> None:
    refused = threading.Event()

    async def handle(request: Request, answer: Answer) -> None:
        if request.target.startswith("/neighbour"):
            await echo(request, answer)
        else:
            await until(refused.is_set)  # none is answered before the last has come
            answer.send(200, [], b"late")

    def client(target: str) -> None:
        with RawConnection(target) as connection:
            for stream in range(1, 2 * 15, 2):
                connection.send(connection.headers(stream, GET, END_HEADERS | END_STREAM))
            outcomes = {}
            for each in connection.frames():
                if each.kind == RST_STREAM:
                    outcomes[each.stream] = "refused"
                    if len(outcomes) == 5:
                        refused.set()
                elif each.kind == HEADERS:
                    outcomes[each.stream] = "answered"
                if len(outcomes) == 15:
                    break
            assert sorted(outcomes.values()) == ["answered"] * 10 + ["refused"] * 5

    in_thread(client, ListenerLimits(streams_max=10), handle)


@NEEDS_NATIVE
def test_streams_that_are_reset_at_once_cost_no_other() -> None:
    def client(target: str) -> None:
        with RawConnection(target) as connection:
            stream = 1
            for _ in range(40):
                batch = b""
                for _ in range(50):
                    batch += connection.headers(stream, GET, END_HEADERS | END_STREAM)
                    batch += frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
                    stream += 2
                try:
                    connection.send(batch)
                except OSError:
                    return  # it had enough

    in_thread(client)


@NEEDS_NATIVE
def test_pings_and_settings_without_end_are_answered_or_end_the_connection() -> None:
    def client(target: str) -> None:
        for flood in (frame(PING, 0, 0, bytes(8)), frame(SETTINGS, 0, 0)):
            with RawConnection(target) as connection:
                try:
                    for _ in range(200):
                        connection.send(flood * 100)
                except OSError:
                    continue

    in_thread(client)


@NEEDS_NATIVE
def test_pings_of_a_client_that_is_idle_are_no_offence() -> None:
    def client(target: str) -> None:
        with RawConnection(target) as connection:
            for _ in range(20):
                connection.send(frame(PING, 0, 0, bytes(8)))
            connection.send(connection.headers(1, GET, END_HEADERS | END_STREAM))
            assert connection.answer(1)[0][":status"] == "200"

    in_thread(client)


@NEEDS_NATIVE
def test_headers_of_http2_above_the_limit_are_refused() -> None:
    def client(target: str) -> None:
        with RawConnection(target) as connection:
            headers = GET | {f"x-{n}": "y" * 1000 for n in range(10)}
            connection.send(connection.headers(1, headers, END_HEADERS | END_STREAM))
            assert connection.answer(1)[0][":status"] == "431"
            connection.send(connection.headers(3, GET, END_HEADERS | END_STREAM))
            assert connection.answer(3)[0][":status"] == "200"

    in_thread(client, ListenerLimits(header_bytes_max=4096))


@NEEDS_NATIVE
@pytest.mark.parametrize(
    "frames",
    [
        frame(WINDOW_UPDATE, 0, 0, bytes(4)),
        frame(HEADERS, END_HEADERS | END_STREAM, 0, b"\x82"),
        frame(HEADERS, END_HEADERS | END_STREAM, 2, b"\x82\x84\x86"),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\xff\xff\xff\xff\xff"),
        frame(0x9, 0, 1, b"\x82"),
        frame(0, 0, 5, b"data for nobody"),
        frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0xFFFFFFFF)),
        b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    ],
)
def test_frames_against_the_protocol_end_their_connection_alone(frames: bytes) -> None:
    def client(target: str) -> None:
        with RawConnection(target) as connection:
            connection.send(frames)
            connection.socket.settimeout(WAIT_S)
            seen = connection.wait_closed()
            assert any(each.kind == GOAWAY for each in seen)

    in_thread(client)


@NEEDS_NATIVE
def test_a_client_that_gives_no_credit_holds_up_nobody() -> None:
    async def handle(request: Request, answer: Answer) -> None:
        if request.target.startswith("/neighbour"):
            await echo(request, answer)
        else:
            answer.send(200, [], b"x" * 5_000_000)

    def client(target: str) -> None:
        with RawConnection(target) as connection:
            for stream in range(1, 2 * 50, 2):
                connection.send(connection.headers(stream, GET, END_HEADERS | END_STREAM))
            time.sleep(0.3)

    in_thread(client, None, handle)


@EVERY_SERVER
def test_many_idle_connections_cost_little(way: Way) -> None:
    async def scenario() -> None:
        async with serving(echo, portable=way.portable) as under:
            host, _, port = under.url.partition("://")[2].partition(":")
            held: list[socket.socket] = []

            async def hold(count: int) -> None:
                for _ in range(count):
                    held.append(socket.create_connection((host, int(port))))
                    held[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                    await asyncio.sleep(0)
                    held[-1].setblocking(False)
                for each in held[-count:]:
                    await asyncio.get_running_loop().sock_recv(each, 1000)

            await hold(350)
            before = resident_bytes()
            await hold(600)
            each = (resident_bytes() - before) / 600
            for one in held:
                one.close()
            assert each < (10_000 if not way.portable else 40_000), each

    run(scenario())


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


@EVERY_SERVER
def test_connections_of_many_idle_ones_are_woken_by_whatever_comes(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        if request.may_upgrade:
            peer = answer.upgrade("x")
            await peer.write(await peer.read())
        else:
            await echo(request, answer)

    async def scenario() -> None:
        async with serving(handle, portable=way.portable) as under:
            crowd = [await raw(under.url) for _ in range(300)]
            for reader, writer in crowd:
                writer.write(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % 0)
                assert b"GET /0 0 " in await reader.readuntil(b"GET /0 0 ")
            for n, (_, writer) in enumerate(crowd):
                body = b"x" * (n * 40)
                session = (
                    b"PUT /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (n, len(body))
                    + body
                    + b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"
                )
                cut = n * 7 % len(session)
                writer.write(session[:cut])
                await asyncio.sleep(0)
                writer.write(session[cut:])
            for n, (reader, _) in enumerate(crowd):
                expected = b"PUT /%d %d " % (n, n * 40) + b"x" * (n * 40)
                async with asyncio.timeout(WAIT_S):
                    answer = await reader.readuntil(b"GET /next 0 ")
                assert expected in answer
            reader, writer = crowd[0]
            head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
            writer.write(head + b"early")
            assert (await reader.readuntil(b"early")).startswith(b"HTTP/1.1 101 ")
            assert await reader.read() == b""
            for _, writer in crowd[1:200]:
                writer.close()
            under.server.drain()
            for reader, _ in crowd[200:]:
                assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
            await asyncio.wait_for(under.server.drained(), WAIT_S)
            for _, writer in crowd:
                writer.close()

    run(scenario())


@EVERY_SERVER
def test_half_a_head_does_not_begin_the_time_for_it_anew(way: Way) -> None:
    limits = ListenerLimits(idle_timeout_s=0.4)

    async def scenario() -> None:
        async with serving(echo, portable=way.portable, limits=limits) as under:
            crowd = [await raw(under.url) for _ in range(260)]
            reader, writer = crowd[0]
            for other, its in crowd:
                its.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                await other.readuntil(b"GET / 0 ")
            begin = time.monotonic()
            try:
                for n in range(100):
                    writer.write(b"GET / HTTP/1.1\r\nX: " if n == 0 else b"y")
                    if await asyncio.wait_for(asyncio.shield(reader.read(1)), 0.1) == b"":
                        break
            except ConnectionError:
                pass
            except TimeoutError:
                async with asyncio.timeout(30):
                    while not reader.at_eof():
                        writer.write(b"y")
                        await asyncio.sleep(0.1)
            assert time.monotonic() - begin < 30
            for _, each in crowd:
                each.close()

    run(scenario())
