"""The loop between the proxy's port and its coroutines: poll, hand over, flush, until told to stop.

    transport ── calls, streams, frames ──► side loop ── answers ──► transport

A member's driver takes a turn with the node here; the proxy has none, so every call goes to the
side loop as if it were a composite service.
"""

import signal
from types import FrameType
from typing import Final

from kvstore.batch import Inbox, Metadata, Outbox
from kvstore.logger import Logger
from kvstore.runtime.side_loop import SideLoop
from kvstore.transport.base import Transport

_POLL_S: Final = 10.0
_STOP_GRACE_S: Final = 0.5
_NOTHING: Final[Metadata] = {}


class PortDriver:
    """Runs one port in the main thread."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._transport: Transport | None = None
        self._is_stopping = False

    def catch_signals(self) -> None:
        """End the loop on SIGTERM and SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._is_stopping = True
        self._logger.info("received signal; shutting down", signal=signal.Signals(number).name)
        self.wake()

    def wake(self) -> None:
        """Make the loop go round; from any thread or signal handler."""
        if self._transport is not None:
            self._transport.wake()

    def serve(self, transport: Transport, side: SideLoop) -> None:
        """Serve until told to stop, then let what was answered leave."""
        self._transport = transport
        try:
            while not self._is_stopping:
                inbox = transport.poll(_POLL_S)
                out = Outbox()
                _to_services(inbox, out)
                side.drain(out)  # streams are the loop's before their frames are given to it
                side.fill(inbox)
                transport.flush(out)
        finally:
            transport.stop(_STOP_GRACE_S)


def _to_services(inbox: Inbox, out: Outbox) -> None:
    metadata = inbox.metadata
    for call_id, method, body in inbox.calls:
        out.services.append((call_id, method, body, metadata.get(call_id, _NOTHING)))
    for stream_id, method in inbox.opened:
        out.services.append((stream_id, method, b"", metadata.get(stream_id, _NOTHING)))
