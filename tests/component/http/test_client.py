"""Requests over kept connections."""

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable

import pytest

from kvstack.component.http.client import HttpClient
from kvstack.component.http.connection import ClosedError
from kvstack.component.http.request_head import Site, UrlError, site_of
from kvstack.component.http.tls import client_context
from tests.apiserver.support.hook_server import HookServer

BYTES_MAX = 64 << 20
LARGE = 8 << 20
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def run(serve: Serve, main: Callable[[HttpClient, str], Awaitable[None]]) -> None:
    """Run a client against a server on loopback."""

    async def body() -> None:
        handlers: set[asyncio.Task[None]] = set()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                pass  # the client went first
            finally:
                writer.close()

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            handlers.add(asyncio.create_task(handle(reader, writer)))

        server = await asyncio.start_server(begin, "127.0.0.1", 0)
        client = HttpClient()
        try:
            async with asyncio.timeout(30):
                await main(client, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        finally:
            client.close()
            server.close()
            for each in handlers:
                each.cancel()
            await asyncio.gather(*handlers, return_exceptions=True)

    asyncio.run(body())


async def ask(client: HttpClient, url: str, body: bytes = b"") -> bytes:
    found = await client.request("POST", url, "", body, context=None, bytes_max=BYTES_MAX)
    return found.body


async def requests(reader: asyncio.StreamReader) -> int:
    """Return the length of the next request's body, once all of it is read."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return length


def test_requests_larger_than_what_a_socket_takes() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            text = b"%d" % await requests(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))

    async def main(client: HttpClient, url: str) -> None:
        for _ in range(2):
            assert await ask(client, url, b"x" * LARGE) == b"%d" % LARGE

    run(serve, main)


def test_one_connection_serves_all_that_follow_one_another() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await requests(reader)
            writer.write(OK)

    async def main(client: HttpClient, url: str) -> None:
        for _ in range(5):
            await ask(client, url)
        assert connections == 1
        await asyncio.gather(*(ask(client, url) for _ in range(3)))
        assert connections == 3

    run(serve, main)


def test_a_kept_connection_that_ended_is_replaced_and_a_new_one_is_not() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await requests(reader)
        if connections < 3:
            writer.write(OK)
            await reader.readuntil(b"\r\n\r\n")  # another request, which is not answered

    async def main(client: HttpClient, url: str) -> None:
        assert await ask(client, url) == b"{}"
        assert await ask(client, url) == b"{}"
        with pytest.raises(ClosedError):
            await ask(client, url)
        assert connections == 3

    run(serve, main)


def test_an_answer_before_the_whole_request_ends_the_connection() -> None:
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
            assert await ask(client, url, b"x" * LARGE) == b"{}"
            assert connections == number

    run(serve, main)


def test_who_gives_up_leaves_no_connection_behind() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await requests(reader)
        assert await reader.read() == b""
        ended.set()

    async def main(client: HttpClient, url: str) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await ask(client, url)
        await ended.wait()

    run(serve, main)


def test_a_client_that_is_closed_fails_who_waits() -> None:
    arrived = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await requests(reader)
        arrived.set()
        await reader.read()

    async def main(client: HttpClient, url: str) -> None:
        asking = asyncio.create_task(ask(client, url))
        await arrived.wait()
        client.close()
        with pytest.raises(ClosedError):
            await asking
        with pytest.raises(ClosedError):
            await ask(client, url)

    run(serve, main)


def test_answers_of_many_records_over_tls() -> None:
    async def main(hooks: HookServer) -> None:
        client = HttpClient()
        context = client_context(b64decode(hooks.ca))
        try:
            for _ in range(3):
                found = await client.request(
                    "POST",
                    f"{hooks.url}/large",
                    "Content-Type: application/json\r\nAccept: */*\r\n",
                    b'{"a":"%b"}' % (b"x" * LARGE),
                    context=context,
                    bytes_max=BYTES_MAX,
                )
                assert len(found.body) == LARGE
        finally:
            client.close()

    with HookServer() as hooks:
        hooks.answers["/large"] = {"status": 200, "text": "y" * LARGE}
        asyncio.run(main(hooks))


def test_where_urls_lead() -> None:
    assert site_of("https://h.svc:443/v?timeout=1s") == Site(
        "h.svc", 443, True, "/v?timeout=1s", "h.svc"
    )
    assert site_of("http://[::1]:81") == Site("::1", 81, False, "/", "[::1]:81")
    for url in ("ftp://h/", "https:///x", "http://h/\r\nx: y", "http://h:x/", "http://h/ä"):
        with pytest.raises(UrlError):
            site_of(url)
