"""Proposals on their way into raft, and the end of waiting for them.

    turn's new ones ─┐                ┌─ accepted    by position
    held ones ───────┴─► raft.propose ┼─ forwarded   by request id
                                      ├─ no leader, or one just handing over: held, offered again
                                      └─ never: refused

Changes of members go one at a time: a leader makes nothing of a second one while the first is under
way, and whoever forwarded it would wait for it in vain.

What is given to raft is never given again; see pending.
"""

from kvstore.batch import Outbox
from kvstore.errors import LEADER_CHANGED, PROPOSAL_DROPPED, TOO_MANY_REQUESTS, Code, Refusal
from kvstore.node.cluster.leadership import Leadership
from kvstore.node.parts import Parts
from kvstore.node.pending import INTERNAL, ChangeWaiter, Held, Waiter
from kvstore.raft.model import NO_NODE
from kvstore.raft.ready import ProposeOutcome, ProposeResult
from kvstore.wire.internal import unwrap

_WAIT = frozenset({ProposeOutcome.NO_LEADER, ProposeOutcome.TRANSFERRING})


class Submission:
    """Gives raft what is to enter the log."""

    def __init__(self, parts: Parts, leadership: Leadership) -> None:
        self._parts = parts
        self._leadership = leadership

    def submit(self, now_ns: int, out: Outbox) -> None:
        """Offer raft all that waits."""
        pending = self._parts.pending
        if pending.held:
            self._submit_held(now_ns, out)
        datas, waiters = pending.take()
        if datas:
            self._submit_new(datas, waiters, now_ns, out)
        if pending.new_changes or pending.held_changes:
            self._submit_changes(now_ns, out)

    def _submit_new(
        self, datas: list[bytes], waiters: list[Waiter], now_ns: int, out: Outbox
    ) -> None:
        parts = self._parts
        result = parts.raft.propose(datas)
        if result.first_index:
            lost = parts.pending.place(result.first_index, result.term, waiters, now_ns)
            if lost:
                refuse(self._parts, lost, LEADER_CHANGED, out)
        elif result.outcome is ProposeOutcome.FORWARDED:
            for data, waiter in zip(datas, waiters, strict=True):
                parts.pending.await_request(unwrap(data)[2], waiter, now_ns)
        elif result.outcome in _WAIT:
            self._hold(datas, waiters, now_ns, out)
        else:
            refuse(self._parts, waiters, PROPOSAL_DROPPED, out)

    def _hold(self, datas: list[bytes], waiters: list[Waiter], now_ns: int, out: Outbox) -> None:
        pending = self._parts.pending
        for data, waiter in zip(datas, waiters, strict=True):
            if waiter.call_id == INTERNAL and waiter.then is None:
                continue  # what the server itself proposes is made anew when there is a leader
            if pending.has_room(data):
                pending.hold(Held(data, waiter, now_ns))
            else:
                refuse(self._parts, [waiter], TOO_MANY_REQUESTS, out)

    def _submit_held(self, now_ns: int, out: Outbox) -> None:
        """Offer what is held, each with the time it has waited since."""
        raft, pending = self._parts.raft, self._parts.pending
        if raft.lead == NO_NODE or raft.transferee != NO_NODE:
            return
        for held in pending.take_held():
            result = raft.propose([held.data])
            if result.first_index:
                lost = pending.place(result.first_index, result.term, [held.waiter], held.since_ns)
                refuse(self._parts, lost, LEADER_CHANGED, out)
            elif result.outcome is ProposeOutcome.FORWARDED:
                pending.await_request(unwrap(held.data)[2], held.waiter, held.since_ns)
            elif result.outcome in _WAIT:
                pending.hold(held)
            else:
                refuse(self._parts, [held.waiter], PROPOSAL_DROPPED, out)

    def _submit_changes(self, now_ns: int, out: Outbox) -> None:
        raft, pending = self._parts.raft, self._parts.pending
        for change, call_id, answer in pending.new_changes:
            pending.held_changes.append(ChangeWaiter(change, call_id, answer, now_ns))
        pending.new_changes = []
        while pending.held_changes and not pending.changes and raft.lead != NO_NODE:
            waiter = pending.held_changes[0]
            result = raft.propose_conf_change(waiter.change)
            if result.outcome in _WAIT or result.outcome is ProposeOutcome.CHANGE_UNDER_WAY:
                return
            pending.held_changes.popleft()
            if result.outcome in (ProposeOutcome.ACCEPTED, ProposeOutcome.FORWARDED):
                pending.changes[waiter.change.id] = waiter
            else:
                waiter.answer(_change_refusal(result), out)

    def expire(self, now_ns: int, out: Outbox) -> None:
        """End the waits that have lasted for the request timeout."""
        before_ns = now_ns - self._parts.limits.request_timeout_ns
        pending, why = self._parts.pending, self._leadership.timeout_since
        for waiter, since_ns in pending.expired(before_ns):
            refuse(self._parts, [waiter], why(since_ns), out)
        if pending.changes or pending.held_changes:
            for change in pending.expired_changes(before_ns):
                change.answer(why(change.since_ns), out)


def refuse(parts: Parts, waiters: list[Waiter], refusal: Refusal, out: Outbox) -> None:
    """Tell those who wait that it came to nothing, or that nobody knows what it came to."""
    parts.counters.failed_proposals += len(waiters)
    text = refusal.text.encode()
    for waiter in waiters:
        if waiter.then is not None:
            waiter.then(refusal, out)
        elif waiter.call_id != INTERNAL:
            out.replies.append((waiter.call_id, refusal.code, text))


def _change_refusal(result: ProposeResult) -> Refusal:
    if result.outcome is ProposeOutcome.CHANGE_REFUSED:
        return Refusal(Code.UNKNOWN, result.reason)
    return PROPOSAL_DROPPED
