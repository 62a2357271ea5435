"""Watches over WebSocket of clients that can set no header but the subprotocols: browsers."""

import asyncio
import base64
from pathlib import Path

import pytest

from tests.apiserver.server.in_process import World, options, run
from tests.support.http.hanging_up import hang_up

TOKEN = "base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(
    b"admin-token"
).decode().rstrip("=")


async def open_watch(world: World, port: int, offered: str, *more: str) -> tuple[str, bytes]:
    """Ask for a watch; return the head of the answer and the first bytes behind it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=world.context())
    lines = [
        "GET /api/v1/namespaces?watch=1 HTTP/1.1",
        "Host: api",
        "Origin: https://dashboard.example",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        f"Sec-WebSocket-Protocol: {offered}",
        *more,
    ]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first = await reader.read(2) if " 101 " in head.partition("\r\n")[0] else b""
    await hang_up(writer)
    return head, first


@pytest.mark.parametrize("offered", [f"{TOKEN}, binary.k8s.io", f"binary.k8s.io,{TOKEN}"])
def test_the_token_is_no_protocol_to_choose(tmp_path: Path, offered: str) -> None:
    async def main(world: World) -> None:
        server = await world.start(options(world.directory))
        head, first = await open_watch(world, server.port, offered)
        assert head.startswith("HTTP/1.1 101 "), head
        assert "sec-websocket-protocol: binary.k8s.io\r\n" in head.lower()
        assert first[0] == 0x81, "a message of text"

    run(tmp_path, main)


def test_a_token_that_nobody_asked_for_is_a_protocol_like_others(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await world.start(options(world.directory))
        header = "Authorization: Bearer admin-token"
        head, _ = await open_watch(world, server.port, f"{TOKEN}, binary.k8s.io", header)
        assert head.startswith("HTTP/1.1 400 "), head
        head, _ = await open_watch(world, server.port, TOKEN, header)
        assert head.startswith("HTTP/1.1 101 "), head
        assert TOKEN in head

    run(tmp_path, main)


def test_a_token_alone_is_refused(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await world.start(options(world.directory))
        head, _ = await open_watch(world, server.port, TOKEN)
        assert head.startswith("HTTP/1.1 401 "), head

    run(tmp_path, main)
