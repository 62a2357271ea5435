"""The HTTP server on a loop, native and portable, HTTP/1.1 and HTTP/2: requests and answers."""

import asyncio
import contextvars
import ssl
from collections.abc import Callable

import pytest

from kvstack.component.errors import ConfigError
from kvstack.component.http.serving.answer import Answer, State
from kvstack.component.http.serving.listeners import Listener, ListenerLimits
from kvstack.component.http.serving.request import BodyTooLargeError, Request
from kvstack.component.http.serving.server import HttpServer
from tests.support.http.clients import H1Client, TornError
from tests.support.http.serving import SERVERS, WAYS, Way, echo, run, serving, until

pytestmark = pytest.mark.parametrize("way", WAYS)


def test_a_request_is_delivered_and_answered(way: Way) -> None:
    seen: list[Request] = []

    async def handle(request: Request, answer: Answer) -> None:
        seen.append(request)
        await echo(request, answer)

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            headers = [("x-some", "thing"), ("x-two", "a"), ("x-two", "b"), ("X-Utf", "grün")]
            reply = await client.ask("POST", "/api/v1/pods?a=b%20c", headers, b"body")
            assert (reply.status, reply.body) == (200, b"POST /api/v1/pods?a=b%20c 4 body")
            assert [each for each in reply.headers if each[0] == "x-a"] == [
                ("x-a", "1"),
                ("x-a", "2"),
            ]
            assert reply.header("content-type") == "text/x"
            assert reply.header("content-length") == str(len(reply.body))
            assert reply.header("date").endswith(" GMT")
            for n in range(3):  # on one connection
                assert (await client.ask("GET", f"/{n}")).body == f"GET /{n} 0 ".encode()
        first = seen[0]
        assert first.header("x-some") == "thing"
        assert first.header("X-Some") == "thing"
        assert first.header("x-utf") == "grün"
        assert first.header("x-none") == ""
        assert first.header("x-none", "-") == "-"
        assert first.header("host") == "test"
        assert first.header_values("x-two") == ["a", "b"]
        assert ("x-two", "a") in first.headers
        assert ("host", "test") in first.headers
        assert first.has_header_prefix("x-tw")
        assert not first.has_header_prefix("x-tx")
        assert first.has_header_prefix("ho")
        assert first.version == ("HTTP/2.0" if way.protocol == "h2" else "HTTP/1.1")
        connection = first.connection
        assert connection.listener == "http://127.0.0.1:0"
        assert connection.peer.startswith("127.0.0.1:")
        assert (connection.is_tls, connection.protocol, connection.certificates) == (False, "", ())
        assert all(each.connection is connection for each in seen)

    run(scenario())


def test_head_has_the_length_and_no_body(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        if request.target == "/streamed":
            answer.start(200, [])
            await answer.write(b"not to be seen")
            answer.finish()
        else:
            answer.send(200, [], b"12345")

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            reply = await client.ask("HEAD", "/whole")
            assert (reply.status, reply.header("content-length"), reply.body) == (200, "5", b"")
            reply = await client.ask("HEAD", "/streamed")
            assert (reply.status, reply.body) == (200, b"")
            assert (await client.ask("GET", "/whole")).body == b"12345"

    run(scenario())


def test_a_body_in_parts_is_one_body(way: Way) -> None:
    parts = (b"a", b"", b"b" * 200_000, b"c")

    async def handle(request: Request, answer: Answer) -> None:
        answer.send(200, [], *parts)

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            for method, body in (("GET", b"".join(parts)), ("HEAD", b"")):
                reply = await client.ask(method, "/")
                assert (reply.status, reply.header("content-length")) == (200, "200002")
                assert reply.body == body

    run(scenario())


@pytest.mark.parametrize("status", [200, 201, 204, 304, 404, 500, 599])
def test_statuses_and_empty_bodies(way: Way, status: int) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        answer.send(status)

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            for _ in range(2):
                reply = await client.ask("GET", "/")
                assert (reply.status, reply.body) == (status, b"")
                length = reply.header("content-length")
                assert length == ("" if status in {204, 304} else "0")

    run(scenario())


@pytest.mark.parametrize("size", [1, 1000, 65_535, 65_536, 300_000, 3_000_000])
def test_bodies_of_all_sizes_come_and_go(way: Way, size: int) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        answer.send(200, [], await request.read())

    async def scenario() -> None:
        body = bytes(n & 255 for n in range(997)) * (size // 997 + 1)
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            for _ in range(2):
                assert (await client.ask("PUT", "/", [], body[:size])).body == body[:size]

    run(scenario())


def test_a_small_body_is_there_from_the_beginning(way: Way) -> None:
    tasks: list[object] = []

    async def handle(request: Request, answer: Answer) -> None:
        assert request.body is not None
        answer.send(200, [], await request.read() + request.body)
        tasks.append(answer.task)

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            assert (await client.ask("PUT", "/", [], b"abc")).body == b"abcabc"
            assert under.server.open_count == 0
        assert tasks == [None]

    run(scenario())


def test_a_body_of_unknown_length_is_read_as_it_comes(way: Way) -> None:
    pieces: list[bytes] = []

    async def handle(request: Request, answer: Answer) -> None:
        assert request.body is None
        async for piece in request.pieces():
            pieces.append(piece)  # noqa: PERF401 - the test looks on
        answer.send(200, [], b"".join(pieces))

    async def arrived(piece: bytes) -> None:
        await until(lambda: b"".join(pieces).endswith(piece))

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            stream = await client.open("POST", "/", has_body=True)
            for n in range(5):
                await stream.send(b"piece %d " % n)
                await arrived(b"piece %d " % n)
            await stream.end()
            assert (await stream.reply()).body == b"".join(b"piece %d " % n for n in range(5))

    run(scenario())


def test_answer_and_body_may_be_under_way_at_once(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        answer.start(200, [])
        async for piece in request.pieces():
            await answer.write(piece.upper())
        answer.finish()

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            stream = await client.open("POST", "/", has_body=True)
            assert (await stream.head())[0] == 200
            for _ in range(5):
                await stream.send(b"ping")
                assert await stream.read() == b"PING"
            await stream.end()
            assert await stream.read() == b""

    run(scenario())


def test_a_body_above_the_limit_is_refused(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        if request.target == "/own":
            try:
                answer.send(200, [], await request.read(2000))
            except BodyTooLargeError as error:
                answer.send(413, [], str(error).encode())
        else:
            await echo(request, answer)

    async def scenario() -> None:
        limits = ListenerLimits(body_bytes_max=1000, whole_body_bytes_max=500)
        async with serving(handle, portable=way.portable, limits=limits) as under:
            for known in (True, False):
                for size in (1001, 60_000):
                    async with way.connect(under.url) as client:
                        length = [("content-length", str(size))] if known else []
                        stream = await client.open("PUT", "/", length, has_body=True)
                        await stream.send(b"x" * size)
                        await stream.end()
                        reply = await stream.reply()
                        assert reply.status == 413
                        assert reply.body == (
                            b"the request body is above the limit of 1000 bytes\n"
                        )
            async with way.connect(under.url) as client:
                assert (await client.ask("PUT", "/", [], b"x" * 1000)).status == 200
                assert (await client.ask("PUT", "/own", [], b"x" * 2000)).status == 200
            async with way.connect(under.url) as client:
                reply = await client.ask("PUT", "/own", [], b"x" * 2001)
                assert reply.body == b"the request body is above the limit of 2000 bytes"

    run(scenario())


def test_a_client_that_waits_for_100_is_answered_when_the_handler_reads(way: Way) -> None:
    if way.protocol == "h2":
        pytest.skip("100 (Continue) over HTTP/2 is nobody's habit")
    may_read = asyncio.Event()

    async def handle(request: Request, answer: Answer) -> None:
        if request.target == "/no":
            answer.send(401, [], b"who are you")
            return
        await may_read.wait()
        await echo(request, answer)

    async def scenario() -> None:
        expect = [("content-length", "4"), ("expect", "100-continue")]
        async with serving(handle, portable=way.portable) as under:
            async with way.connect(under.url) as client:
                stream = await client.open("PUT", "/no", expect, has_body=True)
                assert (await stream.head())[0] == 401  # without a 100
            async with way.connect(under.url) as client:
                stream = await client.open("PUT", "/yes", expect, has_body=True)
                assert isinstance(client, H1Client)
                await until(lambda: under.server.open_count)
                await asyncio.sleep(0.05)  # nothing may come
                assert not client.reader._buffer  # type: ignore[attr-defined]
                may_read.set()
                assert (await stream.head())[0] == 100
                await stream.send(b"data")
                await stream.end()
                assert (await stream.reply()).body == b"PUT /yes 4 data"
                assert (await client.ask("GET", "/next")).status == 200

    run(scenario())


def test_a_handler_that_fails_or_forgets_is_reported(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        if "wait" in request.target:
            await asyncio.sleep(0)
        if "begin" in request.target:
            answer.start(200, [])
            await answer.write(b"some")
            await asyncio.sleep(0.02)
        if "fail" in request.target:
            raise KeyError("on purpose")

    async def scenario() -> None:
        targets = ["/fail", "/wait/fail", "/forget", "/wait/forget"]
        async with serving(handle, portable=way.portable, failures=5) as under:
            for target in targets:
                async with way.connect(under.url) as client:
                    reply = await client.ask("GET", target)
                    assert (reply.status, reply.body) == (500, b"internal error\n")
            async with way.connect(under.url) as client:
                stream = await client.open("GET", "/begin/fail")
                assert (await stream.head())[0] == 200
                with pytest.raises(TornError):
                    [_ async for _ in stream.pieces()]
            async with way.connect(under.url) as client:
                reply = await client.ask("GET", "/begin/return")  # a return ends it
                assert (reply.status, reply.body) == (200, b"some")
            assert under.server.open_count == 0

    run(scenario())


def test_an_answer_is_given_once(way: Way) -> None:
    refused: list[str] = []

    async def handle(request: Request, answer: Answer) -> None:
        with pytest.raises(RuntimeError, match="not open"):
            answer.write_now(b"early")
        with pytest.raises(RuntimeError, match="not started"):
            answer.finish()
        with pytest.raises(RuntimeError, match="no other protocol"):
            answer.upgrade("x")
        answer.send(200, [], b"first")
        for again in (
            lambda: answer.send(200),
            lambda: answer.start(200),
            lambda: answer.write_now(b"x"),
        ):
            with pytest.raises(RuntimeError) as caught:
                again()
            refused.append(str(caught.value))
        answer.finish()  # nothing more
        answer.abort()
        assert answer.state is State.OVER

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            for _ in range(2):
                assert (await client.ask("GET", "/")).body == b"first"
        assert len(refused) == 6

    run(scenario())


@pytest.mark.parametrize("header", [("a b", "x"), ("x", "a\r\nb: c"), ("x", "a\0"), ("", "x")])
def test_a_header_that_cannot_be_sent_is_an_error_of_its_handler(
    way: Way, header: tuple[str, str]
) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        with pytest.raises(ValueError):  # noqa: PT011 - each transport has its own words
            answer.send(200, [header], b"never")
        answer.send(200, [("X-Utf", "grün")], b"then this")

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            reply = await client.ask("GET", "/")
            assert (reply.body, reply.header("x-utf")) == (b"then this", "grün")

    run(scenario())


def test_what_one_handler_sets_no_other_sees(way: Way) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="-")
    seen: list[str] = []

    async def handle(request: Request, answer: Answer) -> None:
        seen.append(variable.get())
        variable.set(request.target)
        if "wait" in request.target:
            await asyncio.sleep(0.01)
        seen.append(variable.get())
        child = asyncio.create_task(asyncio.sleep(0, variable.get()))
        answer.send(200, [], (await child).encode() if "wait" in request.target else b"")

    async def scenario() -> None:
        variable.set("base")
        async with serving(handle, portable=way.portable) as under:
            targets = ["/a", "/wait/b", "/c", "/wait/d"]
            for target in targets:
                async with way.connect(under.url) as client:
                    assert (await client.ask("GET", target)).status == 200
            assert seen == [each for target in targets for each in ("base", target)]
            assert variable.get() == "base"

    run(scenario())


def test_a_handler_has_a_task_from_its_first_line(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        task = asyncio.current_task()
        assert isinstance(task, asyncio.Task)
        answer.start(200, [])
        if request.target == "/timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await asyncio.sleep(60)
        elif request.target == "/past":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(-1):
                    await asyncio.sleep(60)
        elif request.target == "/inner":
            async with asyncio.timeout(60):  # noqa: ASYNC100
                pass
        elif request.target == "/group":
            async with asyncio.TaskGroup() as group:
                one = group.create_task(asyncio.sleep(0.01, b"one"))
            await answer.write(one.result())
        elif request.target == "/failing-group":
            with pytest.raises(ExceptionGroup):  # noqa: PT012
                async with asyncio.TaskGroup() as group:
                    group.create_task(asyncio.to_thread(int, "no number"))
                    await asyncio.sleep(60)
        elif request.target == "/wait-for":
            assert await asyncio.wait_for(asyncio.sleep(0.01, 7), 60) == 7
        await asyncio.sleep(0)
        assert asyncio.current_task() is task
        answer.finish()

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            for target in ("timeout", "past", "inner", "group", "failing-group", "wait-for"):
                reply = await client.ask("GET", f"/{target}")
                assert (reply.status, reply.body) == (200, b"one" if target == "group" else b"")

    run(scenario())


def test_many_at_once_are_each_given_their_own(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        number = int(request.target[1:])
        if number % 3:
            await asyncio.sleep(0.001 * (number % 7))
        if number % 2:
            answer.start(200, [])
            for _ in range(3):
                await answer.write(b"%d " % number)
            answer.finish()
        else:
            answer.send(200, [], b"%d" % number)

    async def scenario() -> None:
        async with serving(handle, portable=way.portable) as under:

            async def client_of(first: int) -> None:
                async with way.connect(under.url) as client:
                    for number in range(first, first + 25):
                        reply = await client.ask("GET", f"/{number}")
                        assert reply.body.split() == [b"%d" % number] * (3 if number % 2 else 1)

            await asyncio.gather(*(client_of(n * 100) for n in range(20)))
            assert under.server.open_count == 0

    run(scenario())


def test_more_than_may_be_open_are_refused(way: Way) -> None:
    release = asyncio.Event()

    async def handle(request: Request, answer: Answer) -> None:
        await release.wait()
        answer.send(200)

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable, requests_max=2) as under,
            way.connect(under.url) as one,
            way.connect(under.url) as two,
        ):
            first = await one.open("GET", "/")
            second = await two.open("GET", "/")
            await until(lambda: under.server.open_count == 2)
            async with way.connect(under.url) as three:
                assert (await three.ask("GET", "/")).status == 503
            release.set()
            assert (await first.reply()).status == (await second.reply()).status == 200

    run(scenario())


def test_listeners_have_names_and_limits_of_their_own(way: Way, tmp_path: object) -> None:
    seen: list[tuple[str, str]] = []

    async def handle(request: Request, answer: Answer) -> None:
        seen.append((request.connection.listener, request.connection.peer))
        await echo(request, answer)

    async def scenario() -> None:
        path = f"{tmp_path}/socket"
        listeners = (
            Listener("http://127.0.0.1:0", "small", limits=ListenerLimits(body_bytes_max=10)),
            Listener("http://localhost:0", "large"),
            Listener(f"unix://{path}", "unix"),
        )
        async with serving(handle, *listeners, portable=way.portable) as under:
            small, large, unix = under.server.urls
            assert unix == f"unix://{path}"
            for url, status in ((small, 413), (large, 200), (unix, 200)):
                async with way.connect(url) as client:
                    assert (await client.ask("PUT", "/", [], b"x" * 11)).status == status
        assert [each[0] for each in seen] == ["small", "large", "unix"]
        assert seen[2][1] == path

    run(scenario())


def test_a_connection_keeps_what_its_handler_learnt(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        memo = request.connection.memo
        count = memo if isinstance(memo, int) else 0
        request.connection.memo = count + 1
        answer.send(200, [], str(count).encode())

    async def scenario() -> None:
        async with serving(handle, portable=way.portable) as under:
            for _ in range(2):
                async with way.connect(under.url) as client:
                    bodies = [(await client.ask("GET", "/")).body for _ in range(3)]
                    assert bodies == [b"0", b"1", b"2"]

    run(scenario())


def test_an_address_that_cannot_be_had_is_named(way: Way) -> None:
    async def scenario() -> None:
        async with serving(echo, portable=way.portable) as under:
            for url, text in (
                (under.url, "Address already in use"),
                ("unix:///no/such/directory/socket", "directory"),
                ("https://127.0.0.1:0", "certificate"),
                ("ftp://127.0.0.1:0", "only http://"),
            ):
                options = under.server._options
                with pytest.raises(ConfigError, match=text) as caught:
                    await HttpServer([Listener(url)], echo, options).start()
                assert url in str(caught.value)

    run(scenario())


def context_without_checks() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


Check = Callable[[], bool]
assert SERVERS
