"""Linearizable reads: one read index for all those of a turn, a round.

    add ──► waiting ──(one read_index a turn)──► requested ──(read state, applied)──► answer
                                   ▲                 │
                                   └─── each 500 ms ─┘ until confirmed, a new leader, or a timeout

A leader that is the only voter needs no confirmation: its round has its index at once.

Each request of a round was made after its reads had arrived, so the answer to any of them counts. A
new leader ends the rounds that are not confirmed: the reads are refused, and clients retry.
"""

from collections.abc import Callable, Iterable
from typing import Final

from kvstack.component.units import MILLISECOND_NS
from kvstore.batch import Outbox
from kvstore.errors import LEADER_CHANGED, TIMEOUT, TIMEOUT_WAIT_APPLY, Refusal
from kvstore.node.parts import Parts
from kvstore.node.pending import INTERNAL
from kvstore.node.reads import slow_read
from kvstore.node.reads.gets import Get, answer_gets
from kvstore.raft.model import NO_NODE

Answer = Callable[[Outbox], None]
Read = tuple[int, Answer, bool, bool]
"""(call id, function that answers it, whether it is a stream, whether it shows keys unchecked)

A refusal ends a stream. A read that was admitted while auth was disabled has no check.
"""

RETRY_NS: Final = 500 * MILLISECOND_NS
_ROUNDS_MAX: Final = 64  # not confirmed; later reads share the next round


class _Round:
    """The reads that share one read index."""

    __slots__ = ("asked_ns", "contexts", "gets", "index", "reads", "since_ns")

    def __init__(self, reads: list[Read], gets: list[Get], now_ns: int) -> None:
        self.reads = reads
        self.gets = gets
        self.since_ns = now_ns
        self.asked_ns = now_ns
        self.contexts: list[bytes] = []
        self.index: int | None = None  # known once confirmed


class ReadRounds:
    """All linearizable reads under way."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._time = parts.time
        self._waiting: list[Read] = []
        self._waiting_gets: list[Get] = []
        self._rounds: list[_Round] = []
        self._asked: dict[bytes, _Round] = {}

    def add(self, read: Read) -> None:
        """Add a read; its answer is called when it may be answered."""
        self._waiting.append(read)

    def add_gets(self, gets: list[Get]) -> None:
        """Add gets."""
        self._waiting_gets += gets

    @property
    def is_waiting(self) -> bool:
        """Whether reads wait for an answer of the leader or for applying."""
        return bool(self._rounds)

    @property
    def has_new(self) -> bool:
        """Whether no read index was requested yet for some reads."""
        return bool(self._waiting or self._waiting_gets) and len(self._asked) < _ROUNDS_MAX

    def ask(self, now_ns: int) -> None:
        """Request this turn's read index, and again those that got no answer."""
        has_new = self._waiting or self._waiting_gets
        if has_new and len(self._asked) < _ROUNDS_MAX:
            fresh = _Round(self._waiting, self._waiting_gets, now_ns)
            self._waiting, self._waiting_gets = [], []
            self._rounds.append(fresh)
            fresh.index = self._parts.raft.read_index_if_alone()
            if fresh.index is None:
                self._ask(fresh)
        if not self._rounds or self._parts.raft.lead == NO_NODE:
            return
        for each in self._rounds:
            if each.index is None and now_ns - each.asked_ns >= RETRY_NS:
                each.asked_ns = now_ns
                slow_read.warn_retry(self._parts, each.contexts[-1], RETRY_NS, now_ns)
                self._ask(each)

    def _ask(self, each: _Round) -> None:
        context = self._parts.replication.request_ids.next().to_bytes(8, "big")
        each.contexts.append(context)
        self._asked[context] = each
        self._parts.raft.read_index(context)

    def confirmed(self, index: int, context: bytes) -> None:
        """Handle raft's answer: the reads may be answered once index is applied."""
        found = self._asked.get(context)
        if found is not None and found.index is None:
            found.index = index
            self._forget(found)

    def leader_changed(self, out: Outbox) -> None:
        """Refuse the rounds that the previous leader has not confirmed."""
        unanswered = [each for each in self._rounds if each.index is None]
        if not unanswered:
            return
        self._rounds = [each for each in self._rounds if each.index is not None]
        self._parts.counters.failed_reads += len(unanswered)
        for each in unanswered:
            self._forget(each)
            self._refuse(each, LEADER_CHANGED, out)

    def answer(self, out: Outbox) -> None:
        """Answer every read that may be answered now, and refuse those that have timed out."""
        if not self._rounds:
            return
        parts = self._parts
        applied, timeout_ns = parts.raft.applied, parts.limits.request_timeout_ns
        left: list[_Round] = []
        for round_ in self._rounds:
            index = round_.index
            if index is not None and index <= applied:
                for _, answer, _, _ in round_.reads:
                    answer(out)
                if round_.gets:
                    answer_gets(parts, round_.gets, out)
            elif self._time.now_ns - round_.since_ns >= timeout_ns:
                if index is None:
                    slow_read.warn_timeout(parts, timeout_ns, self._time.now_ns)
                self._forget(round_)
                self._refuse(round_, TIMEOUT if index is None else TIMEOUT_WAIT_APPLY, out)
            else:
                left.append(round_)
        self._rounds = left

    def _forget(self, each: _Round) -> None:
        for context in each.contexts:
            self._asked.pop(context, None)

    def _refuse(self, each: _Round, refusal: Refusal, out: Outbox) -> None:
        self._parts.counters.failed_reads += 1
        refuse(each.reads, each.gets, refusal, out)

    def refuse_unchecked(self, refusal: Refusal, out: Outbox) -> None:
        """Refuse the reads that would show keys without a check."""
        self._waiting, unchecked = _split(self._waiting)
        refuse(unchecked, self._waiting_gets, refusal, out)
        self._waiting_gets = []
        for each in self._rounds:
            each.reads, unchecked = _split(each.reads)
            refuse(unchecked, each.gets, refusal, out)
            each.gets = []


def _split(reads: list[Read]) -> tuple[list[Read], list[Read]]:
    """Return the reads that need no check or have one, and the others."""
    return [each for each in reads if not each[3]], [each for each in reads if each[3]]


def refuse(reads: Iterable[Read], gets: Iterable[Get], refusal: Refusal, out: Outbox) -> None:
    """Refuse reads and gets; the member's own need no answer."""
    for call_id, _ in gets:
        out.refuse(call_id, refusal)
    for call_id, _, is_stream, _ in reads:
        if call_id != INTERNAL:
            (out.end if is_stream else out.refuse)(call_id, refusal)
