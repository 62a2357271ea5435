"""Relaying TCP: each accepted connection becomes one to an endpoint, bytes both ways.

    client ──► accept ──► pick ──► dial ──┬─ fails: set aside, pick again; none left: closed
                                          └─ copy both ways; when either side ends, both do

Endpoints that were set aside are dialled again every interval. A copy reads on only when what it
read is taken, so a slow side holds the other back and nothing piles up.
"""

import asyncio
import contextlib
import os
import random
import socket
from typing import Final

from kvstore.logger import Logger
from kvstore.proxy.gateway.remotes import Remote, Remotes
from kvstore.wire.loggable import duration_text

CONNECTIONS_MAX: Final = 65_536
DIAL_S: Final = 10.0
_COPY_BYTES: Final = 64 << 10
_DEFAULT_INTERVAL_S: Final = 300.0
_ACCEPT_AGAIN_S: Final = 0.2


class TcpRelay:
    """Relays connections until cancelled."""

    def __init__(
        self, listening: socket.socket, remotes: Remotes, interval_s: float, logger: Logger
    ) -> None:
        """Take a listening socket; interval_s of 0 means five minutes, as in etcd."""
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
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        self._begin(self._monitor(), "monitor")
        try:
            while True:
                try:
                    incoming, _ = await loop.sock_accept(self._listening)
                except OSError as error:  # out of files, say: those that are open end some time
                    self._logger.warning("cannot accept a connection", error=str(error))
                    await asyncio.sleep(_ACCEPT_AGAIN_S)
                    continue
                if len(self._tasks) >= CONNECTIONS_MAX:
                    self._logger.warning(
                        "closed a connection: too many are open", limit=CONNECTIONS_MAX
                    )
                    incoming.close()
                    continue
                self._begin(self._serve(incoming), "relay")
        finally:
            self._listening.close()
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
    """Connect to an endpoint, to the first of its addresses that answers; OSError if none does."""
    loop = asyncio.get_running_loop()
    host = remote.service.target.rstrip(".")
    found = await loop.getaddrinfo(host, remote.service.port, type=socket.SOCK_STREAM)
    last = OSError(f"{host} has no address")
    for family, kind, protocol, _, name in found:
        raw = socket.socket(family, kind, protocol)
        raw.setblocking(False)
        try:
            async with asyncio.timeout(DIAL_S):
                await loop.sock_connect(raw, name)
        except OSError as error:  # a timeout is one
            raw.close()
            last = error
        except BaseException:
            raw.close()
            raise
        else:
            return raw
    raise last


async def _copy(source: socket.socket, sink: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):  # that a side is gone ends the relay, whatever the reason
        while data := await loop.sock_recv(source, _COPY_BYTES):
            await loop.sock_sendall(sink, data)


def _reason(address: str, error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"dial tcp {address}: i/o timeout"
    if isinstance(error, socket.gaierror) or not error.errno:
        return f"dial tcp {address}: {error.strerror or error}"
    return f"dial tcp {address}: connect: {os.strerror(error.errno).lower()}"


def new_dice() -> random.Random:
    """Return the source of chance of a gateway."""
    return random.SystemRandom()
