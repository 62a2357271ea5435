"""Addresses that are listened on as Go's servers do, and the Host header."""

import asyncio
import socket

import pytest

from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import Listener
from kvstack.component.http.serving.request import Request
from kvstack.component.net.listening import listen_tcp, peer_host, peer_text
from tests.support.http.serving import SERVERS, Way, run, serving

EVERY_SERVER = pytest.mark.parametrize("way", SERVERS)
NEEDS_IPV6 = pytest.mark.skipif(not socket.has_ipv6, reason="Python has no IPv6")


def has_ipv6_loopback() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
        return True


async def ask(host: str, port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def name_the_client(request: Request, answer: Answer) -> None:
    answer.send(200, [], request.connection.peer.encode())


@NEEDS_IPV6
@EVERY_SERVER
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""])
def test_every_address_is_served_over_both_families(way: Way, host: str) -> None:
    if not has_ipv6_loopback():
        pytest.skip("this machine has no address ::1")

    async def scenario() -> None:
        listener = Listener(f"http://{host}:0")
        async with serving(name_the_client, listener, portable=way.portable) as under:
            port = int(under.url.rpartition(":")[2])
            request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            over_4 = await ask("127.0.0.1", port, request)
            over_6 = await ask("::1", port, request)
            assert over_4.partition(b"\r\n\r\n")[2].startswith(b"127.0.0.1:")
            assert over_6.partition(b"\r\n\r\n")[2].startswith(b"[::1]:")

    run(scenario())


@EVERY_SERVER
def test_one_address_is_its_own_family_alone(way: Way) -> None:
    async def scenario() -> None:
        listener = Listener("http://127.0.0.1:0")
        async with serving(name_the_client, listener, portable=way.portable) as under:
            port = int(under.url.rpartition(":")[2])
            with pytest.raises(OSError, match=r"."):
                await ask("::1", port, b"")

    run(scenario())


@EVERY_SERVER
@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\n", 400),
        (b"GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost:\r\n", 200),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", 200),
        (b"GET / HTTP/1.0\r\n", 200),
    ],
)
def test_a_request_of_http_1_1_has_one_host(way: Way, head: bytes, status: int) -> None:
    """The statuses are those of Go's server."""

    async def scenario() -> None:
        async with serving(name_the_client, portable=way.portable) as under:
            port = int(under.url.rpartition(":")[2])
            tail = b"" if status == 400 else b"Connection: close\r\n"
            answer = await ask("127.0.0.1", port, head + tail + b"\r\n")
            assert int(answer.split()[1]) == status
            if status == 400:
                assert b"\r\nconnection: close\r\n" in answer.lower()

    run(scenario())


def test_without_ipv6_the_wildcard_is_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    make = socket.socket

    def without_ipv6(family: int = -1, *rest: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return make(family, *rest)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    with listen_tcp("0.0.0.0", 0, 1) as listening:
        assert listening.family is socket.AF_INET
    with pytest.raises(OSError, match="not supported"):
        listen_tcp("::", 0, 1)


def test_clients_of_ipv4_have_their_own_addresses() -> None:
    assert peer_text(("::ffff:10.1.2.3", 7, 0, 0)) == "10.1.2.3:7"
    assert peer_text(("10.1.2.3", 7)) == "10.1.2.3:7"
    assert peer_text(("fe80::1", 7, 0, 0)) == "[fe80::1]:7"
    assert peer_text("/run/x.sock") == ""
    assert peer_host(("::ffff:0:1", 7, 0, 0)) == "::ffff:0:1"
