"""The loop: poll, fill, answer, drain, flush, save, settle, until told to stop.

Told to stop, it hands leadership over, takes nothing new, and goes on until what was admitted is
answered or the time of one request is over.

A server runs it in the main thread, so that signals wake it; an embedded member has a thread of its
own for it. Sockets live in the transport's thread. The loop sleeps until something arrives or the
node asked to be woken, and never otherwise. Before the client port is open it runs over the other
sources alone: a member that joins needs its peers first.
"""

import signal
import threading
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Final, Protocol

from kvstore.batch import Inbox, Outbox
from kvstore.logger import Logger
from kvstore.node.turn import Node
from kvstore.runtime.clock import Clock
from kvstore.runtime.no_port import NoPort
from kvstore.runtime.source import Source, TurnObserver
from kvstore.transport.base import Transport

_SECOND_NS: Final = 1_000_000_000
_STOP_GRACE_S: Final = 0.5
_STREAMING_POLL_S: Final = 0.005  # while a database file is on its way to a client


class Port(Protocol):
    """A way in for clients; `kvstore.transport.base` says what its drain is."""

    def drain(self) -> None:
        """Take nothing new; what is in flight goes on."""
        ...

    @property
    def is_drained(self) -> bool:
        """Whether, since drain(), all that was in flight is answered."""
        ...


class SnapshotStreams(Protocol):
    """Streams of the whole database to clients; see `kvstore.server.snapshot_streams`."""

    def start(self, stream_id: int, header: bytes) -> None:
        """Begin a stream."""
        ...

    def pump(
        self, backlog: Mapping[int, int]
    ) -> tuple[list[tuple[int, bytes, bytes]], list[tuple[int, int, bytes]]]:
        """Return the deliveries and ends that are due; backlog: stream id → bytes unsent."""
        ...

    def cancel(self, stream_id: int) -> None:
        """Drop a stream whose client went away; other ids are passed over."""
        ...

    def active(self) -> int:
        """Return how many streams still need a pump."""
        ...

    def close(self) -> None:
        """End everything."""
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
        self._late = Outbox()  # for what comes after the answers, which is nothing mostly
        self._no_port = NoPort()  # until there is a client port
        self._stopping = False
        self._has_place = True  # in its cluster

    @property
    def is_stopping(self) -> bool:
        """Whether the server was told to stop."""
        return self._stopping

    def catch_signals(self) -> None:
        """End the loop on SIGTERM and SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._stopping = True
        self._logger.info("received signal; shutting down", signal=signal.Signals(number).name)
        self.wake()

    def end(self, reason: str) -> None:
        """End the loop because this member has no place in its cluster; from any thread."""
        self._logger.warning("server error", error=reason)
        self._logger.warning("data-dir used by this member must be removed")
        self._has_place = False
        self._stopping = True
        self.wake()

    def wake(self) -> None:
        """Make the loop take a turn; from any thread or signal handler."""
        (self._transport or self._no_port).wake()

    def stop(self) -> None:
        """End the loop as SIGTERM does; from any thread."""
        self._stopping = True
        self.wake()

    def attach(self, source: Source) -> None:
        """Let a source take part in every turn from now on, after those attached before.

        From any thread: the list is replaced, never changed.
        """
        with self._attaching:
            self._sources = [*self._sources, source]

    def detach(self, source: Source) -> None:
        """Let a source take part no longer; the turn that runs may still call it. Any thread."""
        with self._attaching:
            self._sources = [each for each in self._sources if each is not source]

    def set_observer(self, observer: TurnObserver) -> None:
        """Let an observer see each turn's inbox, and what has left."""
        self._observer = observer

    def become_ready(self) -> None:
        """Take turns without clients until the member has joined and applied what it has."""
        while not (self._node.is_ready or self._stopping):
            self._turn(self._no_port.poll(self._wait_s()))
            self._end_if_removed()

    def _end_if_removed(self) -> None:
        if self._node.is_removed and not self._stopping:
            self.end("the member has been permanently removed from the cluster")

    def serve(
        self, transport: Transport | None, drain_ns: int, others: Sequence[Port] = ()
    ) -> None:
        """Serve until stopped; then hand leadership over and let what was admitted be answered.

        That may take drain_ns; others are ways in beside the transport, which may be None.
        """
        transport = transport or self._no_port
        self._transport = transport
        try:
            while not self._stopping:
                self._turn(transport.poll(self._wait_s()))
                self._end_if_removed()
            self._node.hand_over(self._clock.monotonic_ns())
            self._turn(transport.poll(0))  # which tells the other: writes wait for it
            while self._node.is_handing_over:
                self._turn(transport.poll(self._wait_s()))
            if self._has_place:  # without one nothing could be answered
                self._drain((transport, *others), transport, drain_ns)
        finally:
            self._snapshots.close()
            transport.stop(_STOP_GRACE_S)

    def _drain(self, ports: Sequence[Port], transport: Transport, drain_ns: int) -> None:
        until_ns = self._clock.monotonic_ns() + drain_ns
        for port in ports:
            port.drain()
        while not all(port.is_drained for port in ports):
            left_ns = until_ns - self._clock.monotonic_ns()
            if left_ns <= 0:
                self._logger.warning(
                    "calls are not answered within the time to stop", limit_s=drain_ns / _SECOND_NS
                )
                return
            self._turn(transport.poll(min(self._wait_s(), left_ns / _SECOND_NS)))

    def _turn(self, inbox: Inbox) -> None:
        for source in self._sources:
            source.fill(inbox)
        if self._observer is not None:
            self._observer.arrived(inbox)
        self._stamp(inbox)
        out = self._node.answer(inbox)
        self._stream_snapshots(inbox, out)
        self._let_leave(out)
        self._node.save(inbox, self._late)
        self._let_leave_late()
        self._node.settle(inbox, self._late)
        self._let_leave_late()

    def _let_leave_late(self) -> None:
        late = self._late
        if not late.is_empty:
            self._late = Outbox()
            self._let_leave(late)
            self._begin_snapshots(late)

    def _let_leave(self, out: Outbox) -> None:
        for source in self._sources:
            source.drain(out)
        if self._transport is not None:
            self._transport.flush(out)
        if self._observer is not None:
            self._observer.left(out)

    def _wait_s(self) -> float:
        wait_s = max(self._node.wake_ns - self._clock.monotonic_ns(), 0) / _SECOND_NS
        return min(wait_s, _STREAMING_POLL_S) if self._snapshots.active() else wait_s

    def _stamp(self, inbox: Inbox) -> None:
        inbox.now_ns = self._clock.monotonic_ns()
        inbox.wall_ms = self._clock.unix_ms()

    def _begin_snapshots(self, out: Outbox) -> None:
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
