"""The socket at which plugins register; gRPC, which is large, is loaded for the first of them.

plugin ─► kubelet.sock ─► .grpc.sock, which is opened with the first connection

registration = RegistrationSocket(directory, open_server, logger)
await registration.start();  …;  await registration.stop()
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.device_plugins.names import GRPC_SOCKET, SOCKET
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.net.relay import copy_stream

CONNECTIONS_MAX: Final = 100
_PATH_MAX: Final = 107
_CONNECT_S: Final = 30.0


class RegistrationSocket:
    """Passes plugins on to the server that registers them; used on one loop."""

    def __init__(
        self, directory: Path, open_server: Callable[[], Awaitable[None]], logger: Logger
    ) -> None:
        """open_server: has the server answer at GRPC_SOCKET; if it is there already, does nothing.

        It may raise ConfigError.
        """
        self._directory = directory
        self._open_server = open_server
        self._logger = logger
        self._opening = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    async def start(self) -> None:
        """Listen; what an earlier node left behind registers anew when it sees the new socket.

        Raises ConfigError if the socket cannot be made.
        """
        path = self._directory / SOCKET
        if len(str(path)) > _PATH_MAX:
            text = "device plugins cannot register: the path of their socket is too long"
            self._logger.warning(text, path=str(path), max=_PATH_MAX)
            return
        try:
            self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._begin, path)
        except OSError as error:
            raise ConfigError(f"device plugins cannot register at {path}: {error}") from error

    async def stop(self) -> None:
        """Stop listening, and end all connections."""
        self._is_stopped = True
        if self._server is not None:
            self._server.close()
        for each in self._connections:
            each.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_stopped:  # it was accepted just before
            writer.transport.abort()
            return
        if len(self._connections) >= CONNECTIONS_MAX:
            self._logger.warning("closed a connection of a device plugin", limit=CONNECTIONS_MAX)
            writer.transport.abort()
            return
        work = self._pass_on(reader, writer)
        task = asyncio.get_running_loop().create_task(work, name="a device plugin registers")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        both = [writer]
        try:
            async with self._opening:
                await self._open_server()
            async with asyncio.timeout(_CONNECT_S):
                answers, requests = await asyncio.open_unix_connection(
                    self._directory / GRPC_SOCKET
                )
            both.append(requests)
            await asyncio.gather(copy_stream(reader, requests), copy_stream(answers, writer))
            for each in both:
                each.close()  # once all is sent
        except (ConfigError, OSError, TimeoutError) as error:
            self._logger.warning("a device plugin cannot register", reason=str(error))
        finally:
            for each in both:
                if not each.is_closing():
                    each.transport.abort()
