"""Relaying TCP: for each accepted connection one to an endpoint, with the bytes copied both ways.

    client ──► accept ──► pick ──► dial ──┬─ fails: inactive, pick again; none left: closed
                                          └─ copy both ways; when either side ends, both do

Inactive endpoints are dialled again every interval. A copy reads only after it has written, so a
slow receiver slows its sender down and no bytes accumulate.
"""

import asyncio
import contextlib
import os
import socket
from typing import Final

from kvstack.component.logger import Logger
from kvstack.component.net.accepting import accept_connections
from kvstore.proxy.gateway.remotes import Remote, Remotes
from kvstore.wire.loggable import duration_text

CONNECTIONS_MAX: Final = 65_536
DIAL_S: Final = 10.0
_COPY_BYTES: Final = 64 << 10
_DEFAULT_INTERVAL_S: Final = 300.0


class TcpRelay:
    """Relays connections until cancelled."""

    def __init__(
        self, listening: socket.socket, remotes: Remotes, interval_s: float, logger: Logger
    ) -> None:
        """Relay a listening socket's connections; interval_s 0 means five minutes, as in etcd."""
        self._listening = listening
        self._remotes = remotes
        self._interval_s = interval_s or _DEFAULT_INTERVAL_S
        self._interval = duration_text(int(self._interval_s * 1e9))
        self._logger = logger
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept and relay until cancelled."""
        addresses = [each.address for each in self._remotes.all]
        self._logger.info("ready to proxy client requests", endpoints=addresses)
        self._begin(self._monitor(), "monitor")
        try:
            await accept_connections(
                self._listening,
                lambda incoming: self._begin(self._serve(incoming), "relay"),
                lambda: (len(self._tasks), CONNECTIONS_MAX),
                self._logger,
            )
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, coroutine: "asyncio._CoroutineLike[None]", name: str) -> None:
        task = asyncio.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, incoming: socket.socket) -> None:
        with incoming:
            outgoing = await self._dial_any()
            if outgoing is None:
                return
            with outgoing:
                for each in (incoming, outgoing):
                    each.setblocking(False)
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                copies = [
                    asyncio.create_task(_copy(incoming, outgoing)),
                    asyncio.create_task(_copy(outgoing, incoming)),
                ]
                try:
                    await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for each_copy in copies:
                        each_copy.cancel()
                    await asyncio.gather(*copies, return_exceptions=True)

    async def _dial_any(self) -> socket.socket | None:
        while (remote := self._remotes.pick()) is not None:
            try:
                return await _dial(remote)
            except OSError as error:
                remote.is_active = False
                self._logger.warning(
                    "deactivated endpoint",
                    address=remote.address,
                    interval=self._interval,
                    error=_reason(remote.address, error),
                )
        return None

    async def _monitor(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            inactive = [each for each in self._remotes.all if not each.is_active]
            await asyncio.gather(*[self._try_again(each) for each in inactive])

    async def _try_again(self, remote: Remote) -> None:
        try:
            (await _dial(remote)).close()
        except OSError as error:
            self._logger.warning(
                "failed to activate endpoint (stay inactive for another interval)",
                address=remote.address,
                interval=self._interval,
                error=_reason(remote.address, error),
            )
        else:
            remote.is_active = True
            self._logger.info("activated", address=remote.address)


async def _dial(remote: Remote) -> socket.socket:
    """Connect to the first of an endpoint's addresses that accepts; OSError if none does."""
    loop = asyncio.get_running_loop()
    host = remote.service.target.rstrip(".")
    found = await loop.getaddrinfo(host, remote.service.port, type=socket.SOCK_STREAM)
    last_error = OSError(f"{host} has no address")
    for family, kind, protocol, _, name in found:
        raw = socket.socket(family, kind, protocol)
        raw.setblocking(False)
        try:
            async with asyncio.timeout(DIAL_S):
                await loop.sock_connect(raw, name)
        except OSError as error:  # a timeout is one
            raw.close()
            last_error = error
        except BaseException:
            raw.close()
            raise
        else:
            return raw
    raise last_error


async def _copy(source: socket.socket, sink: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):  # a broken connection ends the relay, whatever the reason
        while data := await loop.sock_recv(source, _COPY_BYTES):
            await loop.sock_sendall(sink, data)


def _reason(address: str, error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"dial tcp {address}: i/o timeout"
    if isinstance(error, socket.gaierror) or not error.errno:
        return f"dial tcp {address}: {error.strerror or error}"
    return f"dial tcp {address}: connect: {os.strerror(error.errno).lower()}"
