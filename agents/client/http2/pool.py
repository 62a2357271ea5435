"""The HTTP/2 connections to one server: one, and more when it has no room for another request.

pool = Http2Pool(ServerAddress("127.0.0.1", 6443, "127.0.0.1"), context)
connection = pool.ready() or await pool.open()       None: the server does not support HTTP/2
"""

import asyncio
import ssl
from typing import Final, NamedTuple

from kvstack.agents.client.http2.connection import Http2Connection

_PROTOCOL: Final = "h2"
_PROTOCOLS: Final = (_PROTOCOL, "http/1.1")


class ServerAddress(NamedTuple):
    """The address of a server."""

    host: str
    port: int
    name: str
    """The name that its certificate must have."""
    authority: str
    """Host and port as requests name them."""


class Http2Pool:
    """The connections to one server."""

    def __init__(self, address: ServerAddress, context: ssl.SSLContext) -> None:
        """The context is changed: it offers HTTP/2."""
        self._address = address
        self._context = context
        context.set_alpn_protocols(_PROTOCOLS)
        self._connections: list[Http2Connection] = []
        self._is_opening = asyncio.Lock()

    def ready(self) -> Http2Connection | None:
        """Return a connection that has room for a request, if there is one."""
        for connection in self._connections:
            if connection.has_room:
                return connection
        return None

    async def open(self) -> Http2Connection | None:
        """Return a connection with room, a new one if need be; raises OSError, ssl.SSLError.

        None: the server supports HTTP/1.1 only.
        """
        async with self._is_opening:
            found = self.ready()
            if found is not None:
                return found
            address = self._address
            transport, connection = await asyncio.get_running_loop().create_connection(
                lambda: Http2Connection(address.authority, self._lost),
                address.host,
                address.port,
                ssl=self._context,
                server_hostname=address.name,
            )
            chosen: ssl.SSLObject = transport.get_extra_info("ssl_object")
            if chosen.selected_alpn_protocol() != _PROTOCOL:
                connection.close()
                return None
            self._connections.append(connection)
            return connection

    def close(self) -> None:
        """Give up all connections."""
        for connection in list(self._connections):
            connection.close()

    def _lost(self, connection: Http2Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
