"""Accepting connections on an asyncio loop, up to a limit.

A connection above the limit is closed at once and logged. When accepting fails (the process has too
many open files, for example), it is tried again after a pause.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from kvstore.logger import Logger

_RETRY_S: Final = 0.2


async def accept_connections(
    listening: socket.socket,
    begin: Callable[[socket.socket], None],
    count_and_limit: Callable[[], tuple[int, int]],
    logger: Logger,
) -> None:
    """Call begin with each connection until cancelled, then close listening.

    count_and_limit returns how many connections are open, and how many may be.
    """
    loop = asyncio.get_running_loop()
    listening.setblocking(False)
    try:
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                logger.warning("cannot accept a connection", error=str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            count, limit = count_and_limit()
            if count >= limit:
                logger.warning("closed a connection: too many are open", limit=limit)
                connection.close()
                continue
            begin(connection)
    finally:
        listening.close()
