"""Turns on an event loop: for a member in memory that has neither port nor thread.

    store ──► its requests of an iteration of the loop ──► inbox ──► turn ──► outbox ──► store
                               the node's next deadline, by the loop's time ──┘

Its behaviour depends only on the requests and on the loop's time, so a simulation or a cluster in
virtual time can repeat it. Between turns nothing of it runs.

There are no side loop and no password threads here: services built on the store (locks, elections)
and users with passwords are refused.
"""

import asyncio
from typing import Final

from kvstack.component.clock import Clock
from kvstack.component.units import SECOND_NS
from kvstore.batch import Inbox, Outbox, TaskResult
from kvstore.errors import Code, KvstoreError
from kvstore.node.turn import NEVER_NS, Node
from kvstore.runtime.driver import SnapshotStreams
from kvstore.runtime.source import Source

_READY_TURNS_MAX: Final = 10_000
_REFUSED: Final = "a member without threads supports no services and no users with passwords"


class LoopDriver:
    """Runs one node on the running loop."""

    def __init__(self, node: Node, snapshots: SnapshotStreams, clock: Clock) -> None:
        """Create the driver; the first turn is run by start. clock: the loop's time."""
        self._node: Final = node
        self._snapshots: Final = snapshots
        self._clock: Final = clock
        self._loop: Final = asyncio.get_running_loop()
        self._sources: list[Source] = []
        self._late = Outbox()  # of save and settle, mostly empty
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = NEVER_NS
        self._is_over = False
        self._refused: list[TaskResult] = []

    def attach(self, source: Source) -> None:
        """Add a source to all turns from now on."""
        self._sources.append(source)

    def wake(self) -> None:
        """Run a turn now, with the requests of a store."""
        self._take_turn()

    def _wake_soon(self) -> None:
        if self._soon is None and not self._is_over:
            self._soon = self._loop.call_soon(self._again)

    def start(self) -> None:
        """Run turns until the member leads itself; from then on when they are due."""
        for _ in range(_READY_TURNS_MAX):
            if self._node.is_ready:
                break
            self._turn()
        else:
            raise KvstoreError(f"the member was not ready within {_READY_TURNS_MAX} turns")
        self._schedule()

    def stop(self) -> None:
        """Stop running turns."""
        self._is_over = True
        for each in (self._soon, self._timer):
            if each is not None:
                each.cancel()
        self._snapshots.close()
        self._node.close(self._clock.monotonic_ns())

    def _again(self) -> None:
        self._soon = None
        self._take_turn()

    def _take_turn(self) -> None:
        if not self._is_over:
            self._turn()
            self._schedule()

    def _turn(self) -> None:
        inbox = Inbox()
        for source in self._sources:
            source.fill(inbox)
        inbox.now_ns, inbox.wall_ms = self._clock.monotonic_ns(), self._clock.unix_ms()
        if self._refused:
            inbox.task_results, self._refused = self._refused, []
        node, late = self._node, self._late
        out = node.answer(inbox)
        self._pump(inbox, out)
        self._send(out)
        node.save(inbox, late)
        node.settle(inbox, late)
        if not late.is_empty:
            self._late = Outbox()
            self._send(late)
            for stream_id, header in late.snapshots:
                self._snapshots.start(stream_id, header)

    def _pump(self, inbox: Inbox, out: Outbox) -> None:
        if self._snapshots.active():
            deliveries, ends = self._snapshots.pump(inbox.backlog)
            out.deliveries += deliveries
            out.ends += ends

    def _send(self, out: Outbox) -> None:
        for call_id, _, _, _ in out.services:
            out.replies.append((call_id, Code.UNIMPLEMENTED, _REFUSED.encode()))
        out.services = []
        self._refused += [TaskResult(each.id, _REFUSED, b"") for each in out.tasks]
        out.tasks = []
        for source in self._sources:
            source.drain(out)

    def _schedule(self) -> None:
        """Set the timer for the node's next deadline."""
        if self._refused or self._snapshots.active():
            self.wake()
        due_ns = min(self._node.wake_ns, NEVER_NS)
        if self._timer is not None:
            if self._timer_ns == due_ns:
                return
            self._timer.cancel()
            self._timer = None
        self._timer_ns = due_ns
        if due_ns == NEVER_NS:
            return
        wait_ns = due_ns - self._clock.monotonic_ns()
        if wait_ns <= 0:
            self._wake_soon()
        else:
            self._timer = self._loop.call_later(wait_ns / SECOND_NS, self._due)

    def _due(self) -> None:
        self._timer = None
        self._take_turn()
