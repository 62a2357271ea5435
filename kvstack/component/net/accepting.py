"""Accepting connections on an asyncio loop, up to a limit.

A connection above the limit is closed at once and logged. While fewer descriptors are left than
connections leave to the rest of the process, none is accepted; connections that have sent nothing,
or are idle, are closed then, if the caller can do that.
"""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeVar

from kvstack.component.logger import Logger
from kvstack.component.net.descriptors import RESERVE, Descriptors

_RETRY_S: Final = 0.2
_IDLE_S: Final = 1.0  # without a request: the client may be just about to send one

T = TypeVar("T")


class Activity(NamedTuple):
    """The properties that decide which connection is closed when descriptors run short."""

    host: str
    active_s: float
    """The time at which a request last began or ended, or the connection began."""
    is_idle: bool
    """Whether no request is under way."""


async def accept_connections(
    listening: socket.socket,
    begin: Callable[[socket.socket], None],
    count_and_limit: Callable[[], tuple[int, int]],
    logger: Logger,
    close_one: Callable[[], bool] | None = None,
) -> None:
    """Call begin with each connection until cancelled, then close listening.

    count_and_limit returns how many connections are open, and how many may be. close_one closes
    the oldest connection that has sent nothing, or one that is idle, and returns whether there was
    one.
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
                await until_descriptors_are_left(descriptors, logger.warning, close_one)
                continue
            is_short = descriptors.are_short_with(connection.fileno())
            count, limit = count_and_limit()
            if count >= limit:
                logger.warning("closed a connection: too many are open", limit=limit)
                connection.close()
                continue
            begin(connection)
            if is_short:
                await until_descriptors_are_left(descriptors, logger.warning, close_one)
    finally:
        listening.close()


async def until_descriptors_are_left(
    descriptors: Descriptors,
    warn: Callable[[str], None],
    close_one: Callable[[], bool] | None = None,
) -> None:
    """Return when at least RESERVE descriptors are left; see accept_connections."""
    is_logged = False
    while descriptors.are_short():
        if close_one is not None and close_one():
            descriptors.note_closed()
            await asyncio.sleep(0)  # its task closes it
            continue
        if not is_logged:
            is_logged = True
            warn(f"no connections are accepted while fewer than {RESERVE} descriptors are left")
        await asyncio.sleep(_RETRY_S)


def longest_idle(connections: Collection[tuple[T, Activity]]) -> T | None:
    """Return the connection that has been idle longest; None: none is idle.

    It is one of the host with most connections, among hosts with idle ones.
    """
    before_s = time.monotonic() - _IDLE_S
    counts = Counter(activity.host for _, activity in connections)
    idle = [
        (-counts[activity.host], activity.active_s, number)
        for number, (_, activity) in enumerate(connections)
        if activity.is_idle and activity.active_s < before_s
    ]
    return list(connections)[min(idle)[2]][0] if idle else None
