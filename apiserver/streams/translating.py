"""Translation for kubelets without the WebSocket protocols of clients (all before 1.36).

    client ── WebSocket v5 ── this server ── SPDY/3.1, v4 ── kubelet       exec, attach
    client ── SPDY/3.1 within a WebSocket ── SPDY/3.1 ── kubelet           port-forward

For commands the streams are copied individually, for port-forward the bytes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from urllib.parse import parse_qs

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.streams.backends import DialError
from kvstack.apiserver.verbs.results import Connecting
from kvstack.component.http.serving.request import ClientGoneError, Request
from kvstack.component.streams import websocket
from kvstack.component.streams.channels import (
    END,
    ERRORS,
    INPUT,
    OUTPUT,
    SIZE,
    Wants,
    WebSocketWire,
    failed_status,
)
from kvstack.component.streams.spdy.pipes import Pipe
from kvstack.component.streams.spdy.session import Session, SessionOverError, Stream

Dial: TypeAlias = Callable[[str], Awaitable[Pipe]]
"""Upgrades a connection to the kubelet to SPDY/3.1 with a protocol; raises DialError,
RefusedError."""

V5: Final = "v5.channel.k8s.io"
V4: Final = "v4.channel.k8s.io"
TUNNEL: Final = "SPDY/3.1+portforward.k8s.io"
PORT_FORWARD: Final = "portforward.k8s.io"
_TYPES: Final = {END: "error", INPUT: "stdin", OUTPUT: "stdout", ERRORS: "stderr", SIZE: "resize"}


class RefusedError(Exception):
    """A kubelet refused the upgrade."""

    def __init__(self, code: int, text: str) -> None:
        """code, text: of its answer."""
        super().__init__(text)
        self.code = code
        self.text = text


def is_needed(connecting: Connecting, request: Request) -> bool:
    """Return whether a client's protocol is not supported by the kubelet."""
    if connecting.takes_websockets or not websocket.is_asked(request):
        return False
    wanted = TUNNEL if _is_port_forward(connecting) else V5
    return wanted in websocket.offered(request)


async def translate(connecting: Connecting, request: Request, reply: Reply, dial: Dial) -> None:
    """Serve a stream; raises DialError, RefusedError."""
    if _is_port_forward(connecting):
        await _tunnel(request, reply, await dial(PORT_FORWARD))
        return
    wants = _wants(connecting)
    wire = WebSocketWire(websocket.accept(request, reply, V5), V5)
    try:
        await wire.begin(wants)
        await _command(connecting, wire, wants, dial)
        await wire.part()
    except ClientGoneError:
        await wire.drop()


def _is_port_forward(connecting: Connecting) -> bool:
    return connecting.target.startswith("/portForward/")


def _wants(connecting: Connecting) -> Wants:
    query = parse_qs(connecting.target.partition("?")[2])
    given = [query.get(name, [""])[0] == "1" for name in ("input", "output", "error", "tty")]
    return Wants(*given)


async def _command(connecting: Connecting, wire: WebSocketWire, wants: Wants, dial: Dial) -> None:
    """Copy the streams of a command; raises ClientGoneError."""
    try:
        session = Session(await dial(V4), is_client=True)
    except RefusedError as error:
        await wire.end(failed_status(f"unable to upgrade connection: {error.text}"))
        return
    except DialError as error:
        url = f"https://{connecting.authority}{connecting.target}"
        await wire.end(failed_status(f'error sending request: Post "{url}": {error}'))
        return
    try:
        streams = await _open(session, wants)
        await wire.end(await _carry(wire, streams))
    except SessionOverError as error:
        await wire.end(failed_status(str(error)))
    finally:
        await session.close()


async def _open(session: Session, wants: Wants) -> dict[int, Stream]:
    """Open the requested streams in order; raises SessionOverError."""
    wanted = [END]
    wanted += [INPUT] if wants.input else []
    wanted += [OUTPUT] if wants.output else []
    wanted += [ERRORS] if wants.errors and not wants.tty else []
    wanted += [SIZE] if wants.tty else []
    return {kind: await session.open({"streamtype": _TYPES[kind]}) for kind in wanted}


async def _carry(wire: WebSocketWire, streams: dict[int, Stream]) -> Object:
    """Copy in both directions until the command has ended; return its Status.

    Raises ClientGoneError, SessionOverError.
    """
    coming = asyncio.create_task(_to_kubelet(wire, streams), name="streams to a kubelet")
    going = asyncio.create_task(_to_client(wire, streams), name="streams from a kubelet")
    try:
        await asyncio.wait((coming, going), return_when=asyncio.FIRST_COMPLETED)
        if not going.done():
            coming.result()
            raise ClientGoneError
        return going.result()
    finally:
        for task in (coming, going):
            task.cancel()
        await asyncio.gather(coming, going, return_exceptions=True)


async def _to_kubelet(wire: WebSocketWire, streams: dict[int, Stream]) -> None:
    """Copy input and terminal sizes until the client leaves."""
    async for kind, data in wire.events():
        stream = streams.get(kind)
        if stream is None:
            continue
        if data is None:
            await stream.finish()
        else:
            await stream.write(data)


async def _to_client(wire: WebSocketWire, streams: dict[int, Stream]) -> Object:
    """Copy all output; return the Status of the command."""

    async def carry(kind: int) -> bytes:
        while data := await streams[kind].read():
            await wire.send(kind, data)
        return b""

    ending = asyncio.create_task(_whole(streams[END]), name="end of a command")
    tasks = [ending]
    tasks += [
        asyncio.create_task(carry(kind), name="output of a command")
        for kind in (OUTPUT, ERRORS)
        if kind in streams
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    try:
        status: Object = orjson.loads(ending.result())
    except ValueError:
        return failed_status("the kubelet did not report how the command ended")
    return status


async def _whole(stream: Stream) -> bytes:
    found = b""
    while data := await stream.read():
        found += data
    return found


async def _tunnel(request: Request, reply: Reply, backend: Pipe) -> None:
    """Copy the bytes of SPDY/3.1 until one side ends."""
    client = websocket.TunnelPipe(websocket.accept(request, reply, TUNNEL))

    async def carry(source: Pipe, target: Pipe) -> None:
        try:
            while data := await source.read():
                await target.write(data)
        except OSError:
            return  # one side is gone

    both = (
        asyncio.create_task(carry(client, backend), name="tunnel to a kubelet"),
        asyncio.create_task(carry(backend, client), name="tunnel from a kubelet"),
    )
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        client.close()
        backend.close()
