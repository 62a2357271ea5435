"""Gives proposals to raft, and ends waits that last too long.

    new in this turn ─┐                ┌─ accepted    wait by log index
    queued ───────────┴─► raft.propose ┼─ forwarded   wait by request id
                                       ├─ no leader, or a leader transfer: queued, offered again
                                       └─ any other outcome: refused

Changes of members are proposed one at a time: a leader drops a second one while the first is under
way, and a member that forwarded it would wait until the timeout.

What raft has taken is never given to it again; see pending. Runs of plain writes that raft forwards
or does not take are waited for one by one.
"""

from kvstore.batch import Outbox
from kvstore.errors import LEADER_CHANGED, PROPOSAL_DROPPED, TOO_MANY_REQUESTS, Code, Refusal
from kvstore.node.cluster.leadership import Leadership
from kvstore.node.parts import Parts
from kvstore.node.pending import INTERNAL, ChangeWaiter, QueuedProposal
from kvstore.node.waiters import Proposed, Waiter, each_waiter
from kvstore.raft.model import NO_NODE
from kvstore.raft.ready import ProposeOutcome, ProposeResult
from kvstore.wire.internal import unwrap

_WAIT = frozenset({ProposeOutcome.NO_LEADER, ProposeOutcome.TRANSFERRING})


class Submission:
    """Gives proposals to raft."""

    def __init__(self, parts: Parts, leadership: Leadership) -> None:
        self._parts = parts
        self._leadership = leadership

    def submit(self, now_ns: int, out: Outbox) -> None:
        """Propose everything that waits."""
        pending = self._parts.replication.pending
        if pending.queued:
            self._submit_queued(out)
        datas, proposed = pending.take()
        if datas:
            self._submit_new(datas, proposed, now_ns, out)
        if pending.new_changes or pending.queued_changes:
            self._submit_changes(now_ns, out)

    def _submit_new(
        self, datas: list[bytes], proposed: list[Proposed], now_ns: int, out: Outbox
    ) -> None:
        parts = self._parts
        pending = parts.replication.pending
        result = parts.raft.propose(datas)
        if result.first_index:
            lost = pending.track(result.first_index, result.term, proposed, now_ns)
            if lost:
                refuse(self._parts, lost, LEADER_CHANGED, out)
        elif result.outcome is ProposeOutcome.FORWARDED:
            for data, waiter in zip(datas, each_waiter(proposed), strict=True):
                pending.await_request(unwrap(data)[2], waiter, now_ns)
        elif result.outcome in _WAIT:
            self._enqueue(datas, each_waiter(proposed), now_ns, out)
        else:
            refuse(self._parts, each_waiter(proposed), PROPOSAL_DROPPED, out)

    def _enqueue(self, datas: list[bytes], waiters: list[Waiter], now_ns: int, out: Outbox) -> None:
        pending = self._parts.replication.pending
        for data, waiter in zip(datas, waiters, strict=True):
            if waiter.call_id == INTERNAL and waiter.callback is None:
                continue  # the server makes its own proposals again when there is a leader
            if pending.has_room(data):
                pending.enqueue(QueuedProposal(data, waiter, now_ns))
            else:
                refuse(self._parts, [waiter], TOO_MANY_REQUESTS, out)

    def _submit_queued(self, out: Outbox) -> None:
        """Offer what is queued; each keeps the time since when it waits."""
        raft, pending = self._parts.raft, self._parts.replication.pending
        if raft.lead == NO_NODE or raft.transferee != NO_NODE:
            return
        for proposal in pending.take_queued():
            data, waiter, since_ns = proposal
            result = raft.propose([data])
            if result.first_index:
                lost = pending.track(result.first_index, result.term, [waiter], since_ns)
                refuse(self._parts, lost, LEADER_CHANGED, out)
            elif result.outcome is ProposeOutcome.FORWARDED:
                pending.await_request(unwrap(data)[2], waiter, since_ns)
            elif result.outcome in _WAIT:
                pending.enqueue(proposal)
            else:
                refuse(self._parts, [waiter], PROPOSAL_DROPPED, out)

    def _submit_changes(self, now_ns: int, out: Outbox) -> None:
        raft, pending = self._parts.raft, self._parts.replication.pending
        for change, call_id, callback in pending.new_changes:
            pending.queued_changes.append(ChangeWaiter(change, call_id, callback, now_ns))
        pending.new_changes = []
        while pending.queued_changes and not pending.changes and raft.lead != NO_NODE:
            waiter = pending.queued_changes[0]
            result = raft.propose_conf_change(waiter.change)
            if result.outcome in _WAIT or result.outcome is ProposeOutcome.CHANGE_UNDER_WAY:
                return
            pending.queued_changes.popleft()
            if result.outcome in (ProposeOutcome.ACCEPTED, ProposeOutcome.FORWARDED):
                pending.changes[waiter.change.id] = waiter
            else:
                waiter.callback(_change_refusal(result), out)

    def expire(self, now_ns: int, out: Outbox) -> None:
        """End the waits that have lasted for the request timeout."""
        before_ns = now_ns - self._parts.limits.request_timeout_ns
        pending, why = self._parts.replication.pending, self._leadership.timeout_since
        for waiter, since_ns in pending.expired(before_ns):
            refuse(self._parts, [waiter], why(since_ns), out)
        if pending.changes or pending.queued_changes:
            for change in pending.expired_changes(before_ns):
                change.callback(why(change.since_ns), out)


def refuse(parts: Parts, waiters: list[Waiter], refusal: Refusal, out: Outbox) -> None:
    """Answer waiters that their proposal failed, or that its outcome is unknown."""
    parts.counters.failed_proposals += len(waiters)
    for waiter in waiters:
        if waiter.callback is not None:
            waiter.callback(refusal, out)
        elif waiter.call_id != INTERNAL:
            out.refuse(waiter.call_id, refusal)


def _change_refusal(result: ProposeResult) -> Refusal:
    if result.outcome is ProposeOutcome.CHANGE_REFUSED:
        return Refusal(Code.UNKNOWN, result.reason)
    return PROPOSAL_DROPPED
