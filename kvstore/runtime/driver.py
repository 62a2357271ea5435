"""The driver's loop: poll, fill, answer, drain, flush, save, settle, until it is stopped.

When stopped, it transfers leadership, accepts nothing new, and goes on until every admitted call is
answered or the time of one request is over.

A server runs the loop in its main thread, so that signals wake it; an embedded member runs it in a
thread of its own. Sockets are in the transport's thread. The loop sleeps until something arrives or
the node's next deadline, and never otherwise. Before the client port is open it runs with the other
sources alone, because a joining member needs its peers first.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.units import SECOND_NS
from kvstore.batch import Inbox, Outbox
from kvstore.node.turn import Node
from kvstore.runtime.no_port import NoPort
from kvstore.runtime.source import Source, TurnObserver
from kvstore.transport.base import Transport

_STOP_GRACE_S: Final = 0.5
_STREAMING_POLL_S: Final = 0.005  # while a database file is being sent to a client


class Port(Protocol):
    """A listener for clients; `kvstore.transport.base` defines its drain."""

    def drain(self) -> None:
        """Accept no new calls; open ones go on."""
        ...

    @property
    def is_drained(self) -> bool:
        """Whether, since drain(), everything in flight is answered."""
        ...


class SnapshotStreams(Protocol):
    """Streams of the whole database to clients; see `kvstore.server.snapshot_streams`."""

    def start(self, stream_id: int, header: bytes) -> None:
        """Start a stream."""
        ...

    def pump(
        self, backlog: Mapping[int, int]
    ) -> tuple[list[tuple[int, bytes, bytes]], list[tuple[int, int, bytes]]]:
        """Return the deliveries and ends that are due; backlog: stream id → bytes unsent."""
        ...

    def cancel(self, stream_id: int) -> None:
        """Drop a stream whose client went away; unknown ids are ignored."""
        ...

    def active(self) -> int:
        """Return how many streams still need a pump."""
        ...

    def close(self) -> None:
        """End all streams."""
        ...


class Driver:
    """Runs one node."""

    def __init__(
        self,
        node: Node,
        snapshots: SnapshotStreams,
        clock: Clock,
        logger: Logger,
    ) -> None:
        self._node = node
        self._snapshots = snapshots
        self._clock = clock
        self._logger = logger
        self._transport: Transport | None = None
        self._sources: list[Source] = []
        self._attaching = threading.Lock()
        self._observer: TurnObserver | None = None
        self._late = Outbox()  # of save and settle, mostly empty
        self._no_port = NoPort()  # used until there is a client port
        self._stopping = False
        self._is_member = True  # removed from its cluster

    @property
    def is_stopping(self) -> bool:
        """Whether the loop was stopped."""
        return self._stopping

    def stop_as_removed(self, reason: str) -> None:
        """Stop the loop because this member was removed from its cluster; from any thread."""
        self._logger.warning("server error", error=reason)
        self._logger.warning("data-dir used by this member must be removed")
        self._is_member = False
        self._stopping = True
        self.wake()

    def wake(self) -> None:
        """Make the loop run a turn; from any thread or signal handler."""
        (self._transport or self._no_port).wake()

    def stop(self) -> None:
        """Stop the loop, as SIGTERM does; from any thread or signal handler."""
        self._stopping = True
        self.wake()

    def attach(self, source: Source) -> None:
        """Add a source to all turns from now on, after those attached before.

        From any thread, because the list is replaced, never changed.
        """
        with self._attaching:
            self._sources = [*self._sources, source]

    def detach(self, source: Source) -> None:
        """Remove a source; the current turn may still call it. From any thread."""
        with self._attaching:
            self._sources = [each for each in self._sources if each is not source]

    def set_observer(self, observer: TurnObserver) -> None:
        """Show each turn's inbox and outboxes to an observer."""
        self._observer = observer

    def run_until_ready(self) -> None:
        """Run turns without clients until the member has joined and applied its log."""
        while not (self._node.is_ready or self._stopping):
            self._turn(self._no_port.poll(self._wait_s()))
            self._end_if_removed()

    def _end_if_removed(self) -> None:
        if self._node.is_removed and not self._stopping:
            self.stop_as_removed("the member has been permanently removed from the cluster")

    def serve(
        self, transport: Transport | None, drain_ns: int, others: Sequence[Port] = ()
    ) -> None:
        """Serve until stopped; then transfer leadership and drain, for up to drain_ns.

        others are the ports beside the transport, which may be None.
        """
        transport = transport or self._no_port
        self._transport = transport
        try:
            while not self._stopping:
                self._turn(transport.poll(self._wait_s()))
                self._end_if_removed()
            self._node.transfer_leadership(self._clock.monotonic_ns())
            self._turn(transport.poll(0))  # sends the transfer at once, because writes wait for it
            while self._node.is_transferring_leadership:
                self._turn(transport.poll(self._wait_s()))
            if self._is_member:  # a removed member cannot answer
                self._drain((transport, *others), transport, drain_ns)
        finally:
            self._snapshots.close()
            transport.stop(_STOP_GRACE_S)

    def _drain(self, ports: Sequence[Port], transport: Transport, drain_ns: int) -> None:
        until_ns = self._clock.monotonic_ns() + drain_ns
        for port in ports:
            port.drain()
        while not all(port.is_drained for port in ports):
            remaining_ns = until_ns - self._clock.monotonic_ns()
            if remaining_ns <= 0:
                self._logger.warning(
                    "not all calls were answered before the stop timeout",
                    limit_s=drain_ns / SECOND_NS,
                )
                return
            self._turn(transport.poll(min(self._wait_s(), remaining_ns / SECOND_NS)))

    def _turn(self, inbox: Inbox) -> None:
        for source in self._sources:
            source.fill(inbox)
        if self._observer is not None:
            self._observer.on_inbox(inbox)
        self._stamp(inbox)
        out = self._node.answer(inbox)
        self._stream_snapshots(inbox, out)
        self._send(out)
        if self._node.save(inbox, self._late):
            self._send_late()
        self._node.settle(inbox, self._late)
        self._send_late()

    def _send_late(self) -> None:
        late = self._late
        if not late.is_empty:
            self._late = Outbox()
            self._send(late)
            self._start_snapshots(late)

    def _send(self, out: Outbox) -> None:
        for source in self._sources:
            source.drain(out)
        if self._transport is not None:
            self._transport.flush(out)
        if self._observer is not None:
            self._observer.on_sent(out)

    def _wait_s(self) -> float:
        wait_s = max(self._node.wake_ns - self._clock.monotonic_ns(), 0) / SECOND_NS
        return min(wait_s, _STREAMING_POLL_S) if self._snapshots.active() else wait_s

    def _stamp(self, inbox: Inbox) -> None:
        inbox.now_ns = self._clock.monotonic_ns()
        inbox.wall_ms = self._clock.unix_ms()

    def _start_snapshots(self, out: Outbox) -> None:
        for stream_id, header in out.snapshots:
            self._snapshots.start(stream_id, header)

    def _stream_snapshots(self, inbox: Inbox, out: Outbox) -> None:
        snapshots = self._snapshots
        if not snapshots.active():
            return
        for gone in inbox.gone:
            snapshots.cancel(gone)
        deliveries, ends = snapshots.pump(inbox.backlog)
        out.deliveries += deliveries
        out.ends += ends
