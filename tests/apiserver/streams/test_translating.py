"""Kubelets that do not speak WebSockets of clients: this server translates."""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kvstack.agents.kubelet.server import upgrades, wires
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.certs.certificates import Profile
from kvstack.component.clock import SystemClock
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import KeyPair, Listener, ServerTls
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.server import HttpServer
from kvstack.component.streams.channels import INPUT, OUTPUT, SIZE, Wants
from kvstack.component.streams.spdy.session import Session
from tests.apiserver.server.in_process import World, options, run

PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
ENDED = {"metadata": {}, "status": "Success"}


class OldKubelet:
    """Speaks SPDY/3.1 alone: a command says its input in capitals, a port its name."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.sizes: list[bytes] = []
        self.log_closed = asyncio.Event()

    async def serve(self, request: Request, answer: Answer) -> None:
        """Answer a request; one that cannot be agreed on is refused."""
        try:
            await self._serve(request, answer)
        except upgrades.UpgradeError as error:
            answer.send(error.code, error.headers, error.text.encode())

    async def _serve(self, request: Request, answer: Answer) -> None:
        self.seen.append((request.method, request.header("upgrade")))
        path, _, query = request.target.partition("?")
        if path.startswith("/containerLogs"):
            answer.start(200, [])
            await answer.write(b"one\n")
            if "follow=true" in query:
                try:
                    await answer.closing()
                finally:
                    self.log_closed.set()
                return
            await answer.write(b"two\n")
            answer.finish()
        elif path.endswith("/gone"):
            answer.send(404, [], b"container not found")
        elif path.startswith("/portForward"):
            session, _ = upgrades.spdy(request, answer, (upgrades.PORT_FORWARD,))
            await self._forward(session)
        else:
            session, protocol = upgrades.spdy(request, answer, upgrades.SPDY_COMMANDS)
            names = ("input", "output", "error", "tty")
            wants = Wants(*(f"{name}=1" in query for name in names))
            await self._command(await wires.spdy_wire(session, wants, protocol))

    async def _command(self, wire: wires.SpdyWire) -> None:
        await wire.send(OUTPUT, b"begun ")
        async for kind, data in wire.events():
            if kind == SIZE and data:
                self.sizes.append(data)
            elif kind == INPUT and data:
                await wire.send(OUTPUT, data.upper())
            else:
                break
        await wire.end(ENDED)

    async def _forward(self, session: Session) -> None:
        streams = [await session.accept(), await session.accept()]
        for stream in streams:
            if stream is not None and stream.headers["streamtype"] == "data":
                await stream.write(b"port " + stream.headers["port"].encode())
                await stream.finish()
        await session.accept()
        await session.close()


class Story:
    """An API server, an old kubelet, and a pod on its node."""

    def __init__(self, world: World, server: ApiServer, kubelet: OldKubelet) -> None:
        self.world = world
        self.server = server
        self.kubelet = kubelet

    async def make(self, path: str, obj: dict[str, Any]) -> None:
        body = json.dumps(obj).encode()
        code, answer = await self.world.ask(
            self.server, "POST", path, body=body, token="admin-token"
        )
        assert code == 201, answer

    @asynccontextmanager
    async def socket(
        self, path: str, protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Ask the server for a WebSocket."""
        headers = {"Authorization": "Bearer admin-token"}
        url = f"wss://127.0.0.1:{self.server.port}{PODS}/p/{path}"
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.ws_connect(url, protocols=(protocol,), ssl=self.world.context()) as socket,
        ):
            assert socket.protocol == protocol
            yield socket


@asynccontextmanager
async def story(world: World) -> AsyncIterator[Story]:
    kubelet, files = OldKubelet(), CertFiles(world.directory)
    server = await world.start(options(world.directory, kubelet_addresses=("InternalIP",)))
    files.pair("kubelet", "clients", Profile("kubelet"), SystemClock().unix_s())
    pair = KeyPair(str(files.cert("kubelet")), str(files.key_file("kubelet")))
    tls = ServerTls(pair, http2=False)
    http = HttpServer([Listener("https://127.0.0.1:0", "kubelet", tls)], kubelet.serve)
    await http.start()
    try:
        told = Story(world, server, kubelet)
        port = int(http.urls[0].rpartition(":")[2])
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await told.make("/api/v1/nodes", {"metadata": {"name": "n"}, "status": status})
        await told.make(ACCOUNTS, {"metadata": {"name": "default"}})
        containers = [{"name": name, "image": "i"} for name in ("c", "gone")]
        spec = {"nodeName": "n", "containers": containers}
        await told.make(PODS, {"metadata": {"name": "p"}, "spec": spec})
        yield told
    finally:
        await http.stop()


async def rest(socket: aiohttp.ClientWebSocketResponse) -> dict[int, bytes]:
    """Return what comes until the end, by channel."""
    found: dict[int, bytes] = {}
    async for message in socket:
        found[message.data[0]] = found.get(message.data[0], b"") + message.data[1:]
    assert socket.close_code == 1000, found
    return found


def test_a_command(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        async with story(world) as told:
            asked = "exec?container=c&command=x&stdin=true&stdout=true&tty=true"
            async with told.socket(asked, "v5.channel.k8s.io") as socket:
                await socket.send_bytes(b"\x04{}")
                await socket.send_bytes(b"\x00hello")
                await socket.send_bytes(b"\xff\x00")
                found = await rest(socket)
            assert found[1] == b"begun HELLO"
            assert json.loads(found[3]) == ENDED
            assert told.kubelet.seen == [("POST", "SPDY/3.1")]
            assert told.kubelet.sizes == [b"{}"]

    run(tmp_path, main)


def test_what_a_kubelet_refuses_is_reported(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        async with story(world) as told:
            asked = "exec?container=gone&command=x&stdout=true"
            async with told.socket(asked, "v5.channel.k8s.io") as socket:
                status = json.loads((await rest(socket))[3])
            text = "unable to upgrade connection: container not found"
            assert status["message"] == f"Internal error occurred: {text}"
            assert status["code"] == 500

    run(tmp_path, main)


class SocketPipe:
    """Bytes in a WebSocket of a client."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        message = await self._socket.receive()
        return message.data if message.type is aiohttp.WSMsgType.BINARY else b""

    async def write(self, data: bytes) -> None:
        await self._socket.send_bytes(data)

    def close(self) -> None:
        return


def test_a_port(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        async with (
            story(world) as told,
            told.socket("portforward?ports=80", "SPDY/3.1+portforward.k8s.io") as socket,
        ):
            session = Session(SocketPipe(socket), is_client=True)
            both = {"port": "80", "requestid": "0"}
            await session.open({"streamtype": "error", **both})
            data = await session.open({"streamtype": "data", **both})
            assert await data.read() == b"port 80"
            await session.close()
            assert told.kubelet.seen == [("POST", "SPDY/3.1")]

    run(tmp_path, main)


@pytest.mark.parametrize("protocol", ["binary.k8s.io", "base64.binary.k8s.io"])
def test_a_log_over_a_websocket(tmp_path: Path, protocol: str) -> None:
    """Messages, the first of them empty, and an orderly end."""

    async def main(world: World) -> None:
        async with (
            story(world) as told,
            told.socket("log?container=c", protocol) as socket,
        ):
            messages = [each async for each in socket]
            assert not messages[0].data
            if protocol == "binary.k8s.io":
                assert b"".join(each.data for each in messages) == b"one\ntwo\n"
            else:
                assert {each.type for each in messages} == {aiohttp.WSMsgType.TEXT}
                assert b"".join(b64decode(each.data) for each in messages) == b"one\ntwo\n"
            assert socket.close_code == 1000

    run(tmp_path, main)


def test_a_log_is_closed_when_the_client_closes_its_websocket(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        async with story(world) as told:
            async with told.socket("log?container=c&follow=true", "binary.k8s.io") as socket:
                assert await socket.receive_bytes() == b""
                assert await socket.receive_bytes() == b"one\n"
            async with asyncio.timeout(10):
                await told.kubelet.log_closed.wait()

    run(tmp_path, main)


def test_a_log_in_an_unknown_protocol_is_refused(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        async with story(world) as told:
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                async with told.socket("log?container=c", "v4.channel.k8s.io"):
                    pass
            assert caught.value.status == 403

    run(tmp_path, main)


def test_a_kubelets_refusal_keeps_its_headers(tmp_path: Path) -> None:
    """A client learns from them which protocols the kubelet speaks."""

    async def main(world: World) -> None:
        async with story(world) as told:
            url = f"https://127.0.0.1:{told.server.port}{PODS}/p/exec?container=c&command=x"
            headers = {
                "Authorization": "Bearer admin-token",
                "Connection": "Upgrade",
                "Upgrade": "SPDY/3.1",
                "X-Stream-Protocol-Version": "v9.channel.k8s.io",
            }
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.post(url, ssl=world.context()) as answer,
            ):
                assert answer.status == 403
                accepted = answer.headers.getall("X-Accepted-Stream-Protocol-Versions")
                assert tuple(accepted) == upgrades.SPDY_COMMANDS
                assert "unable to negotiate protocol" in await answer.text()

    run(tmp_path, main)


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io"])
def test_what_older_clients_ask_for_is_passed_on(tmp_path: Path, protocol: str) -> None:
    async def main(world: World) -> None:
        async with story(world) as told:
            with pytest.raises(aiohttp.WSServerHandshakeError):
                async with told.socket("exec?container=c&command=x&stdout=true", protocol):
                    pass
            assert told.kubelet.seen == [("GET", "websocket")]

    run(tmp_path, main)
