"""What probes and hooks ask over HTTP, and what pages of static pods answer."""

import asyncio
from typing import Any

import pytest

from kvstack.agents.kubelet.lifecycle.actions import GOOD, Outcome, request
from kvstack.agents.kubelet.static.pages import page
from tests.support.network.tcp_listener import TcpListener

AGENT = "kube-probe/1.37"


async def probed(
    answer: bytes, get: dict[str, Any], timeout_s: float = 20.0
) -> tuple[Outcome, str]:
    """Return what comes of a probe, and the request that it sent."""
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
        if not answer:
            await reader.read()
        writer.write(answer)

    async with TcpListener(serve) as server:
        whole = {"port": server.port, **get}
        found = await request({}, whole, "127.0.0.1", timeout_s, AGENT)
    text = found.text.replace(str(server.port), "PORT")
    seen.append("")
    return found._replace(text=text), seen[0]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 204 No\r\n\r\n", GOOD),
        (b"HTTP/1.1 304 No\r\n\r\n", GOOD),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", GOOD),
        (b"HTTP/1.1 404 No\r\n\r\n", Outcome(False, "HTTP probe failed with statuscode: 404")),
        (
            b"HTTP/1.1 302 Go\r\nLocation: http://far.invalid/x\r\n\r\nbye",
            Outcome(True, warning="Probe terminated redirects, Response body: bye"),
        ),
        (
            b"nonsense\r\n\r\n",
            Outcome(
                False,
                'Get "http://127.0.0.1:PORT/": net/http: HTTP/1.x transport connection broken: '
                "malformed HTTP response",
            ),
        ),
    ],
)
def test_answers_to_a_probe(answer: bytes, expected: Outcome) -> None:
    found, _ = asyncio.run(probed(answer, {}))
    assert found == expected


def test_a_server_that_says_nothing_is_waited_for_no_longer_than_may_be() -> None:
    found, _ = asyncio.run(probed(b"", {}, timeout_s=0.2))
    assert found.is_good is False
    assert "Client.Timeout exceeded while awaiting headers" in found.text


def test_redirects_that_lead_in_a_circle_end() -> None:
    answer = b"HTTP/1.1 302 Go\r\nLocation: /again\r\n\r\n"
    found, _ = asyncio.run(probed(answer, {}))
    assert found.text.endswith("stopped after 10 redirects")


def test_headers_of_a_probe_replace_its_own() -> None:
    given = [
        {"name": "Host", "value": "shop.example"},
        {"name": "user-agent", "value": "mine"},
        {"name": "ACCEPT", "value": ""},
    ]
    get = {"path": "/a b?c=ä#d", "httpHeaders": given}
    found, sent = asyncio.run(probed(b"HTTP/1.1 200 OK\r\n\r\n", get))
    assert found.is_good
    assert sent.splitlines()[0] == "GET /a%20b?c=%C3%A4 HTTP/1.1"
    lines = sorted(sent.lower().split("\r\n")[1:-2])
    assert lines == ["connection: close", "host: shop.example", "user-agent: mine"]


def test_a_header_cannot_begin_another_request() -> None:
    value = "x\r\n\r\nDELETE /all HTTP/1.1\r\nHost: y"
    get = {"httpHeaders": [{"name": "X", "value": value}]}
    found, sent = asyncio.run(probed(b"HTTP/1.1 200 OK\r\n\r\n", get))
    assert not found.is_good
    assert found.text.endswith('net/http: invalid header field value for "x"')
    assert sent == "", "nothing is sent"


def test_pages_of_static_pods() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            if b"/old" in line:
                writer.write(b"HTTP/1.1 301 X\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n")
            elif b"/new" in line:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\npod")
            elif b"/large" in line:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10485761\r\n\r\n")
            elif b"/circle" in line:
                writer.write(b"HTTP/1.1 302 X\r\nLocation: /circle\r\nContent-Length: 0\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")

    async def main() -> None:
        async with TcpListener(serve) as server:
            url = f"http://127.0.0.1:{server.port}"
            assert await page(f"{url}/old") == b"pod"
            for path, why in (
                ("/none", "answers 404"),
                ("/large", "more than 10485760 bytes"),
                ("/circle", "stopped after 10 redirects"),
            ):
                with pytest.raises(OSError, match=why):
                    await page(url + path)
        with pytest.raises(OSError, match="connection refused"):
            await page(f"{url}/old")
        with pytest.raises(OSError, match="is not an http or https URL"):
            await page("file:///etc/passwd")

    asyncio.run(main())
