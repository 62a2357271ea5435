"""Accepting connections on an asyncio loop, up to a limit.

A connection above the limit is closed at once and logged. While fewer descriptors are left than
connections leave to the rest of the process, none is accepted; connections that have sent nothing
are closed then, if the caller can do that.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from kvstack.component.logger import Logger
from kvstack.component.net.descriptors import RESERVE, Descriptors

_RETRY_S: Final = 0.2


async def accept_connections(
    listening: socket.socket,
    begin: Callable[[socket.socket], None],
    count_and_limit: Callable[[], tuple[int, int]],
    logger: Logger,
    close_silent: Callable[[], bool] | None = None,
) -> None:
    """Call begin with each connection until cancelled, then close listening.

    count_and_limit returns how many connections are open, and how many may be. close_silent closes
    the oldest connection that has sent nothing, and returns whether there was one.
    """
    loop = asyncio.get_running_loop()
    descriptors = Descriptors()
    listening.setblocking(False)
    try:
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                logger.warning("cannot accept a connection", error=str(error))
                await asyncio.sleep(_RETRY_S)
                await until_descriptors_are_left(descriptors, logger.warning, close_silent)
                continue
            is_short = descriptors.are_short_with(connection.fileno())
            count, limit = count_and_limit()
            if count >= limit:
                logger.warning("closed a connection: too many are open", limit=limit)
                connection.close()
                continue
            begin(connection)
            if is_short:
                await until_descriptors_are_left(descriptors, logger.warning, close_silent)
    finally:
        listening.close()


async def until_descriptors_are_left(
    descriptors: Descriptors,
    warn: Callable[[str], None],
    close_silent: Callable[[], bool] | None = None,
) -> None:
    """Return when at least RESERVE descriptors are left; see accept_connections."""
    is_logged = False
    while descriptors.are_short():
        if close_silent is not None and close_silent():
            descriptors.note_closed()
            await asyncio.sleep(0)  # its task closes it
            continue
        if not is_logged:
            is_logged = True
            warn(f"no connections are accepted while fewer than {RESERVE} descriptors are left")
        await asyncio.sleep(_RETRY_S)
