"""A learner becomes a voter: only the leader can tell whether it is ready.

    leader      all that is committed is applied ─► match ≥ 90 % of its own ─► change proposed
    follower    POST /members/promote/<id> to the leader, which answers with the members

A follower asks again until it gets a verdict or the request's time is over; the leader may change
meanwhile, and may be this member.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kvstore.batch import Outbox, TaskKind, TaskResult
from kvstore.errors import (
    LEARNER_NOT_READY,
    MEMBER_NOT_FOUND,
    MEMBER_NOT_LEARNER,
    NO_LEADER,
    TIMEOUT,
    TIMEOUT_WAIT_APPLY,
    Refusal,
)
from kvstore.node.cluster.reconfiguration import may_promote
from kvstore.node.limits import MILLISECOND_NS, SECOND_NS
from kvstore.node.parts import Parts
from kvstore.raft.model import NO_NODE, ConfChange, ConfChangeType
from kvstore.wire.members import Member, decode_members, encode_promotion
from kvstore.wire.varint import WireError

READY_RATIO: Final = 0.9
_APPLY_TIMEOUT_NS: Final = SECOND_NS
_ASK_AGAIN_NS: Final = 100 * MILLISECOND_NS
# What a leader's answer says, by the texts etcd writes there; the more special one first.
_VERDICTS: Final = (
    ("can only promote a learner member which is in sync with leader", LEARNER_NOT_READY),
    ("can only promote a learner member", MEMBER_NOT_LEARNER),
    ("membership: ID not found", MEMBER_NOT_FOUND),
)

Answer = Callable[[Sequence[Member] | Refusal, Outbox], None]


@dataclass(slots=True, eq=False)
class _Wish:
    call_id: int
    member_id: int
    token: bytes
    answer: Answer
    since_ns: int
    is_away: bool = False  # the leader has been asked and has not answered
    again_ns: int = 0


class Promotions:
    """Promotions that clients wait for."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._wishes: list[_Wish] = []
        self._now_ns = 0

    def add(self, call_id: int, member_id: int, token: str, now_ns: int, answer: Answer) -> None:
        """Note a promotion; answer is told the members then, or why it is refused."""
        self._wishes.append(_Wish(call_id, member_id, token.encode(), answer, now_ns))

    def cancel(self, call_id: int) -> None:
        """Forget a call whose client went away; what was asked of the leader goes on."""
        self._wishes = [wish for wish in self._wishes if wish.call_id != call_id]

    def step(self, now_ns: int, out: Outbox) -> None:
        """Do for each what can be done now."""
        if not self._wishes:
            return
        self._now_ns = now_ns
        raft = self._parts.raft
        timeout_ns = self._parts.limits.request_timeout_ns
        for wish in list(self._wishes):
            if now_ns - wish.since_ns >= timeout_ns:
                self._end(wish, NO_LEADER if raft.lead == NO_NODE else TIMEOUT, out)
            elif raft.is_leader:
                self._judge(wish, out)
            elif raft.lead != NO_NODE and not wish.is_away and now_ns >= wish.again_ns:
                self._ask_leader(wish)

    def _end(self, wish: _Wish, result: Sequence[Member] | Refusal, out: Outbox) -> None:
        self._wishes.remove(wish)
        wish.answer(result, out)

    # On the leader.

    def _judge(self, wish: _Wish, out: Outbox) -> None:
        parts = self._parts
        if parts.raft.applied < parts.raft.committed:
            if self._now_ns - wish.since_ns >= _APPLY_TIMEOUT_NS:
                self._end(wish, TIMEOUT_WAIT_APPLY, out)
            return
        refusal = self._readiness(wish.member_id) or may_promote(parts)
        if refusal is not None:
            parts.counters.note_promotion(refusal)
            self._end(wish, refusal, out)
            return
        self._wishes.remove(wish)
        change = ConfChange(
            parts.request_ids.next(),
            ConfChangeType.ADD_NODE,
            wish.member_id,
            encode_promotion(wish.member_id),
        )

        def tell(refused: Refusal | None, out: Outbox) -> None:
            parts.counters.note_promotion(refused)
            wish.answer(refused or parts.membership.sorted_members(), out)

        parts.pending.add_change(change, wish.call_id, tell)

    def _readiness(self, member_id: int) -> Refusal | None:
        raft = self._parts.raft
        progress = raft.status().progress
        if member_id not in progress:
            return MEMBER_NOT_FOUND
        own = progress.get(raft.id)
        match, own_match = progress[member_id].match, 0 if own is None else own.match
        if match < READY_RATIO * own_match:
            self._parts.logger.warning(
                "rejecting promote learner: learner is not ready",
                learner_id=f"{member_id:x}",
                learner_match=match,
                leader_match=own_match,
                ready_percent_threshold=READY_RATIO,
            )
            return LEARNER_NOT_READY
        return None

    # On the others.

    def _ask_leader(self, wish: _Wish) -> None:
        wish.is_away = True
        leader, path = f"{self._parts.raft.lead:x}", f"/members/promote/{wish.member_id}"
        args: tuple[bytes, ...] = (leader.encode(), path.encode(), b"")
        if wish.token:
            args = (*args, wish.token)

        def take(result: TaskResult, out: Outbox) -> None:
            self._take_answer(wish, result, out)

        self._parts.tasks.ask(TaskKind.POST_PEER, args, take)

    def _take_answer(self, wish: _Wish, result: TaskResult, out: Outbox) -> None:
        wish.is_away = False
        wish.again_ns = self._now_ns + _ASK_AGAIN_NS
        if wish not in self._wishes:
            return
        if not result.error:
            try:
                self._end(wish, decode_members(result.body), out)
            except WireError as error:
                self._parts.logger.warning("the leader's answer is unreadable", error=str(error))
            return
        text = result.body.decode("utf-8", "replace")
        for phrase, verdict in _VERDICTS:
            if phrase in text:
                self._end(wish, verdict, out)
                return
        self._parts.logger.warning(
            "failed to forward a promotion", error=result.error, answer=text[:200]
        )
