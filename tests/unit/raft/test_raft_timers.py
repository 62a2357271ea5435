"""Time in ticks, one by one and in lumps."""

import pytest

from kvstore.raft.model import MessageType, Role
from tests.support.raft.node import Group


@pytest.fixture
def group() -> Group:
    group = Group(1, 2, 3)
    group.elect(1)
    return group


def test_a_leader_sends_heartbeats(group: Group) -> None:
    """A leader sends one heartbeat every heartbeat tick, also if several passed (Raft 5.2)."""
    for ticks in (1, 5):
        group[1].raft.tick_many(ticks)
        group[1].round()
        sent = group[1].take_sent()
        assert [(each.to, each.type) for each in sent] == [
            (2, MessageType.HEARTBEAT),
            (3, MessageType.HEARTBEAT),
        ]


def test_a_reachable_member_gets_a_heartbeat_at_once(group: Group) -> None:
    """A leader may send a heartbeat whenever it likes (Raft 5.2); followers have none to send."""
    for number in (1, 2):
        group[number].raft.report_reached()
        group[number].round()
    assert {(each.to, each.type) for each in group[1].take_sent()} == {
        (2, MessageType.HEARTBEAT),
        (3, MessageType.HEARTBEAT),
    }
    assert group[2].take_sent() == []


def test_heartbeats_prevent_campaigns(group: Group) -> None:
    """Heartbeats in time keep everyone a follower (Raft 5.2)."""
    for _ in range(100):
        for node in group.nodes.values():
            node.raft.tick()
        group.settle()
    assert {node.raft.term for node in group.nodes.values()} == {2}


def test_a_leader_without_a_quorum_steps_down(group: Group) -> None:
    """A leader without messages of a majority for an election timeout steps down (thesis 6.2)."""
    group.cut = {1}
    for _ in range(20):
        group[1].raft.tick()
        group.settle()
    assert group[1].raft.role is Role.FOLLOWER
    assert group[1].raft.lead == 0


def test_many_ticks_at_once_decide_nothing(group: Group) -> None:
    """What arrived during a pause is read before anybody acts on the silence."""
    group[2].raft.tick_many(100)
    assert group[2].raft.role is Role.FOLLOWER
    group[1].raft.tick_many(19)
    assert group[1].raft.is_leader
    group.settle()  # the answers to what was sent
    for _ in range(5):
        group[1].raft.tick()
        group[2].raft.tick()
        group.settle()
    assert group[1].raft.is_leader
    assert group[2].raft.lead == 1


def test_many_ticks_at_once_still_lead_to_a_campaign(group: Group) -> None:
    """A member whose every turn is late campaigns all the same."""
    group.cut = {1}
    for _ in range(10):
        group[2].raft.tick_many(3)
    assert group[2].raft.role is Role.PRE_CANDIDATE


def test_a_leader_stopped_for_too_long_steps_down(group: Group) -> None:
    """After a stall longer than any election timeout the others have moved on; so does it."""
    group[1].raft.tick_many(20)
    assert group[1].raft.role is Role.FOLLOWER
    group.settle()
    assert group[1].raft.lead == 0
