"""A member without requests takes no turns, with a leader and without one."""

import pytest
from typing_extensions import override

from tests.support.cluster.harness import SECOND, Cluster, ClusterMember

FLAGS = ("--auto-compaction-retention=4s", "--quota-backend-bytes=60000")
TURNS_MAX_PER_S = 60  # heartbeats and their answers


class Counting(Cluster):
    """A cluster that counts the turns of its members."""

    turns = 0

    @override
    def turn(self, member: ClusterMember) -> None:
        self.turns += 1
        super().turn(member)


@pytest.mark.parametrize("left", [3, 1])
def test_no_member_turns_without_a_reason(left: int) -> None:
    cluster = Counting(3, flags=FLAGS)
    cluster.start()
    for member in cluster.members[left:]:
        member.kill()
    cluster.run_for(5 * SECOND)
    cluster.turns = 0
    cluster.run_for(10 * SECOND)
    assert cluster.turns < 10 * TURNS_MAX_PER_S * left
