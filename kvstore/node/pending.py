"""The waiters for entries of the log.

    add ──► datas ──► propose ─┬─ accepted here  ──► by_index    (index, term) identifies the entry
                               │                     runs        of plain writes, by first index
                               ├─ forwarded      ──► by_request  its request id does
                               └─ no leader      ──► queued      until there is a leader again

A leader knows where its proposals are in the log. (index, term) identifies an entry forever, so the
waiter is kept under the index, and its entry is the applied one if the terms are equal. An entry of
another term at that index means that the waiter's entry was overwritten: the caller is answered
that the leader changed. A follower does not learn what becomes of a forwarded proposal until the
entry is applied here; then the request id in the entry finds the waiter.

Rule: a proposal is given to raft once. What raft did not take is queued and offered again. What
raft took is never offered again, lost or not: it might be applied twice. Every wait ends with the
request timeout.

Plain writes are kept as runs under the index of their first entry. Changes of members wait in the
same way, each under the id of the change.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from kvstore.batch import Outbox
from kvstore.errors import Refusal
from kvstore.node.waiters import INTERNAL as INTERNAL
from kvstore.node.waiters import PlainRun, Proposed, Waiter
from kvstore.node.waiters import ResultCallback as ResultCallback
from kvstore.raft.model import ConfChange, Entry

QUEUED_MAX: Final = 5000  # proposals waiting for a leader
QUEUED_BYTES_MAX: Final = 64 << 20

ChangeCallback = Callable[[Refusal | None, Outbox], None]
"""Called once with the result of a change of members: None if it is in force, else the reason."""


class QueuedProposal(NamedTuple):
    """A proposal that raft has not taken yet."""

    data: bytes
    waiter: Waiter
    since_ns: int


class ChangeWaiter(NamedTuple):
    """One change of members under way."""

    change: ConfChange
    call_id: int
    callback: ChangeCallback
    since_ns: int


class Pending:
    """Proposals of this turn, then waiters by log index or request id."""

    def __init__(self) -> None:
        self.datas: list[bytes] = []  # encoded, not yet given to raft
        self.new: list[
            Proposed
        ] = []  # their waiters, in step; a run stands for as many entries as it has
        self.by_index: dict[int, tuple[int, int, Waiter]] = {}  # index → (term, since_ns, waiter)
        self.runs: deque[PlainRun] = deque()  # ascending by first index
        self.by_request: dict[int, tuple[int, Waiter]] = {}  # request id → (since_ns, waiter)
        self.queued: deque[QueuedProposal] = deque()
        self.queued_bytes = 0
        self.new_changes: list[tuple[ConfChange, int, ChangeCallback]] = []
        self.queued_changes: deque[ChangeWaiter] = deque()
        self.changes: dict[int, ChangeWaiter] = {}  # given to raft, by the change's id
        self._last_placed = 0

    def add(self, data: bytes, waiter: Waiter) -> None:
        """Add a proposal of this turn."""
        self.datas.append(data)
        self.new.append(waiter)

    def add_run(self, datas: list[bytes], run: PlainRun) -> None:
        """Add plain writes of this turn, with the data of their entries."""
        self.datas += datas
        self.new.append(run)

    def add_change(self, change: ConfChange, call_id: int, callback: ChangeCallback) -> None:
        """Add a change of members; callback is called once, in a later stage or turn.

        change.id is a fresh one of `request_ids`. callback(None, out) comes after the change is in
        force here, so the member list is up to date; callback(refusal, out) if the list did not
        allow it, or its outcome was not known in time. It is not called if the call's client has
        gone.
        """
        self.new_changes.append((change, call_id, callback))

    @property
    def has_new(self) -> bool:
        """Whether there are proposals or changes that raft was not offered yet."""
        return bool(self.datas or self.new_changes)

    @property
    def is_waiting(self) -> bool:
        """Whether anything is to be offered to raft."""
        return bool(self.datas or self.new_changes or self.queued or self.queued_changes)

    @property
    def placed_count(self) -> int:
        """How many proposals wait by log index."""
        return len(self.by_index) + sum(map(len, self.runs))

    def take(self) -> tuple[list[bytes], list[Proposed]]:
        """Return this turn's proposals and forget them here."""
        taken = self.datas, self.new
        self.datas, self.new = [], []
        return taken

    # Given to raft.

    def track(
        self, first_index: int, term: int, proposed: Sequence[Proposed], now_ns: int
    ) -> list[Waiter]:
        """Record the log indexes of proposals; return the waiters of entries they overwrote."""
        lost: list[Waiter] = []
        if self._last_placed >= first_index:
            lost = self._overwritten(first_index)
        index = first_index
        for proposal in proposed:
            if isinstance(proposal, PlainRun):
                proposal.first_index, proposal.term, proposal.since_ns = index, term, now_ns
                self.runs.append(proposal)
                index = proposal.end_index
            else:
                self.by_index[index] = (term, now_ns, proposal)
                index += 1
        self._last_placed = index - 1
        return lost

    def _overwritten(self, first_index: int) -> list[Waiter]:
        """Remove and return the waiters from an index on."""
        lost = [
            self.by_index.pop(index)[2]
            for index in range(first_index, self._last_placed + 1)
            if index in self.by_index
        ]
        while self.runs and self.runs[-1].end_index > first_index:
            run = self.runs.pop()
            if run.first_index < first_index:
                self.runs.append(run.split(first_index - run.first_index))
            lost += run.waiters()
        return lost

    def take_run(self, entries: Sequence[Entry], at: int) -> PlainRun | None:
        """Remove and return the run that begins with entries[at], as far as it is among them.

        None if there is none. One whose entries are another leader's is given up: its waiters are
        in by_index.
        """
        runs = self.runs
        if not runs or runs[0].first_index != entries[at].index:
            return None
        run, count = runs.popleft(), len(entries) - at
        if len(run) > count:
            runs.appendleft(run)
            run = run.split(count)
        # Terms never decrease along a log.
        if entries[at].term == run.term == entries[at + len(run) - 1].term:
            return run
        for index, waiter in enumerate(run.waiters(), run.first_index):
            self.by_index[index] = (run.term, run.since_ns, waiter)
        return None

    def await_request(self, request_id: int, waiter: Waiter, since_ns: int) -> None:
        """Record a proposal that was forwarded to the leader."""
        self.by_request[request_id] = (since_ns, waiter)

    def forget_up_to(self, index: int) -> list[Waiter]:
        """Remove and return the waiters for entries that a snapshot replaced."""
        gone = [self.by_index.pop(each)[2] for each in list(self.by_index) if each <= index]
        while self.runs and self.runs[0].first_index <= index:
            run = self.runs.popleft()
            if run.end_index > index + 1:
                self.runs.appendleft(run)
                run = run.split(index + 1 - run.first_index)
            gone += run.waiters()
        return gone

    # Not given to raft yet.

    def has_room(self, data: bytes) -> bool:
        """Return whether one more proposal may be queued."""
        return len(self.queued) < QUEUED_MAX and self.queued_bytes + len(data) <= QUEUED_BYTES_MAX

    def enqueue(self, proposal: QueuedProposal) -> None:
        """Keep a proposal until there is a leader."""
        self.queued.append(proposal)
        self.queued_bytes += len(proposal.data)

    def take_queued(self) -> deque[QueuedProposal]:
        """Return what is queued, oldest first, and forget it here."""
        taken, self.queued, self.queued_bytes = self.queued, deque(), 0
        return taken

    def cancel(self, call_id: int) -> None:
        """Drop what raft has not taken of a call whose client went away."""
        if any(each.waiter.call_id == call_id for each in self.queued):
            for proposal in self.take_queued():
                if proposal.waiter.call_id != call_id:
                    self.enqueue(proposal)
        if self.queued_changes:
            self.queued_changes = deque(
                each for each in self.queued_changes if each.call_id != call_id
            )

    # Time.

    def expired(self, before_ns: int) -> Iterator[tuple[Waiter, int]]:
        """Remove and yield (waiter, since when) of those that have waited since before_ns."""
        while self.by_index:
            index = next(iter(self.by_index))
            _, since_ns, waiter = self.by_index[index]
            if since_ns > before_ns:
                break
            del self.by_index[index]
            yield waiter, since_ns
        while self.runs and self.runs[0].since_ns <= before_ns:
            run = self.runs.popleft()
            for waiter in run.waiters():
                yield waiter, run.since_ns
        while self.by_request:
            request_id = next(iter(self.by_request))
            since_ns, waiter = self.by_request[request_id]
            if since_ns > before_ns:
                break
            del self.by_request[request_id]
            yield waiter, since_ns
        while self.queued and self.queued[0].since_ns <= before_ns:
            proposal = self.queued.popleft()
            self.queued_bytes -= len(proposal.data)
            yield proposal.waiter, proposal.since_ns

    def expired_changes(self, before_ns: int) -> Iterator[ChangeWaiter]:
        """Remove and yield the changes that have waited since before_ns."""
        while self.changes:
            change_id = next(iter(self.changes))
            if self.changes[change_id].since_ns > before_ns:
                break
            yield self.changes.pop(change_id)
        while self.queued_changes and self.queued_changes[0].since_ns <= before_ns:
            yield self.queued_changes.popleft()
