"""Queries in datagrams: each wake-up takes some, so that others on the loop have their turn."""

import asyncio
import contextlib
import socket
from typing import Final

from kvstack.agents.dns.clients import Clients
from kvstack.agents.dns.faults import Faults
from kvstack.agents.dns.query import Query
from kvstack.agents.dns.responder import Responder
from kvstack.agents.dns.traffic import UDP, Traffic
from kvstack.component.clock import Clock

AT_ONCE_MAX: Final = 64
"""Datagrams of one wake-up."""
WAITING_MAX: Final = 2000
"""Queries whose answers others have to give; more are dropped."""
DATAGRAM_BYTES_MAX: Final = 4096


class UdpPort:
    """One datagram socket."""

    def __init__(
        self,
        bound: socket.socket,
        responder: Responder,
        clients: Clients,
        traffic: Traffic,
        faults: Faults,
        clock: Clock,
    ) -> None:
        """The socket must be bound and non-blocking."""
        self._socket = bound
        self._responder = responder
        self._clients = clients
        self._traffic = traffic
        self._faults = faults
        self._clock = clock
        self._family = "2" if bound.family == socket.AF_INET6 else "1"
        self._tasks: set[asyncio.Task[None]] = set()
        self.dropped = 0

    def start(self) -> None:
        """Start answering."""
        asyncio.get_running_loop().add_reader(self._socket, self._take)

    async def stop(self) -> None:
        """Stop answering."""
        asyncio.get_running_loop().remove_reader(self._socket)
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.close()

    def _take(self) -> None:
        began_s = self._clock.monotonic_s()
        self._clients.begin(began_s)
        count = 0
        receive, admits = self._socket.recvfrom, self._clients.admits
        answer_of = self._responder.at_once
        for _ in range(AT_ONCE_MAX):
            try:
                data, sender = receive(DATAGRAM_BYTES_MAX)
            except OSError:  # none is waiting, or an earlier answer did not arrive
                break
            if not admits(sender[0]):
                continue
            try:
                found = answer_of(data, sender[0])
            except Exception as error:  # noqa: BLE001 - the queries behind it are to be answered
                found = self._fault(data, error)
            if isinstance(found, bytes):
                self._send(data, found, sender)
                count += 1
            elif found is not None:
                self._wait(data, found, sender)
        if count:
            spent_s = self._clock.monotonic_s() - began_s
            self._traffic.seconds.add(spent_s / count, count)

    def _send(self, data: bytes, answer: bytes, sender: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):  # a client that is gone, or whose buffer is full
            self._socket.sendto(answer, sender)
        self._traffic.count(UDP, self._family, data, answer)

    def _wait(self, data: bytes, query: Query, sender: tuple[str, int]) -> None:
        if len(self._tasks) >= WAITING_MAX:
            self.dropped += 1
            return
        work = self._answer_later(data, query, sender)
        task = asyncio.get_running_loop().create_task(work, name="DNS query")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_later(self, data: bytes, query: Query, sender: tuple[str, int]) -> None:
        began_s = self._clock.monotonic_s()
        try:
            answer = await self._responder.later(query, sender[0])
        except Exception as error:  # noqa: BLE001 - it is counted, and its client answered
            failure = self._fault(data, error)
            if failure is None:
                return
            answer = failure
        self._send(data, answer, sender)
        self._traffic.seconds.add(self._clock.monotonic_s() - began_s)

    def _fault(self, data: bytes, error: Exception) -> bytes | None:
        return self._faults.answer(data, error, is_recursing=self._responder.is_recursing)
