"""Which proxy leads to a server, and connections through one."""

import asyncio
import socket
from pathlib import Path

import pytest

from kvstack.component.http.client import HttpClient
from kvstack.component.http.dialling import ProxyError
from kvstack.component.http.proxies import Proxy, proxy_from_environment, proxy_of
from kvstack.component.http.request_head import UrlError
from kvstack.component.http.tls import client_context, read_bundle
from tests.apiserver.support.web import web
from tests.support.http.hanging_up import hang_up
from tests.support.network.tcp_listener import TcpListener

NAMES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


def test_urls_of_proxies() -> None:
    assert proxy_of("") is None
    assert proxy_of("http://p:3128") == Proxy("p", 3128)
    assert proxy_of("http://a:b%40@p") == Proxy("p", 80, "Proxy-Authorization: Basic YTpiQA==\r\n")
    for url in ("https://p", "socks5://p:1080", "p:3128", "http://"):
        with pytest.raises(UrlError, match="only proxies with a URL of http://"):
            proxy_of(url)


@pytest.mark.parametrize(
    ("url", "without", "found"),
    [
        ("https://a.example/", "", "http://secure:1"),
        ("http://a.example/", "", "http://plain:2"),
        ("https://a.example/", "other", "http://secure:1"),
        ("https://a.example/", "*", ""),
        ("https://a.example/", "x, a.example", ""),
        ("https://a.example/", "example", ""),
        ("https://a.example/", ".example", ""),
        ("https://example/", ".example", "http://secure:1"),
        ("https://an-example/", "example", "http://secure:1"),
        ("https://a.example:8443/", "a.example:8443", ""),
        ("https://a.example/", "a.example:8443", "http://secure:1"),
        ("https://10.1.2.3/", "10.0.0.0/8", ""),
        ("https://10.1.2.3/", "10.1.2.3", ""),
        ("https://11.1.2.3/", "10.0.0.0/8", "http://secure:1"),
        ("https://[fd00::1]/", "fd00::/8", ""),
        ("https://127.0.0.1:6443/", "", ""),
        ("https://127.9.9.9/", "", ""),
        ("https://[::1]/", "", ""),
        ("https://localhost/", "", ""),
    ],
)
def test_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, url: str, without: str, found: str
) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:1")
    monkeypatch.setenv("http_proxy", "plain:2")
    monkeypatch.setenv("NO_PROXY", without)
    assert proxy_from_environment(url) == found


def test_a_server_with_tls_is_reached_through_connect(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head)
        _, _, port = head.split()[1].decode().rpartition(":")
        there, onwards = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                target.write(data)
            target.close()

        try:
            await asyncio.gather(carry(reader, onwards), carry(there, writer))
        finally:
            await hang_up(onwards)

    async def answer(path: str, _body: object) -> tuple[int, bytes]:
        return 200, path.encode()

    async def main() -> None:
        async with web(tmp_path, answer) as served, TcpListener(proxy) as listener:
            context = client_context(read_bundle(served.ca_file))
            client = HttpClient(proxy=proxy_of(f"http://u:p@127.0.0.1:{listener.port}"))
            port = served.url.rpartition(":")[2]
            for path in ("/a", "/b"):
                found = await client.request(
                    "GET", f"https://127.0.0.1:{port}{path}", "", b"", context=context,
                    bytes_max=100,
                )  # fmt: skip
                assert found.body == path.encode()
            client.close()
        there = f"127.0.0.1:{port}"
        assert [each.decode() for each in seen] == [
            f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\nProxy-Authorization: Basic dTpw\r\n\r\n"
        ], "the connection is kept, and only the proxy is told who asks it"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 407 No\r\nContent-Length: 5\r\n\r\n", "answers 407"),
        (b"", "EOF"),
        (b"nonsense\r\n\r\n", "malformed HTTP response"),
        (b"x" * 100_000, "malformed HTTP response"),
    ],
)
def test_a_proxy_that_does_not_lead_there(answer: bytes, why: str) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    async def main() -> None:
        async with TcpListener(refuse) as listener:
            client = HttpClient(proxy=Proxy("127.0.0.1", listener.port))
            with pytest.raises(ProxyError, match=f"proxy 127.0.0.1: {why}|proxy 127.0.0.1 {why}"):
                await client.request(
                    "GET", "https://far.invalid/", "", b"", context=client_context(insecure=True),
                    bytes_max=100,
                )  # fmt: skip
            client.close()

    asyncio.run(main())


def test_a_proxy_that_is_not_there() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        client = HttpClient(proxy=Proxy("127.0.0.1", held.getsockname()[1]))
        asking = client.request(
            "GET", "https://far.invalid/", "", b"", context=client_context(insecure=True),
            bytes_max=100,
        )  # fmt: skip
        with pytest.raises(ConnectionRefusedError):
            asyncio.run(asking)
