"""Relays of TCP connections and UDP packets to endpoints, in this process.

    relay = TcpRelay(balancer, room); await relay.listen("127.0.0.1", 30080)

If an endpoint does not accept a connection, the next one is tried. In UDP each client has a socket
of its own, until nothing has been received for a while.
"""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, cast

from typing_extensions import override

_PIECE_BYTES: Final = 64 << 10
_DIAL_S: Final = (0.25, 0.5, 1.0, 2.0)
CONNECTIONS_MAX: Final = 4_000
"""Limit on the connections of all relays of a process; more are refused."""
CLIENTS_MAX: Final = 500
"""Limit on the clients of one UDP port; packets of others are dropped."""
_IDLE_S: Final = 10.0
_RESET: Final = struct.pack("ii", 1, 0)


class Target(Protocol):
    """The destination of a relay."""

    @property
    def ip(self) -> str:
        """The IP address."""
        ...

    @property
    def port(self) -> int:
        """The port number."""
        ...


T = TypeVar("T", bound=Target)


class Balancing(Protocol[T]):
    """Chooses the endpoints for one port."""

    def next(self, client: str, now_s: float) -> list[T]:
        """Return the endpoints for a client, in the order in which to try them."""
        ...

    def took(self, client: str, endpoint: T, now_s: float) -> None:
        """Note that a client was connected to an endpoint."""
        ...


class Destination(NamedTuple):
    """An address and a port."""

    ip: str
    port: int


class Single:
    """Always chooses one destination."""

    def __init__(self, destination: Destination) -> None:
        """Take the destination."""
        self._destination = destination

    def next(self, client: str, now_s: float) -> list[Destination]:
        """Return the destination."""
        return [self._destination]

    def took(self, client: str, endpoint: Destination, now_s: float) -> None:
        """Do nothing: there is no affinity."""


class Relay(Protocol):
    """The relay of one address and port."""

    async def listen(self, host: str, port: int) -> None:
        """Listen on an address; raises OSError."""
        ...

    async def take(self, own: socket.socket) -> None:
        """Listen on a bound socket, which the relay then owns."""
        ...

    def close(self) -> None:
        """Stop listening; open connections continue."""
        ...


class Room:
    """Counts the open connections of a process against the limit."""

    def __init__(self) -> None:
        """Start with no connections."""
        self.used = 0


class TcpRelay(Relay, Generic[T]):
    """Relays TCP connections."""

    def __init__(
        self, balancer: Balancing[T], room: Room, may: Callable[[str], bool] = lambda client: True
    ) -> None:
        """may: returns whether a client's address is allowed."""
        self._balancer = balancer
        self._room = room
        self._may = may
        self._server: asyncio.Server | None = None

    @override
    async def listen(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, host, port, limit=_PIECE_BYTES)

    @override
    async def take(self, own: socket.socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=own, limit=_PIECE_BYTES)

    @override
    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = writer.get_extra_info("peername")[0]
        if self._room.used >= CONNECTIONS_MAX or not self._may(client):
            _reset(writer)
            return
        self._room.used += 1
        both: list[asyncio.StreamWriter] = [writer]
        try:
            found = await self._dial(client)
            if found is None:
                _reset(writer)
                return
            other_reader, other_writer = found
            both.append(other_writer)
            await asyncio.gather(
                copy_stream(reader, other_writer), copy_stream(other_reader, writer)
            )
            for each in both:
                each.close()
        finally:
            self._room.used -= 1
            for each in both:
                if not each.is_closing():  # the process ends
                    each.transport.abort()

    async def _dial(self, client: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Connect to the first endpoint that accepts; None if none does."""
        now_s = time.monotonic()
        for endpoint, wait_s in zip(self._balancer.next(client, now_s), _DIAL_S, strict=False):
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(wait_s):
                    found = await asyncio.open_connection(
                        endpoint.ip, endpoint.port, limit=_PIECE_BYTES
                    )
                self._balancer.took(client, endpoint, now_s)
                return found
        return None


async def copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction; a half-close is copied, too, and an error ends both."""
    try:
        while data := await reader.read(_PIECE_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


class UdpRelay(Relay, asyncio.DatagramProtocol, Generic[T]):
    """Relays UDP packets."""

    def __init__(
        self, balancer: Balancing[T], may: Callable[[str], bool] = lambda client: True
    ) -> None:
        """may: returns whether a client's address is allowed."""
        self._balancer = balancer
        self._may = may
        self._own: asyncio.DatagramTransport | None = None
        self._clients: dict[tuple[str, int], _Client | None] = {}
        self._opening: set[asyncio.Task[None]] = set()

    @override
    async def listen(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        self._own, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(host, port))

    @override
    async def take(self, own: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._own, _ = await loop.create_datagram_endpoint(lambda: self, sock=own)

    @override
    def close(self) -> None:
        if self._own is not None:
            self._own.close()
        for each in list(self._clients.values()):
            if each is not None:
                each.end()

    @override
    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        known = self._clients.get(addr)
        if known is not None:
            known.send(data)
        elif addr in self._clients or not self._may(addr[0]):
            return
        elif len(self._clients) < CLIENTS_MAX:
            self._clients[addr] = None
            task = asyncio.get_running_loop().create_task(self._open(addr, data))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, addr: tuple[str, int], data: bytes) -> None:
        now_s = time.monotonic()
        loop = asyncio.get_running_loop()
        for endpoint in self._balancer.next(addr[0], now_s)[:1]:
            try:
                client = await self._connect(loop, endpoint, addr)
            except OSError:
                break
            self._balancer.took(addr[0], endpoint, now_s)
            self._clients[addr] = client
            client.send(data)
            return
        del self._clients[addr]

    async def _connect(
        self, loop: asyncio.AbstractEventLoop, endpoint: T, addr: tuple[str, int]
    ) -> "_Client":
        own = self._own
        assert own is not None, "packets arrive only while it listens"
        _, client = await loop.create_datagram_endpoint(
            lambda: _Client(own, addr, lambda: self._clients.pop(addr, None)),
            remote_addr=(endpoint.ip, endpoint.port),
        )
        return client


class _Client(asyncio.DatagramProtocol):
    """The socket to an endpoint, for one client."""

    def __init__(
        self,
        back: asyncio.DatagramTransport,
        addr: tuple[str, int],
        on_end: Callable[[], object],
    ) -> None:
        self._back = back
        self._addr = addr
        self._on_end = on_end
        self._transport: asyncio.DatagramTransport | None = None
        self._timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # it is not a subclass
        self._wait()

    @override
    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._wait()
        if not self._back.is_closing():
            self._back.sendto(data, self._addr)

    @override
    def error_received(self, exc: Exception) -> None:
        self.end()  # the endpoint does not listen: the next packet chooses again

    def send(self, data: bytes) -> None:
        """Send a packet to the endpoint."""
        self._wait()
        if self._transport is not None:
            self._transport.sendto(data)

    def end(self) -> None:
        """Close the socket."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.close()
        self._on_end()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_IDLE_S, self.end)
