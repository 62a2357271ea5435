"""Quorums against the definition, by brute force over small sets."""

from itertools import product

from kvstore.raft.model import UINT64_MAX
from kvstore.raft.quorum import (
    VoteResult,
    joint_index,
    joint_vote,
    majority_index,
    majority_vote,
)


def test_majority_index_by_definition() -> None:
    """An index is committed once it is on a majority (Raft 5.3): the greatest such one."""
    for size in range(1, 6):
        voters = range(1, size + 1)
        for indexes in product(range(4), repeat=size):
            acked = dict(zip(voters, indexes, strict=True))
            reached = [
                index
                for index in range(4)
                if 2 * sum(1 for each in indexes if each >= index) > size
            ]
            assert majority_index(voters, acked) == max(reached)


def test_a_missing_voter_counts_as_zero() -> None:
    """A voter that has acknowledged nothing counts as 0; members that do not vote do not count."""
    assert majority_index({1, 2}, {1: 9, 3: 9}) == 0
    assert majority_index({1, 2, 3}, {1: 9, 2: 4}) == 4


def test_majority_vote_by_definition() -> None:
    """Won with a majority of yes, lost once that is out of reach, open else."""
    for size in range(1, 6):
        voters = range(1, size + 1)
        for answers in product((True, False, None), repeat=size):
            votes = {
                voter: answer
                for voter, answer in zip(voters, answers, strict=True)
                if answer is not None
            }
            yes, no = answers.count(True), answers.count(False)
            if 2 * yes > size:
                expected = VoteResult.WON
            elif 2 * (size - no) <= size:
                expected = VoteResult.LOST
            else:
                expected = VoteResult.PENDING
            assert majority_vote(voters, votes) is expected


def test_joint_needs_both_majorities() -> None:
    """In joint consensus every decision needs a majority of the old and of the new (Raft 6)."""
    acked = {1: 9, 2: 5, 3: 5, 4: 1, 5: 1}
    assert joint_index({1, 2, 3}, {1, 4, 5}, acked) == 1
    assert joint_index({1, 2, 3}, (), acked) == 5
    assert joint_index((), (), acked) == UINT64_MAX
    yes = {1: True, 2: True}
    assert joint_vote({1, 2, 3}, (), yes) is VoteResult.WON
    assert joint_vote({1, 2, 3}, {1, 4, 5}, yes) is VoteResult.PENDING
    assert joint_vote({1, 2, 3}, {1, 4, 5}, {**yes, 4: False, 5: False}) is VoteResult.LOST
