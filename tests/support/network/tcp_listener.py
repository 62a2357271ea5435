"""A TCP server of a test, on the test's own loop, that leaves nothing behind when it has ended.

async def serve(reader, writer): ...       one task a connection; the end of it is the connection's

async with TcpListener(serve) as listener: ...     listener.port, listener.endpoint

`asyncio.start_server` does leave something behind: a connection that arrives while it is closed is
accepted and gets half a transport, which nobody can close.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Self

from typing_extensions import override

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_LEFT = (OSError, asyncio.IncompleteReadError)
"""What `serve` may meet because the client has gone."""


class TcpListener:
    """Gives each connection to `serve`, and closes it afterwards.

    What `serve` raises, but for errors of a client that has gone, is raised by `close`.
    """

    def __init__(
        self,
        serve: Serve,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._serve = serve
        self._address = (host, port)
        self._tls = tls
        self._socket: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._errors: list[BaseException] = []
        self.connections = 0

    @property
    def port(self) -> int:
        return self._address[1]

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def open(self) -> None:
        """Listen; after `close` on the same port again."""
        assert self._socket is None
        self._socket = socket.create_server(self._address, backlog=128)
        self._socket.setblocking(False)
        self._address = (self._address[0], self._socket.getsockname()[1])
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    async def close(self) -> None:
        """Listen no more, and reset every connection."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        errors, self._errors = self._errors, []
        if errors:
            raise BaseExceptionGroup("errors of the connections of a test's server", errors)

    def _accept(self) -> None:
        while self._socket is not None:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return
            self.connections += 1
            connection.setblocking(False)
            task = asyncio.create_task(self._run(connection))
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, connection))

    def _ended(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        connection.close()  # by its transport already, unless the task never began
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.append(error)

    async def _run(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = _Protocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls
            )
        except OSError:
            return  # the client and TLS did not agree
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            await self._serve(reader, writer)
            if not writer.is_closing():
                writer.close()
            await protocol.lost.wait()
        except _LEFT:
            pass
        finally:
            if not protocol.lost.is_set():
                transport.abort()
                await protocol.lost.wait()


class _Protocol(asyncio.StreamReaderProtocol):
    """Tells when the connection is no more."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.lost = asyncio.Event()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set()
