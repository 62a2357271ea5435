"""Answers in pieces, bodies in pieces, and connections after an upgrade."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from kvstack.component.http.answers import AnswerError, TooLongError
from kvstack.component.http.client import HttpClient
from kvstack.component.http.connection import ClosedError
from kvstack.component.http.proxies import proxy_of
from kvstack.component.http.request_head import UrlError, head_lines, request_head
from tests.support.network.tcp_listener import TcpListener
from tests.support.waiting import eventually, stands_still

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
LARGE = 8 << 20
MIDDLE = 1 << 20

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def run(serve: Serve, main: Callable[[HttpClient, str], Awaitable[None]], **given: int) -> None:
    """Run a client against a server on loopback."""

    async def body() -> None:
        client = HttpClient(connections_max=given.get("connections_max", 0))
        async with TcpListener(serve) as server:
            try:
                async with asyncio.timeout(60):
                    await main(client, f"http://127.0.0.1:{server.port}/")
            finally:
                client.close()

    asyncio.run(body())


def answering(data: bytes, *, ends: bool = True) -> Serve:
    """Return a server that answers each request with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(data)
            await writer.drain()
            if ends:
                return

    return serve


def test_a_huge_chunk_is_given_as_it_comes() -> None:
    async def main(client: HttpClient, url: str) -> None:
        async with await client.open("GET", url, "", context=None) as answer:
            assert set(await answer.read()) == {ord("x")}, "nobody waits for the end of the chunk"

    run(answering(CHUNKED + b"FFFFFFFFFF\r\n" + b"x" * 200_000, ends=False), main)


def test_chunks_of_any_size_are_read_and_the_connection_is_used_again() -> None:
    body = b"y" * 1_500_000
    data = CHUNKED + b"3\r\nabc\r\n" + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await answering(data, ends=False)(reader, writer)

    async def main(client: HttpClient, url: str) -> None:
        for _ in range(3):
            async with await client.open("GET", url, "", context=None) as answer:
                assert await answer.body(LARGE) == b"abc" + body
        assert connections == 1
        async with await client.open("GET", url, "", context=None) as answer:
            assert await answer.read()  # and the rest is not wanted
        async with await client.open("GET", url, "", context=None) as answer:
            assert await answer.body(LARGE) == b"abc" + body
        assert connections == 2

    run(serve, main)


@pytest.mark.parametrize("rest", [b"3\r\nabcdef\r\n0\r\n\r\n", b"z\r\n", b"5\r\nab"])
def test_a_chunk_of_another_length_than_it_says_breaks_the_answer(rest: bytes) -> None:
    async def main(client: HttpClient, url: str) -> None:
        with pytest.raises(AnswerError):
            async with await client.open("GET", url, "", context=None) as answer:
                await answer.body(1 << 20)

    run(answering(CHUNKED + rest), main)


def test_a_body_has_a_limit() -> None:
    async def main(client: HttpClient, url: str) -> None:
        async with await client.open("GET", url, "", context=None) as answer:
            with pytest.raises(TooLongError, match="more than 1000 bytes"):
                await answer.body(1000)

    run(answering(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001), main)


def test_no_more_than_a_window_is_read_while_nobody_takes_it() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 * LARGE))
        while sent < 64 * LARGE:
            writer.write(b"x" * (1 << 20))
            await writer.drain()
            sent += 1 << 20

    async def main(client: HttpClient, url: str) -> None:
        async with await client.open("GET", url, "", context=None) as answer:
            await stands_still(lambda: sent, for_s=0.2)  # the server cannot send on
            assert sent < 4 * LARGE
            taken = len(await answer.read())
            while taken < 64 * LARGE:
                taken += len(await answer.read())
            assert taken == 64 * LARGE

    run(serve, main)


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for each in given:
        await asyncio.sleep(0)
        yield each


def test_a_body_in_pieces_with_and_without_a_length() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if b"chunked" in head:
                seen.append(await reader.readuntil(b"0\r\n\r\n"))
            else:
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                seen.append(await reader.readexactly(length))
            writer.write(OK)

    async def main(client: HttpClient, url: str) -> None:
        large = b"z" * LARGE
        for head, body in (
            ("", pieces(b"ab", b"", b"c")),
            ("Content-Length: 3\r\n", pieces(b"ab", b"c")),
            (f"Content-Length: {LARGE}\r\n", pieces(large)),
            ("", b"whole"),
        ):
            async with await client.open("POST", url, head, body, context=None) as answer:
                assert await answer.body(10) == b"{}"
        assert seen == [b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", b"abc", large, b"whole"]

    run(serve, main)


def test_a_body_that_breaks_off_is_never_taken_for_whole() -> None:
    ends: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        ends.append(await reader.read())

    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError("the client has gone")

    async def main(client: HttpClient, url: str) -> None:
        with pytest.raises(ConnectionResetError, match="the client has gone"):
            await client.open("POST", url, "", broken(), context=None)
        await eventually(lambda: ends)
        assert not ends[0].endswith(b"0\r\n\r\n")

    run(serve, main)


def test_an_answer_before_the_whole_body_is_given_and_ends_the_connection() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        await asyncio.Event().wait()  # the rest is never read

    async def main(client: HttpClient, url: str) -> None:
        for number in (1, 2):
            body = pieces(b"x" * LARGE)
            async with await client.open("POST", url, "", body, context=None) as answer:
                assert await answer.body(10) == b"{}"
            assert connections == number

    run(serve, main)


def test_bytes_go_both_ways_after_an_upgrade() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 X\r\nUpgrade: echo\r\n\r\nfirst")
        while data := await reader.read(100_000):
            writer.write(data.upper())
            await writer.drain()

    async def main(client: HttpClient, url: str) -> None:
        head = head_lines((("Connection", "Upgrade"), ("Upgrade", "echo")))
        async with await client.open("GET", url, head, context=None, is_upgrade=True) as answer:
            assert answer.is_upgraded
            assert await answer.read() == b"first"
            found = b""
            senders = [asyncio.create_task(answer.write(b"a" * MIDDLE)) for _ in range(3)]
            while len(found) < 3 * MIDDLE:
                found += await answer.read()
            await asyncio.gather(*senders)
            assert found == b"A" * (3 * MIDDLE)
        with pytest.raises(ClosedError):
            await answer.write(b"late")

    run(serve, main)


def test_101_without_being_asked_is_no_answer() -> None:
    async def main(client: HttpClient, url: str) -> None:
        with pytest.raises((AnswerError, ClosedError)):
            await client.open("GET", url, "", context=None)

    run(answering(b"HTTP/1.1 101 X\r\n\r\n"), main)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 X\r\nContent-Length: 500\r\n\r\n"),
        ("DELETE", b"HTTP/1.1 204 X\r\n\r\n"),
    ],
)
def test_answers_without_a_body_leave_the_connection(method: str, answer: bytes) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await answering(answer, ends=False)(reader, writer)

    async def main(client: HttpClient, url: str) -> None:
        for _ in range(3):
            async with await client.open(method, url, "", context=None):
                pass  # nothing is read
        assert connections == 1

    run(serve, main)


def test_a_kept_connection_that_ended_is_not_used_for_what_must_not_be_sent_twice() -> None:
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        writer.write(OK)

    async def main(client: HttpClient, url: str) -> None:
        for number in range(1, 6):
            async with await client.open("DELETE", url, "", context=None) as answer:
                assert await answer.body(10) == b"{}"
            await asyncio.sleep(0.02)  # the end of the connection arrives, or does not yet
            assert requests == number

    run(serve, main)


def test_others_wait_while_as_many_connections_as_may_be_are_in_use() -> None:
    async def main(client: HttpClient, url: str) -> None:
        first = await client.open("GET", url, "", context=None)
        second = asyncio.create_task(client.open("GET", url, "", context=None))
        done, _ = await asyncio.wait((second,), timeout=0.2)
        assert not done
        first.close()
        first.close()
        (await second).close()

    run(answering(OK, ends=False), main, connections_max=1)


@pytest.mark.parametrize(
    "header", [("a b", "x"), ("", "x"), ("a:", "x"), ("a", "x\r\nb: y"), ("a", "x\ny"), ("a", "\0")]
)
def test_what_would_begin_another_header_is_refused(header: tuple[str, str]) -> None:
    with pytest.raises(UrlError, match="net/http: invalid header field"):
        head_lines((header,))


def test_heads_of_requests() -> None:
    assert request_head("GET", "/", "h", "", None) == b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    assert (
        request_head("GET", "/", "h", "Host: x\r\n", None) == b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    assert b"Content-Length: 0\r\n" in request_head("POST", "/", "h", "", None)
    assert request_head("GET", "/", "h", "A: \u00e4\udcff\r\n", None).endswith(
        b"A: \xc3\xa4\xff\r\n\r\n"
    )


def test_through_a_proxy() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)

    async def main() -> None:
        async with TcpListener(serve) as server:
            proxy = proxy_of(f"http://user:p%40ss@127.0.0.1:{server.port}")
            client = HttpClient(proxy=proxy)
            found = await client.request(
                "GET", "http://far.invalid:81/a?b", "", b"", context=None, bytes_max=10
            )
            client.close()
        assert found.body == b"{}"
        assert seen == [
            b"GET http://far.invalid:81/a?b HTTP/1.1\r\nHost: far.invalid:81\r\n"
            b"Proxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n"
        ]

    asyncio.run(main())
