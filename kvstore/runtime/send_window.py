"""Back-pressure for a streamed answer: its sender waits while too much of it is unsent.

    deliver ─► await window.sent(size) ─► at once, or once at most BACKLOG_BYTES_MAX are unsent

The transport reports unsent bytes once a turn, so a sender that is this far ahead requests turns
until there is room.
"""

import asyncio
from typing import Final

from kvstore.runtime.side_loop import SideLoop

BACKLOG_BYTES_MAX: Final = 1 << 20
_TURNS_UNTIL_REPORTED: Final = (
    2  # a delivery is flushed by the next turn, reported by the one after
)
_TURN_S: Final = 0.005


class SendWindow:
    """The unsent bytes of one streamed answer of the side loop."""

    def __init__(self, side: SideLoop, stream_id: int) -> None:
        self._side = side
        self._id = stream_id
        self._unreported_bytes = 0

    async def sent(self, size_bytes: int) -> None:
        """Note that size_bytes were delivered; return when more may be."""
        self._unreported_bytes += size_bytes
        if self._unreported_bytes < BACKLOG_BYTES_MAX:
            return
        self._unreported_bytes = 0
        turns = 0
        while turns < _TURNS_UNTIL_REPORTED or self._unsent_bytes() > BACKLOG_BYTES_MAX:
            before = self._side.backlog
            self._side.request_turn()
            await asyncio.sleep(_TURN_S)
            turns += self._side.backlog is not before

    def _unsent_bytes(self) -> int:
        return self._side.backlog.get(self._id, 0)
