"""Fetches a page of a kubelet or pod: one connection, one GET, and limited bytes.

    address = ServerAddress("10.0.0.7", 10250, context)
    body = await fetch(address, "/metrics/resource", headers, bytes_max)

The server is untrusted: redirects are not followed, and bytes and headers are limited. The timeout
is the caller's `asyncio.timeout`.
"""

import ssl
from collections.abc import Sequence
from typing import NamedTuple

from kvstack.agents.metrics.collector import UnreadableError
from kvstack.component.http.answers import AnswerError
from kvstack.component.http.dialling import addresses_of, dial, secured
from kvstack.component.http.request_head import head_lines
from kvstack.component.http.single import ask_on
from kvstack.component.net.hosts import join_host_port


class ServerAddress(NamedTuple):
    """The address of a page."""

    host: str
    port: int
    context: ssl.SSLContext | None = None
    """None: no TLS."""


async def fetch(
    address: ServerAddress, target: str, headers: Sequence[tuple[str, str]], bytes_max: int
) -> str:
    """Return the text of a page; raises UnreadableError."""
    host_and_port = join_host_port(address.host, address.port)
    lines = head_lines((("Connection", "close"), *headers))
    try:
        sock = await dial(await addresses_of(address.host, address.port))
        if address.context is not None:
            sock = await secured(sock, address.context, address.host)
    except (OSError, ValueError) as error:  # ValueError: an invalid host name
        raise UnreadableError(f"{host_and_port}: {error}") from error
    try:
        async with await ask_on(sock, "GET", target, host_and_port, lines) as answer:
            if answer.code != 200:
                raise UnreadableError(f"{host_and_port}{target} answers {answer.code}")
            return (await answer.body(bytes_max)).decode()
    except (AnswerError, OSError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{host_and_port}{target}: {error}") from error
