"""One priority level: its seats and its queues.

    ticket = level.enter(flow, seats, now_ns)      None: refused
    ticket.is_started                              or `on_start` is called later
    level.note_writing(ticket, now_ns)             it lacks nothing but that its answer is read
    level.leave(ticket, now_ns)                    its seats are free for the next

While there are free seats and empty queues, a request costs a few additions. Else it joins the
shortest of a few queues that its flow was dealt (shuffle sharding), so that one flow cannot fill
the queues of all others. The next to start is the head of the queue with the earliest virtual
finish (start-time fair queuing): each queue has a virtual start that advances by the work
dispatched from it, and a queue that was empty begins at the current virtual time. Work is seats
times seconds, estimated until the request has ended. Nothing here waits, or reads a clock.

Requests whose answers are being written keep their seats, but one flow keeps at most half of the
level's seats that way: further ones release theirs, and later requests of the flow wait until an
answer is read, while other flows pass them.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, TypeAlias

from kvstack.apiserver.policy.flow_control.allocation import Limits
from kvstack.apiserver.policy.flow_control.demand import Demand, Period
from kvstack.component.metrics.histograms import Histogram

SERVICE_NS: Final = 3_000_000
"""The estimated duration of a request that has not ended."""
QUEUE_FULL: Final = "queue-full"
NO_SEATS: Final = "concurrency-limit"
TIMED_OUT: Final = "time-out"
CANCELLED: Final = "cancelled"

WAIT_BOUNDS: Final = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
EXECUTION_BOUNDS: Final = (
    0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
)  # fmt: skip

OnStart: TypeAlias = Callable[[], None]


class FlowCounts:
    """Counts of one schema in one level."""

    __slots__ = (
        "dispatched", "executing", "executions", "rejected", "seats", "unwaited", "waited",
        "waiting", "waiting_seats", "waits_refused",
    )  # fmt: skip

    def __init__(self) -> None:
        self.dispatched = 0
        self.executing = 0
        self.seats = 0
        self.waiting = 0
        self.waiting_seats = 0
        self.unwaited = 0
        """Requests that started without waiting."""
        self.rejected: dict[str, int] = {}
        self.waited: Final = Histogram(WAIT_BOUNDS)
        """Waiting times of requests that started, in seconds."""
        self.waits_refused: Final = Histogram(WAIT_BOUNDS)
        self.executions: Final = Histogram(EXECUTION_BOUNDS)


class Flow:
    """Requests of one schema and one distinguisher."""

    __slots__ = ("counts", "distinguisher", "hand", "headers", "level", "schema", "writing")

    def __init__(
        self,
        schema: str,
        distinguisher: str,
        level: "Level",
        counts: FlowCounts,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """headers: of all answers."""
        self.schema: Final = schema
        self.distinguisher: Final = distinguisher
        self.level: Final = level
        self.counts: Final = counts
        self.headers: Final = headers
        self.writing = 0
        """Seats of its requests whose answers are being written."""
        self.hand: Final = dealt(f"{schema}\0{distinguisher}", level.queuing)


class Ticket:
    """A request in a level."""

    __slots__ = (
        "arrived_ns", "flow", "is_over", "is_started", "is_writing", "linger_ns", "on_start",
        "queue", "seats", "started_ns",
    )  # fmt: skip

    def __init__(self, flow: Flow, seats: int, now_ns: int) -> None:
        """now_ns: its arrival."""
        self.flow: Final = flow
        self.seats: Final = seats
        self.arrived_ns: Final = now_ns
        self.started_ns = now_ns
        self.queue: Queue | None = None
        self.is_started = False
        self.is_over = False
        self.is_writing = False
        self.linger_ns = 0
        """How long its seats stay taken after its end."""
        self.on_start: OnStart | None = None
        """Called on start, if it had to wait."""


class Queue:
    """Waiting requests in order, and the queue's virtual time."""

    __slots__ = ("executing", "index", "next_start", "seats_in_use", "tickets", "work")

    def __init__(self, index: int) -> None:
        self.index: Final = index
        self.tickets: deque[Ticket] = deque()
        self.work = 0
        """Work of the waiting requests."""
        self.next_start = 0
        self.executing = 0
        self.seats_in_use = 0


@dataclass(frozen=True, slots=True)
class Queuing:
    """The queuing configuration."""

    queues: int
    hand_size: int
    length_limit: int


class Level:
    """A priority level."""

    def __init__(self, name: str, uid: str, now_ns: int) -> None:
        """It has no seats until `configure`."""
        self.name: Final = name
        self.uid = uid
        self.is_exempt = False
        self.queuing: Queuing | None = None
        self.limits = Limits(0, 0, 0)
        self.limit = 0
        """The current number of seats."""
        self.in_use = 0
        self.executing = 0
        self.waiting = 0
        self.waiting_seats = 0
        self.target = 0.0
        self.demand: Final = Demand(now_ns)
        self.period = Period(0.0, 0.0, 0)
        self.queues: list[Queue] = []
        self._busy: dict[int, Queue] = {}
        self._virtual_now = 0

    @property
    def is_idle(self) -> bool:
        """Whether it has no requests."""
        return not self.executing and not self.waiting

    def configure(
        self, uid: str, limits: Limits, queuing: Queuing | None, *, is_exempt: bool
    ) -> None:
        """Apply a new configuration; waiting requests keep their positions."""
        is_new = self.limits.nominal == 0
        self.uid, self.limits, self.queuing = uid, limits, queuing
        self.is_exempt = is_exempt
        if queuing is not None:
            more = range(len(self.queues), queuing.queues)
            self.queues += [Queue(index) for index in more]
        if is_new:
            self.limit = limits.nominal - (limits.nominal - limits.low) // 2

    def resize(self, limit: int, now_ns: int) -> None:
        """Change the number of seats."""
        self.limit = limit
        self._dispatch(now_ns)

    # Requests.

    def enter(self, flow: Flow, seats: int, now_ns: int) -> Ticket | None:
        """Enter a request, which starts or waits; None: it is refused."""
        ticket = Ticket(flow, seats, now_ns)
        if self.is_exempt or (
            not self.waiting
            and self._has_room(seats)
            and not (flow.writing and self._is_held_back(ticket))
        ):
            counts = flow.counts
            ticket.is_started = True
            self.executing += 1
            self.in_use += seats
            counts.executing += 1
            counts.seats += seats
            counts.dispatched += 1
            counts.unwaited += 1
            self.demand.set(self.in_use + self.waiting_seats, now_ns)
            return ticket
        if self.queuing is None:
            self.refuse(flow, NO_SEATS)
            return None
        return ticket if self._enqueue(ticket, self.queuing, now_ns) else None

    def note_writing(self, ticket: Ticket, now_ns: int) -> None:
        """Note that a started request is done except for its answer being read."""
        if self.is_exempt or not ticket.is_started or ticket.is_over or ticket.is_writing:
            return
        if self._is_held_back(ticket):
            self.leave(ticket, now_ns)
            return
        ticket.is_writing = True
        ticket.flow.writing += ticket.seats

    def leave(self, ticket: Ticket, now_ns: int) -> None:
        """Release a started request; further calls do nothing."""
        if ticket.is_over or not ticket.is_started:
            return
        ticket.is_over = True
        if ticket.is_writing:
            ticket.flow.writing -= ticket.seats
        seats, counts = ticket.seats, ticket.flow.counts
        self.executing -= 1
        self.in_use -= seats
        counts.executing -= 1
        counts.seats -= seats
        took_ns = now_ns - ticket.started_ns
        counts.executions.add(took_ns * 1e-9)
        queue = ticket.queue
        if queue is not None:
            queue.executing -= 1
            queue.seats_in_use -= seats
            queue.next_start += seats * (took_ns - SERVICE_NS)
            if queue.tickets:
                queue.next_start = max(queue.next_start, self._virtual_now)
        self.demand.set(self.in_use + self.waiting_seats, now_ns)
        if self.waiting:
            self._dispatch(now_ns)

    def give_up(self, ticket: Ticket, now_ns: int, reason: str = TIMED_OUT) -> None:
        """Remove a waiting request from its queue."""
        queue = ticket.queue
        if ticket.is_started or ticket.is_over or queue is None:
            return
        ticket.is_over = True
        queue.tickets.remove(ticket)
        self._unqueued(ticket, queue)
        ticket.flow.counts.waits_refused.add((now_ns - ticket.arrived_ns) * 1e-9)
        self.refuse(ticket.flow, reason)
        self.demand.set(self.in_use + self.waiting_seats, now_ns)
        if self.waiting:
            self._dispatch(now_ns)

    def refuse(self, flow: Flow, reason: str) -> None:
        """Count a refused request."""
        rejected = flow.counts.rejected
        rejected[reason] = rejected.get(reason, 0) + 1

    # Queues.

    def _has_room(self, seats: int) -> bool:
        # A request larger than all seats runs alone.
        return self.in_use + seats <= self.limit or (seats > self.limit and not self.executing)

    def _is_held_back(self, ticket: Ticket) -> bool:
        """Return whether a request waits for answers of its own flow to be read."""
        writing = ticket.flow.writing
        return writing > 0 and writing + ticket.seats > self.limit // 2

    def _enqueue(self, ticket: Ticket, queuing: Queuing, now_ns: int) -> bool:
        queues = self.queues
        queue = min((queues[each] for each in ticket.flow.hand), key=_work_of)
        is_held = self.in_use >= self.limit or self._is_held_back(ticket)
        if len(queue.tickets) >= queuing.length_limit and is_held:
            self.refuse(ticket.flow, QUEUE_FULL)
            return False
        if not queue.tickets and not queue.executing:
            queue.next_start = self._virtual_now
        ticket.queue = queue
        queue.tickets.append(ticket)
        queue.work += ticket.seats * SERVICE_NS
        self._busy[queue.index] = queue
        self.waiting += 1
        self.waiting_seats += ticket.seats
        counts = ticket.flow.counts
        counts.waiting += 1
        counts.waiting_seats += ticket.seats
        self.demand.set(self.in_use + self.waiting_seats, now_ns)
        self._dispatch(now_ns)
        return True

    def _unqueued(self, ticket: Ticket, queue: Queue) -> None:
        queue.work -= ticket.seats * SERVICE_NS
        if not queue.tickets:
            del self._busy[queue.index]
        self.waiting -= 1
        self.waiting_seats -= ticket.seats
        counts = ticket.flow.counts
        counts.waiting -= 1
        counts.waiting_seats -= ticket.seats

    def _dispatch(self, now_ns: int) -> None:
        """Start as many waiting requests as there are seats for."""
        started: list[Ticket] = []
        while self.waiting and self.in_use < self.limit:
            ready = [e for e in self._busy.values() if not self._is_held_back(e.tickets[0])]
            if not ready:
                break
            queue = min(ready, key=_finish_of)
            ticket = queue.tickets[0]
            if not self._has_room(ticket.seats):
                break
            queue.tickets.popleft()
            self._unqueued(ticket, queue)
            self._virtual_now = max(self._virtual_now, queue.next_start)
            queue.next_start += ticket.seats * SERVICE_NS
            queue.executing += 1
            queue.seats_in_use += ticket.seats
            ticket.is_started, ticket.started_ns = True, now_ns
            self.executing += 1
            self.in_use += ticket.seats
            counts = ticket.flow.counts
            counts.executing += 1
            counts.seats += ticket.seats
            counts.dispatched += 1
            counts.waited.add((now_ns - ticket.arrived_ns) * 1e-9)
            started.append(ticket)
        for each in started:
            if each.on_start is not None:
                each.on_start()


def _work_of(queue: Queue) -> int:
    return queue.work


def _finish_of(queue: Queue) -> int:
    return queue.next_start + queue.tickets[0].seats * SERVICE_NS


def dealt(flow: str, queuing: Queuing | None) -> tuple[int, ...]:
    """Return the queues that a flow may use: a hand of cards, dealt by its hash."""
    if queuing is None:
        return ()
    left = int.from_bytes(sha256(flow.encode()).digest()[:8], "little")
    deck = list(range(queuing.queues))
    hand = []
    for _ in range(min(queuing.hand_size, queuing.queues)):
        left, index = divmod(left, len(deck))
        hand.append(deck.pop(index))
    return tuple(hand)
