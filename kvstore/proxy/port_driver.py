"""The loop between the proxy's port and its coroutines: poll, dispatch, flush, until it is stopped.

    transport ── calls, streams, frames ──► side loop ── answers ──► transport

A member's driver runs a turn of the node here. The proxy has no node, so every call goes to the
side loop, like the calls of composite services on a member.

When stopped it drains, like a member: the port accepts nothing new, and the loop goes on until
every call is answered or the time of one request is over. Then streams are ended.
"""

from typing import Final

from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.units import SECOND_NS
from kvstore.batch import Inbox, Outbox
from kvstore.proxy.upstream import NO_METADATA
from kvstore.runtime.side_loop import SideLoop
from kvstore.transport.base import Transport

DRAIN_S_MAX: Final = 7.0  # the time of one request, as of a member with default settings
_POLL_S: Final = 10.0
_DRAIN_POLL_S: Final = 0.05
_STOP_GRACE_S: Final = 0.5


class PortDriver:
    """Runs one port in the main thread."""

    def __init__(self, clock: Clock, logger: Logger) -> None:
        self._clock = clock
        self._logger = logger
        self._transport: Transport | None = None
        self._is_stopping = False

    def stop(self) -> None:
        """End the loop; from any thread or signal handler."""
        self._is_stopping = True
        self.wake()

    def wake(self) -> None:
        """Make a waiting poll return; from any thread or signal handler."""
        if self._transport is not None:
            self._transport.wake()

    def serve(self, transport: Transport, side: SideLoop) -> None:
        """Serve until stopped, then drain the port."""
        self._transport = transport
        try:
            while not self._is_stopping:
                self._turn(transport, side, _POLL_S)
            self._drain(transport, side)
        finally:
            transport.stop(_STOP_GRACE_S)

    def _drain(self, transport: Transport, side: SideLoop) -> None:
        until_ns = self._clock.monotonic_ns() + int(DRAIN_S_MAX * SECOND_NS)
        transport.drain()
        while not transport.is_drained:
            remaining_s = (until_ns - self._clock.monotonic_ns()) / SECOND_NS
            if remaining_s <= 0:
                self._logger.warning(
                    "not all calls were answered before the stop timeout", limit_s=DRAIN_S_MAX
                )
                return
            self._turn(transport, side, min(_DRAIN_POLL_S, remaining_s))

    def _turn(self, transport: Transport, side: SideLoop, timeout_s: float) -> None:
        inbox = transport.poll(timeout_s)
        out = Outbox()
        _to_services(inbox, out)
        side.drain(out)  # before fill: a stream's frames follow its opening
        side.fill(inbox)
        transport.flush(out)


def _to_services(inbox: Inbox, out: Outbox) -> None:
    metadata = inbox.metadata
    for call_id, method, body in inbox.calls:
        out.services.append((call_id, method, body, metadata.get(call_id, NO_METADATA)))
    for stream_id, method in inbox.opened:
        out.services.append((stream_id, method, b"", metadata.get(stream_id, NO_METADATA)))
