"""The strict checks: whether the members may be changed now without losing the quorum.

    started     has a name, which a member publishes once it runs
    connected   for 5 s without interruption; this member always is

    add voter   started ≥ quorum of the voters after, the new one not counted as started;
                connected ≥ that quorum. To one voter another may always be added
    remove      started ≥ quorum of the voters left; and the removed one is down, or those
                connected without it are a majority of the rest
    promote     started ≥ quorum of the voters after, the learner counted as started

Order and texts are etcd's. A change is checked again when it is applied, against the list alone and
alike on every member: see kvstore.apply.membership.
"""

from collections.abc import Sequence
from typing import Final

from kvstack.component.units import SECOND_NS
from kvstore.errors import NOT_ENOUGH_STARTED, UNHEALTHY, Refusal
from kvstore.node.parts import Parts
from kvstore.wire.members import Member

HEALTH_INTERVAL_NS: Final = 5 * SECOND_NS


def may_add(parts: Parts, now_ns: int, *, is_learner: bool) -> Refusal | None:
    """Return why a member may not be added now; None if it may."""
    if not parts.limits.strict_reconfig_check:
        return None
    voters = _voters(parts)
    alone = len(voters) == 1
    if not is_learner and not (alone and _started(voters) == 1):
        quorum = _quorum(len(voters) + 1)
        if _started(voters) < quorum:
            return _refuse(parts, "add", NOT_ENOUGH_STARTED, started=_started(voters))
    connected = _connected(parts, voters, now_ns)
    if not alone and connected < _quorum(len(voters) + 1):
        return _refuse(parts, "add", UNHEALTHY, connected=connected)
    return None


def may_remove(parts: Parts, member_id: int, now_ns: int) -> Refusal | None:
    """Return why a member may not be removed now; None if it may."""
    if not parts.limits.strict_reconfig_check:
        return None
    member = parts.state.membership.members.get(member_id)
    if member is not None and member.is_learner:
        return None
    voters = _voters(parts)
    left = [voter for voter in voters if voter.id != member_id]
    if _started(left) < _quorum(len(left)):
        return _refuse(parts, "remove", NOT_ENOUGH_STARTED, started=_started(left))
    if member_id != parts.member_id and parts.replication.peers.active_since_ns(member_id) is None:
        return None
    connected = _connected(parts, voters, now_ns)
    if connected - 1 < _quorum(len(voters) - 1):
        return _refuse(parts, "remove", UNHEALTHY, connected=connected)
    return None


def may_promote(parts: Parts) -> Refusal | None:
    """Return why no learner may become a voter now; None if one may."""
    if not parts.limits.strict_reconfig_check:
        return None
    voters = _voters(parts)
    started = _started(voters) + 1
    if started < _quorum(len(voters) + 1):
        return _refuse(parts, "promote", NOT_ENOUGH_STARTED, started=started)
    return None


def _refuse(parts: Parts, what: str, refusal: Refusal, **counts: int) -> Refusal:
    parts.logger.warning(
        f"rejecting member {what} request",
        local_member_id=f"{parts.member_id:x}",
        error=refusal.text,
        **counts,
    )
    return refusal


def _voters(parts: Parts) -> list[Member]:
    return [member for member in parts.state.membership.members.values() if not member.is_learner]


def _started(voters: Sequence[Member]) -> int:
    return sum(member.is_started for member in voters)


def _connected(parts: Parts, voters: Sequence[Member], now_ns: int) -> int:
    return sum(voter.id == parts.member_id or _is_up(parts, voter.id, now_ns) for voter in voters)


def _is_up(parts: Parts, member_id: int, now_ns: int) -> bool:
    since_ns = parts.replication.peers.active_since_ns(member_id)
    return since_ns is not None and since_ns < now_ns - HEALTH_INTERVAL_NS


def _quorum(count: int) -> int:
    return count // 2 + 1
