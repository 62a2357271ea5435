"""Who waits for which entry of the log.

    add ──► datas ──► propose ─┬─ accepted here  ──► by_index    (index, term) identifies the entry
                               ├─ forwarded      ──► by_request  its request id does
                               └─ no leader      ──► queued      until there is a leader again

A leader knows where its proposals are in the log. (index, term) identifies an entry forever, so the
waiter is kept under the index, and its entry is the applied one if the terms are equal. An entry of
another term at that index means that the waiter's entry was overwritten: the caller is told that
the leader changed. A follower does not learn what becomes of a forwarded proposal until the entry
is applied here; then the request id in the entry finds the waiter.

Rule: a proposal is given to raft once. What raft did not take is queued and offered again. What
raft took is never offered again, lost or not: it might be applied twice. Every wait ends with the
request timeout.

The parsed request stays with the waiter, so applying does not parse it again. Changes of members
wait in the same way, each under the id of the change.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.message import Message

from kvstore.apply.compare_and_put import CompareAndPut
from kvstore.apply.plain_put import PlainPut
from kvstore.auth.tokens import NO_CREDENTIAL, Credential
from kvstore.batch import Outbox
from kvstore.errors import Refusal
from kvstore.raft.model import ConfChange

INTERNAL: int = 0  # the call id of what the server itself proposes
QUEUED_MAX: Final = 5000  # proposals waiting for a leader
QUEUED_BYTES_MAX: Final = 64 << 20

ChangeCallback = Callable[[Refusal | None, Outbox], None]
"""Called once with how a change of members ended: None if it is in force, else why it is not."""

ResultCallback = Callable[[bytes | Refusal, Outbox], None]
"""Called with the result of an entry instead of answering the call, or with why there is none."""


Parsed: TypeAlias = Message | CompareAndPut | PlainPut


class Waiter(NamedTuple):
    """One proposal under way."""

    call_id: int  # INTERNAL: nobody is answered
    field: int  # its number in InternalRaftRequest
    request: Parsed | None  # parsed, where apply wants it so
    body: bytes
    verdict: Refusal | None = None  # sent instead of the result (a refusal that raised an alarm)
    credential: Credential = NO_CREDENTIAL  # in the entry's header
    callback: ResultCallback | None = None


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
        self.waiters: list[Waiter] = []  # theirs, in step
        self.by_index: dict[int, tuple[int, int, Waiter]] = {}  # index → (term, since_ns, waiter)
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
        self.waiters.append(waiter)

    def add_change(self, change: ConfChange, call_id: int, callback: ChangeCallback) -> None:
        """Add a change of members; callback is called once, in a later stage or turn.

        change.id is a fresh one of `request_ids`. callback(None, out) comes after the change is in
        force here, so the member list is up to date; callback(refusal, out) if the list did not
        allow it, or its outcome was not known in time. It is not called for a call that is gone.
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

    def take(self) -> tuple[list[bytes], list[Waiter]]:
        """Return this turn's proposals and forget them here."""
        taken = self.datas, self.waiters
        self.datas, self.waiters = [], []
        return taken

    # Given to raft.

    def track(
        self, first_index: int, term: int, waiters: list[Waiter], now_ns: int
    ) -> list[Waiter]:
        """Record the log indexes of proposals; return the waiters of entries they overwrote."""
        lost: list[Waiter] = []
        if self._last_placed >= first_index:
            lost = [
                self.by_index.pop(index)[2]
                for index in range(first_index, self._last_placed + 1)
                if index in self.by_index
            ]
        self.by_index.update(
            {
                index: (term, now_ns, waiter)
                for index, waiter in enumerate(waiters, start=first_index)
            }
        )
        self._last_placed = first_index + len(waiters) - 1
        return lost

    def await_request(self, request_id: int, waiter: Waiter, since_ns: int) -> None:
        """Record a proposal that was forwarded to the leader."""
        self.by_request[request_id] = (since_ns, waiter)

    def forget_up_to(self, index: int) -> list[Waiter]:
        """Remove and return the waiters for entries that a snapshot replaced."""
        gone = [each for each in self.by_index if each <= index]
        return [self.by_index.pop(each)[2] for each in gone]

    # Not given to raft yet.

    def has_room(self, data: bytes) -> bool:
        """Tell whether one more proposal may be queued."""
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
