"""Who waits for which entry of the log.

    add ──► datas ──► propose ─┬─ accepted here  ──► by_index    (index, term) names the entry
                               ├─ forwarded      ──► by_request  its request id does
                               └─ nobody to take ──► held        until there is a leader again

A leader knows where its proposals stand: (index, term) names an entry for good, so the waiter is
kept under the index and holds if the applied entry has the same term. An entry of another term at
that index means that ours was overwritten: the caller is told that the leader changed. A follower
learns nothing of what becomes of what it forwarded until the entry is applied here; then the
request id in it tells whose it was.

A proposal is given to raft once. What raft did not take is held and offered again; what it took
is never offered again, lost or not: it might be applied twice. Each wait ends with the request
timeout.

The parsed request stays with the waiter, so that applying needs no second parse. Changes of members
wait likewise, each by the id of the change.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.message import Message

from kvstore.apply.compare_and_put import CompareAndPut
from kvstore.apply.plain_put import PlainPut
from kvstore.auth.tokens import NOBODY, Who
from kvstore.batch import Outbox
from kvstore.errors import Refusal
from kvstore.raft.model import ConfChange

INTERNAL: int = 0  # the call id of what the server itself proposes
HELD_MAX: Final = 5000  # proposals waiting for a leader
HELD_BYTES_MAX: Final = 64 << 20

ChangeAnswer = Callable[[Refusal | None, Outbox], None]
"""Told once how a change of members ended: None if it is in force, else why it is not (known)."""

Then = Callable[[bytes | Refusal, Outbox], None]
"""Told the result of an entry, in the place of the call, or why there is none."""


Parsed: TypeAlias = Message | CompareAndPut | PlainPut


class Waiter(NamedTuple):
    """One proposal under way."""

    call_id: int  # INTERNAL: nobody is told
    field: int  # its number in InternalRaftRequest
    request: Parsed | None  # parsed, where apply wants it so
    body: bytes
    verdict: Refusal | None = None  # told instead of the result (a refusal that raised an alarm)
    who: Who = NOBODY  # the credential in the entry's header
    then: Then | None = None


class Held(NamedTuple):
    """A proposal that raft has not taken yet."""

    data: bytes
    waiter: Waiter
    since_ns: int


class ChangeWaiter(NamedTuple):
    """One change of members under way."""

    change: ConfChange
    call_id: int
    answer: ChangeAnswer
    since_ns: int


class Pending:
    """Proposals of this turn, then waiters by position or request id."""

    def __init__(self) -> None:
        self.datas: list[bytes] = []  # encoded, not yet given to raft
        self.waiters: list[Waiter] = []  # theirs, in step
        self.by_index: dict[int, tuple[int, int, Waiter]] = {}  # index → (term, since_ns, waiter)
        self.by_request: dict[int, tuple[int, Waiter]] = {}  # request id → (since_ns, waiter)
        self.held: deque[Held] = deque()
        self.held_bytes = 0
        self.new_changes: list[tuple[ConfChange, int, ChangeAnswer]] = []
        self.held_changes: deque[ChangeWaiter] = deque()
        self.changes: dict[int, ChangeWaiter] = {}  # given to raft, by the change's id
        self._last_placed = 0

    def add(self, data: bytes, waiter: Waiter) -> None:
        """Note a proposal for this turn."""
        self.datas.append(data)
        self.waiters.append(waiter)

    def add_change(self, change: ConfChange, call_id: int, answer: ChangeAnswer) -> None:
        """Note a change of members for this turn; answer is called once, in a later stage or turn.

        change.id is a fresh one of `request_ids`. answer(None, out) comes after the change is in
        force here, so that the member list can be told; answer(refusal, out) if the list did not
        let it, or nobody knows what became of it in time. It is not called for a call that is gone.
        """
        self.new_changes.append((change, call_id, answer))

    def take(self) -> tuple[list[bytes], list[Waiter]]:
        """Hand over this turn's proposals."""
        taken = self.datas, self.waiters
        self.datas, self.waiters = [], []
        return taken

    # Given to raft.

    def place(
        self, first_index: int, term: int, waiters: list[Waiter], now_ns: int
    ) -> list[Waiter]:
        """Note where the proposals came to stand; return whose earlier ones they overwrote."""
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
        """Note a proposal that was forwarded to the leader."""
        self.by_request[request_id] = (since_ns, waiter)

    def forget_up_to(self, index: int) -> list[Waiter]:
        """Remove and return the waiters for entries that a snapshot took the place of."""
        gone = [each for each in self.by_index if each <= index]
        return [self.by_index.pop(each)[2] for each in gone]

    # Not given to raft yet.

    def has_room(self, data: bytes) -> bool:
        """Tell whether one more may be held."""
        return len(self.held) < HELD_MAX and self.held_bytes + len(data) <= HELD_BYTES_MAX

    def hold(self, held: Held) -> None:
        """Keep a proposal until there is a leader."""
        self.held.append(held)
        self.held_bytes += len(held.data)

    def take_held(self) -> deque[Held]:
        """Hand over what is held, oldest first."""
        taken, self.held, self.held_bytes = self.held, deque(), 0
        return taken

    def cancel(self, call_id: int) -> None:
        """Let go of what raft has not taken of a call whose client went away."""
        if any(each.waiter.call_id == call_id for each in self.held):
            for held in self.take_held():
                if held.waiter.call_id != call_id:
                    self.hold(held)
        if self.held_changes:
            self.held_changes = deque(each for each in self.held_changes if each.call_id != call_id)

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
        while self.held and self.held[0].since_ns <= before_ns:
            held = self.held.popleft()
            self.held_bytes -= len(held.data)
            yield held.waiter, held.since_ns

    def expired_changes(self, before_ns: int) -> Iterator[ChangeWaiter]:
        """Remove and yield the changes that have waited since before_ns."""
        while self.changes:
            change_id = next(iter(self.changes))
            if self.changes[change_id].since_ns > before_ns:
                break
            yield self.changes.pop(change_id)
        while self.held_changes and self.held_changes[0].since_ns <= before_ns:
            yield self.held_changes.popleft()
