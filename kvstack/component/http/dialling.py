"""New connections: addresses in turn, a proxy if there is one, then TLS.

sock = await dial([("10.0.0.7", 8443)], context, "hook.a.svc")     raises OSError
sock = await tunnel(sock, "issuer.example", 443, proxy)            CONNECT

Several addresses are tried as in browsers, each a quarter of a second after the one before.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Final

import aiohappyeyeballs

from kvstack.component.http.answers import AnswerError, AnswerReader
from kvstack.component.http.proxies import Proxy
from kvstack.component.net.hosts import join_host_port

_NEXT_S: Final = 0.25
_PIECE_BYTES: Final = 4 << 10
_OK: Final = 200

Address = tuple[str, int]


class ProxyError(OSError):
    """A proxy refused the connection to the server."""


async def addresses_of(host: str, port: int) -> list[Address]:
    """Return the system's addresses of a host; raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(str(each[4][0]), int(each[4][1])) for each in found]


async def dial(addresses: Sequence[Address]) -> socket.socket:
    """Return a connected socket that does not block; raises OSError."""
    sock = await aiohappyeyeballs.start_connection(
        [_info(*each) for each in addresses], happy_eyeballs_delay=_NEXT_S, interleave=1
    )
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


async def tunnel(sock: socket.socket, host: str, port: int, proxy: Proxy) -> None:
    """Ask a proxy for a connection with a server; raises OSError."""
    loop = asyncio.get_running_loop()
    there = join_host_port(host, port)
    request = f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{proxy.head}\r\n"
    try:
        await loop.sock_sendall(sock, request.encode("latin-1"))
        reader = AnswerReader(is_head=True)
        while True:
            data = await loop.sock_recv(sock, _PIECE_BYTES)
            if not data:
                raise ProxyError(f"proxy {proxy.host}: EOF")
            if reader.take(data):
                break
    except AnswerError as error:
        raise ProxyError(f"proxy {proxy.host}: {error}") from error
    if reader.answer.code != _OK:
        raise ProxyError(f"proxy {proxy.host} answers {reader.answer.code}")


def _info(host: str, port: int) -> aiohappyeyeballs.AddrInfoType:
    if ":" in host:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)


async def secured(sock: socket.socket, context: ssl.SSLContext, name: str) -> socket.socket:
    """Return a connection with TLS on a socket; raises OSError. name: of the server."""
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
