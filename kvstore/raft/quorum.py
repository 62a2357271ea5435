"""Quorum arithmetic: what a majority has acknowledged, and the result of a vote.

A configuration has one set of voters, or, in joint consensus, two that must both agree. Each set
decides by its own majority, so the commit index is the smaller of both, and a vote is won only if
both are won. The empty set agrees to everything, so the joint rule also covers a single set.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum

from kvstore.raft.model import UINT64_MAX


class VoteResult(IntEnum):
    """The result of a vote; ordered so that the smaller result of two sets decides."""

    LOST = 0
    PENDING = 1
    WON = 2


def majority_index(voters: Collection[int], acked: Mapping[int, int]) -> int:
    """Return the highest index that a majority of voters has reached; a missing one counts as 0."""
    if not voters:
        return UINT64_MAX
    ascending = sorted(acked.get(voter, 0) for voter in voters)
    return ascending[(len(ascending) - 1) // 2]


def joint_index(
    incoming: Collection[int], outgoing: Collection[int], acked: Mapping[int, int]
) -> int:
    """Return the highest index that majorities of both sets have reached."""
    return min(majority_index(incoming, acked), majority_index(outgoing, acked))


def majority_vote(voters: Collection[int], votes: Mapping[int, bool]) -> VoteResult:
    """Return the result of a vote among voters; those missing from votes may still answer."""
    needed = len(voters) // 2 + 1
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    if not voters or granted >= needed:
        return VoteResult.WON
    unanswered = sum(1 for voter in voters if voter not in votes)
    return VoteResult.PENDING if granted + unanswered >= needed else VoteResult.LOST


def joint_vote(
    incoming: Collection[int], outgoing: Collection[int], votes: Mapping[int, bool]
) -> VoteResult:
    """Return the result of a vote that both sets have to win."""
    return min(majority_vote(incoming, votes), majority_vote(outgoing, votes))
