"""MemberPromote: a learner becomes a voter. Only the leader knows whether it is ready.

    leader      all that is committed is applied ─► match ≥ 90 % of its own ─► change proposed
    follower    POST /members/promote/<id> to the leader, which answers with the members

A follower retries until it gets an answer or the request times out; the leader may change
meanwhile, and may become this member.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kvstack.component.units import MILLISECOND_NS, SECOND_NS
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
from kvstore.node.parts import Parts
from kvstore.raft.model import NO_NODE, ConfChange, ConfChangeType
from kvstore.wire.members import Member, decode_members, encode_promotion
from kvstore.wire.varint import WireError

READY_RATIO: Final = 0.9
_APPLY_TIMEOUT_NS: Final = SECOND_NS
_RETRY_NS: Final = 100 * MILLISECOND_NS
# The meaning of a leader's answer, by the texts etcd writes there; the longer match comes first.
_VERDICTS: Final = (
    ("can only promote a learner member which is in sync with leader", LEARNER_NOT_READY),
    ("can only promote a learner member", MEMBER_NOT_LEARNER),
    ("membership: ID not found", MEMBER_NOT_FOUND),
)

Answer = Callable[[Sequence[Member] | Refusal, Outbox], None]


@dataclass(slots=True, eq=False)
class _Promotion:
    call_id: int
    member_id: int
    token: bytes
    answer: Answer
    since_ns: int
    is_forwarded: bool = False  # to the leader, which has not answered yet
    retry_ns: int = 0


class Promotions:
    """The promotions under way."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._time = parts.time
        self._promotions: list[_Promotion] = []

    def add(self, call_id: int, member_id: int, token: str, now_ns: int, answer: Answer) -> None:
        """Add a promotion; answer is called with the members after it, or why it is refused."""
        self._promotions.append(_Promotion(call_id, member_id, token.encode(), answer, now_ns))

    def cancel(self, call_id: int) -> None:
        """Forget a call whose client went away; a request to the leader goes on."""
        self._promotions = [each for each in self._promotions if each.call_id != call_id]

    def step(self, now_ns: int, out: Outbox) -> None:
        """Continue each promotion as far as possible now."""
        if not self._promotions:
            return
        raft = self._parts.raft
        timeout_ns = self._parts.limits.request_timeout_ns
        for promotion in list(self._promotions):
            if now_ns - promotion.since_ns >= timeout_ns:
                self._end(promotion, NO_LEADER if raft.lead == NO_NODE else TIMEOUT, out)
            elif raft.is_leader:
                self._decide(promotion, out)
            elif (
                raft.lead != NO_NODE and not promotion.is_forwarded and now_ns >= promotion.retry_ns
            ):
                self._forward(promotion)

    def _end(self, promotion: _Promotion, result: Sequence[Member] | Refusal, out: Outbox) -> None:
        self._promotions.remove(promotion)
        promotion.answer(result, out)

    # On the leader.

    def _decide(self, promotion: _Promotion, out: Outbox) -> None:
        parts = self._parts
        if parts.raft.applied < parts.raft.committed:
            if self._time.now_ns - promotion.since_ns >= _APPLY_TIMEOUT_NS:
                self._end(promotion, TIMEOUT_WAIT_APPLY, out)
            return
        refusal = self._check_ready(promotion.member_id) or may_promote(parts)
        if refusal is not None:
            parts.counters.note_promotion(refusal)
            self._end(promotion, refusal, out)
            return
        self._promotions.remove(promotion)
        change = ConfChange(
            parts.replication.request_ids.next(),
            ConfChangeType.ADD_NODE,
            promotion.member_id,
            encode_promotion(promotion.member_id),
        )

        def changed(refusal: Refusal | None, out: Outbox) -> None:
            parts.counters.note_promotion(refusal)
            promotion.answer(refusal or parts.state.membership.sorted_members(), out)

        parts.replication.pending.add_change(change, promotion.call_id, changed)

    def _check_ready(self, member_id: int) -> Refusal | None:
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

    def _forward(self, promotion: _Promotion) -> None:
        promotion.is_forwarded = True
        leader, path = (
            f"{self._parts.raft.lead:x}",
            f"/members/promote/{promotion.member_id}",
        )
        args: tuple[bytes, ...] = (leader.encode(), path.encode(), b"")
        if promotion.token:
            args = (*args, promotion.token)

        def answered(result: TaskResult, out: Outbox) -> None:
            self._handle_answer(promotion, result, out)

        self._parts.host.tasks.ask(TaskKind.POST_PEER, args, answered)

    def _handle_answer(self, promotion: _Promotion, result: TaskResult, out: Outbox) -> None:
        promotion.is_forwarded = False
        promotion.retry_ns = self._time.now_ns + _RETRY_NS
        if promotion not in self._promotions:
            return
        if not result.error:
            try:
                self._end(promotion, decode_members(result.body), out)
            except WireError as error:
                self._parts.logger.warning("the leader's answer is unreadable", error=str(error))
            return
        text = result.body.decode("utf-8", "replace")
        for phrase, verdict in _VERDICTS:
            if phrase in text:
                self._end(promotion, verdict, out)
                return
        self._parts.logger.warning(
            "failed to forward a promotion", error=result.error, answer=text[:200]
        )
