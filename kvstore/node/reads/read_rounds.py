"""Rounds of asking the leader: one read-index for all linearizable reads of a turn.

    add ──► waiting ──(one read_index a turn)──► asked ──(read state, applied)──► answer
                                   ▲               │
                                   └── each 500 ms ┘ until it answers, changes, or time is up

A leader that is the only voter asks nobody: its round has its index at once.

An answer to any of a round's questions counts: each was asked after its reads had come. A new
leader ends the rounds that are not answered yet: clients are told, and ask again.
"""

from collections.abc import Callable
from typing import Final

from kvstore.batch import Outbox
from kvstore.errors import LEADER_CHANGED, TIMEOUT, TIMEOUT_WAIT_APPLY, Refusal
from kvstore.node.limits import MILLISECOND_NS
from kvstore.node.parts import Parts
from kvstore.node.pending import INTERNAL
from kvstore.node.reads import slow_read
from kvstore.node.reads.gets import Get, answer_gets
from kvstore.raft.model import NO_NODE

Answer = Callable[[Outbox], None]
Read = tuple[int, Answer, bool]
"""(call id, what to do when it may be done, whether a refusal is the end of a stream)"""

RETRY_NS: Final = 500 * MILLISECOND_NS
_ROUNDS_MAX: Final = 64  # not answered; what comes beyond shares the next one


class _Round:
    """The reads that share one read-index."""

    __slots__ = ("asked_ns", "contexts", "gets", "index", "reads", "since_ns")

    def __init__(self, reads: list[Read], gets: list[Get], now_ns: int) -> None:
        self.reads = reads
        self.gets = gets
        self.since_ns = now_ns
        self.asked_ns = now_ns
        self.contexts: list[bytes] = []
        self.index: int | None = None  # known once the leader has answered


class ReadRounds:
    """All linearizable reads under way."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._waiting: list[Read] = []
        self._waiting_gets: list[Get] = []
        self._rounds: list[_Round] = []
        self._asked: dict[bytes, _Round] = {}
        self._now_ns = 0

    def add(self, call_id: int, answer: Answer, *, is_stream: bool = False) -> None:
        """Note a read; its answer runs once it may."""
        self._waiting.append((call_id, answer, is_stream))

    def add_get(self, get: Get) -> None:
        """Note a get."""
        self._waiting_gets.append(get)

    @property
    def is_waiting(self) -> bool:
        """Whether reads hang on an answer of the leader or on applying."""
        return bool(self._rounds)

    def ask(self, now_ns: int) -> None:
        """Ask for this turn's read-index, and again for those that got no answer."""
        self._now_ns = now_ns
        has_new = self._waiting or self._waiting_gets
        if has_new and len(self._asked) < _ROUNDS_MAX:
            fresh = _Round(self._waiting, self._waiting_gets, now_ns)
            self._waiting, self._waiting_gets = [], []
            self._rounds.append(fresh)
            fresh.index = self._parts.raft.read_index_at_once()
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
        context = self._parts.request_ids.next().to_bytes(8, "big")
        each.contexts.append(context)
        self._asked[context] = each
        self._parts.raft.read_index(context)

    def confirmed(self, index: int, context: bytes) -> None:
        """Take raft's answer: the reads may be answered once index is applied."""
        found = self._asked.get(context)
        if found is not None and found.index is None:
            found.index = index
            self._forget(found)

    def leader_changed(self, out: Outbox) -> None:
        """End the rounds that the leader before has not answered."""
        unanswered = [each for each in self._rounds if each.index is None]
        if not unanswered:
            return
        self._rounds = [each for each in self._rounds if each.index is not None]
        self._parts.counters.failed_reads += len(unanswered)
        for each in unanswered:
            self._forget(each)
            self._refuse(each, LEADER_CHANGED, out)

    def answer(self, out: Outbox) -> None:
        """Answer every read that may be answered now, and those that have waited too long."""
        if not self._rounds:
            return
        parts = self._parts
        applied, timeout_ns = parts.raft.applied, parts.limits.request_timeout_ns
        left: list[_Round] = []
        for each in self._rounds:
            index = each.index
            if index is not None and index <= applied:
                for _, answer, _ in each.reads:
                    answer(out)
                if each.gets:
                    answer_gets(parts, each.gets, out)
            elif self._now_ns - each.since_ns >= timeout_ns:
                if index is None:
                    slow_read.warn_timeout(parts, timeout_ns, self._now_ns)
                self._forget(each)
                self._refuse(each, TIMEOUT if index is None else TIMEOUT_WAIT_APPLY, out)
            else:
                left.append(each)
        self._rounds = left

    def _forget(self, each: _Round) -> None:
        for context in each.contexts:
            self._asked.pop(context, None)

    def _refuse(self, each: _Round, refusal: Refusal, out: Outbox) -> None:
        self._parts.counters.failed_reads += 1
        text = refusal.text.encode()
        out.replies += [(call_id, refusal.code, text) for call_id, _ in each.gets]
        for call_id, _, is_stream in each.reads:
            if call_id != INTERNAL:
                answers = out.ends if is_stream else out.replies
                answers.append((call_id, refusal.code, text))
