"""Queries over TCP: two bytes of length before each message, several on one connection.

A connection ends when nothing comes, when what comes is too long or too slow, or when its client
takes no answers. There are so many in all, and so many of one client.
"""

import asyncio
import socket
from collections import Counter
from typing import Final

from kvstack.agents.dns.clients import Clients
from kvstack.agents.dns.faults import Faults
from kvstack.agents.dns.query import HEADER_BYTES, Query
from kvstack.agents.dns.responder import Responder
from kvstack.agents.dns.traffic import TCP, Traffic
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.net.accepting import accept_connections
from kvstack.component.net.listening import peer_host

CONNECTIONS_MAX: Final = 512
OF_CLIENT_MAX: Final = 64
IDLE_S: Final = 10.0
"""Between two queries."""
READ_S: Final = 5.0
"""The timeout of reading a query that has begun, and of writing an answer."""
QUERY_BYTES_MAX: Final = 4096
_LENGTH_BYTES: Final = 2


class TcpPort:
    """One socket that listens."""

    def __init__(
        self,
        listening: socket.socket,
        responder: Responder,
        clients: Clients,
        traffic: Traffic,
        faults: Faults,
        clock: Clock,
        logger: Logger,
        *,
        idle_s: float = IDLE_S,
        read_s: float = READ_S,
    ) -> None:
        self._listening = listening
        self._responder = responder
        self._clients = clients
        self._traffic = traffic
        self._faults = faults
        self._clock = clock
        self._logger = logger
        self._idle_s, self._read_s = idle_s, read_s
        self._family = "2" if listening.family == socket.AF_INET6 else "1"
        self._open: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Accept connections from now on."""
        work = accept_connections(self._listening, self._begin, self._count, self._logger)
        self._accepting = asyncio.get_running_loop().create_task(work, name="DNS over TCP")

    async def stop(self) -> None:
        """End all connections."""
        tasks = [*self._tasks, *([self._accepting] if self._accepting else [])]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.close()

    def _count(self) -> tuple[int, int]:
        return len(self._tasks), CONNECTIONS_MAX

    def _begin(self, connection: socket.socket) -> None:
        try:
            host = peer_host(connection.getpeername())
        except OSError:  # it is gone already
            connection.close()
            return
        if not self._clients.allows(host) or self._open[host] >= OF_CLIENT_MAX:
            connection.close()
            return
        self._open[host] += 1
        task = asyncio.get_running_loop().create_task(self._serve(connection, host))
        self._tasks.add(task)

        def ended(done: asyncio.Task[None]) -> None:
            self._tasks.discard(done)
            self._open[host] -= 1
            if not self._open[host]:
                del self._open[host]

        task.add_done_callback(ended)

    async def _serve(self, connection: socket.socket, host: str) -> None:
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection, limit=QUERY_BYTES_MAX)
        try:
            while await self._serve_one(reader, writer, host):
                pass
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            pass  # the client has gone, or will not go on
        finally:
            writer.transport.abort()

    async def _serve_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> bool:
        """Answer one query; return whether the connection goes on."""
        async with asyncio.timeout(self._idle_s):
            head = await reader.readexactly(_LENGTH_BYTES)
        length = int.from_bytes(head, "big")
        if not HEADER_BYTES <= length <= QUERY_BYTES_MAX:
            return False
        async with asyncio.timeout(self._read_s):
            data = await reader.readexactly(length)
        began_s = self._clock.monotonic_s()
        self._clients.begin(began_s)
        if not self._clients.admits(host):
            return False
        answer = await self._answer(data, host)
        if answer is None:
            return False
        writer.write(len(answer).to_bytes(_LENGTH_BYTES, "big") + answer)
        self._traffic.count(TCP, self._family, data, answer)
        self._traffic.seconds.add(self._clock.monotonic_s() - began_s)
        async with asyncio.timeout(self._read_s):
            await writer.drain()
        await asyncio.sleep(0)  # one that sends without end lets others have their turn
        return True

    async def _answer(self, data: bytes, host: str) -> bytes | None:
        responder = self._responder
        try:
            answer = responder.at_once(data, host, is_tcp=True)
            if isinstance(answer, Query):
                answer = await responder.later(answer, host, is_tcp=True)
        except Exception as error:  # noqa: BLE001 - it is counted, and its client answered
            return self._faults.answer(data, error, is_recursing=responder.is_recursing)
        return answer
