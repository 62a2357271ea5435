"""New connections: addresses in turn, then TLS.

sock = await dial([("10.0.0.7", 8443)], context, "hook.a.svc")     raises OSError

Several addresses are tried as browsers do, each a quarter of a second after the one before.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Final

import aiohappyeyeballs

_NEXT_S: Final = 0.25

Address = tuple[str, int]


async def addresses_of(host: str, port: int) -> list[Address]:
    """Return what the system knows a host by; raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(str(each[4][0]), int(each[4][1])) for each in found]


async def dial(
    addresses: Sequence[Address], context: ssl.SSLContext | None, name: str
) -> socket.socket:
    """Return a connected socket that does not block; raises OSError.

    context: of TLS; None: without. name: that the certificate must be for.
    """
    sock = await aiohappyeyeballs.start_connection(
        [_info(*each) for each in addresses], happy_eyeballs_delay=_NEXT_S, interleave=1
    )
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock if context is None else await _secured(sock, context, name)


def _info(host: str, port: int) -> aiohappyeyeballs.AddrInfoType:
    if ":" in host:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)


async def _secured(sock: socket.socket, context: ssl.SSLContext, name: str) -> socket.socket:
    try:
        tls = context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
    except BaseException:
        sock.close()
        raise
    try:
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                await _until(tls, is_reading=True)
            except ssl.SSLWantWriteError:
                await _until(tls, is_reading=False)
            else:
                return tls
    except BaseException:
        tls.close()
        raise


async def _until(sock: socket.socket, *, is_reading: bool) -> None:
    """Wait until a socket can be read or written."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    add, remove = (
        (loop.add_reader, loop.remove_reader)
        if is_reading
        else (loop.add_writer, loop.remove_writer)
    )
    add(sock, wake)
    try:
        await waiter
    finally:
        remove(sock)
