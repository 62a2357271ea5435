"""Quorum arithmetic: what voters have acknowledged together, and how a vote stands.

A configuration in force has one set of voters, or, in joint consensus, two that must both agree:
each decides by its own majority, so the commit index is the smaller of both and a vote is won
only where both are won. The empty set agrees to everything, which makes a joint rule out of two
plain ones.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Final

INDEX_MAX: Final = 2**64 - 1


class VoteResult(IntEnum):
    """How an election stands; ordered so that the smaller of two halves decides."""

    LOST = 0
    PENDING = 1
    WON = 2


def majority_index(voters: Collection[int], acked: Mapping[int, int]) -> int:
    """Return the highest index more than half of voters have reached; a missing one has 0."""
    if not voters:
        return INDEX_MAX
    ascending = sorted(acked.get(voter, 0) for voter in voters)
    return ascending[(len(ascending) - 1) // 2]


def joint_index(
    incoming: Collection[int], outgoing: Collection[int], acked: Mapping[int, int]
) -> int:
    """Return the highest index that majorities of both sets have reached."""
    return min(majority_index(incoming, acked), majority_index(outgoing, acked))


def majority_vote(voters: Collection[int], votes: Mapping[int, bool]) -> VoteResult:
    """Tell how an election stands among voters; who is missing from votes may still answer."""
    needed = len(voters) // 2 + 1
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    if not voters or granted >= needed:
        return VoteResult.WON
    unanswered = sum(1 for voter in voters if voter not in votes)
    return VoteResult.PENDING if granted + unanswered >= needed else VoteResult.LOST


def joint_vote(
    incoming: Collection[int], outgoing: Collection[int], votes: Mapping[int, bool]
) -> VoteResult:
    """Tell how an election stands that both sets have to win."""
    return min(majority_vote(incoming, votes), majority_vote(outgoing, votes))
