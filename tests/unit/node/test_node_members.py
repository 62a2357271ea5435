"""Who belongs to the cluster: the calls, their checks, and what becomes of those concerned."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.message import Message

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.group import Group
from tests.support.node.harness import CallError

D_URLS = ["http://10.0.0.9:2380"]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    three = Group(tmp_path, ["a", "b", "c"])
    three.settle()
    three.run_for(6)  # connected for long enough to change members
    yield three
    three.close()


def names(group: Group, of: str) -> list[tuple[str, bool]]:
    listed = group.call(of, rpc.MEMBER_LIST, pb.MemberListRequest(linearizable=True))
    return sorted((member.name, member.isLearner) for member in listed.members)


def follower(group: Group) -> str:
    return next(name for name, m in group.members.items() if m is not group.leader)


def refused(group: Group, name: str, method: int, request: Message) -> str:
    with pytest.raises(CallError) as caught:
        group.call(name, method, request)
    return caught.value.text


def test_three_first_members_agree(group: Group) -> None:
    assert len({m.parts.cluster_id for m in group.members.values()}) == 1
    group.put("b", b"k", b"v")
    for name in group.members:
        assert names(group, name) == [("a", False), ("b", False), ("c", False)]
    assert {m.parts.state.membership.cluster_version for m in group.members.values()} == {"3.7.0"}


@pytest.mark.parametrize("through", ["leader", "follower"])
def test_a_member_is_added_and_joins(group: Group, through: str) -> None:
    assert group.leader is not None
    name = group.leader.name if through == "leader" else follower(group)
    added = group.call(name, rpc.MEMBER_ADD, pb.MemberAddRequest(peerURLs=D_URLS))
    assert added.member.ID in {member.ID for member in added.members}
    assert len(added.members) == 4
    assert added.header.revision == 0
    joined = group.join("d", D_URLS)
    assert joined.id == added.member.ID
    group.settle()
    group.put("d", b"k", b"v")
    assert names(group, "d") == [("a", False), ("b", False), ("c", False), ("d", False)]
    assert joined.parts.state.store.revision == 2


def test_invalid_urls(group: Group) -> None:
    for urls in ([], ["10.0.0.9:2380"], ["http://10.0.0.9"], ["http://10.0.0.9:1/x"]):
        text = refused(group, "a", rpc.MEMBER_ADD, pb.MemberAddRequest(peerURLs=urls))
        assert text == "etcdserver: given member URLs are invalid"


def test_urls_that_are_taken(group: Group) -> None:
    for urls in (group.urls["a"], [*D_URLS, *group.urls["b"]]):
        text = refused(group, "c", rpc.MEMBER_ADD, pb.MemberAddRequest(peerURLs=urls))
        assert text == "etcdserver: Peer URLs already exists"


def test_members_that_have_not_been_connected_for_long(tmp_path: Path) -> None:
    group = Group(tmp_path, ["a", "b", "c"])
    group.settle()
    for member in group.members.values():
        member.links.active_since = {m.id: group.clock.now_ns for m in group.members.values()}
    text = refused(group, "a", rpc.MEMBER_ADD, pb.MemberAddRequest(peerURLs=D_URLS))
    assert text == "etcdserver: unhealthy cluster"
    gone = group.members["c"].id
    text = refused(group, "a", rpc.MEMBER_REMOVE, pb.MemberRemoveRequest(ID=gone))
    assert text == "etcdserver: unhealthy cluster"
    group.close()


def test_a_member_that_is_down_may_be_removed(group: Group) -> None:
    group.cuts.add("c")
    gone = group.members["c"].id
    removed = group.call("a", rpc.MEMBER_REMOVE, pb.MemberRemoveRequest(ID=gone))
    assert len(removed.members) == 2
    assert group.members["a"].links.known.keys() == {group.members["b"].id}
    text = refused(group, "b", rpc.MEMBER_REMOVE, pb.MemberRemoveRequest(ID=gone))
    assert text == "etcdserver: member not found"


def test_not_enough_started_members(group: Group) -> None:
    group.call("a", rpc.MEMBER_ADD, pb.MemberAddRequest(peerURLs=D_URLS))
    more = ["http://10.0.0.10:2380"]
    group.cuts.clear()
    added = group.call("a", rpc.MEMBER_ADD, pb.MemberAddRequest(peerURLs=more))
    assert len(added.members) == 5
    last = ["http://10.0.0.11:2380"]
    text = refused(group, "a", rpc.MEMBER_ADD, pb.MemberAddRequest(peerURLs=last))
    assert text == "etcdserver: re-configuration failed due to not enough started members"
    gone = group.members["c"].id
    text = refused(group, "a", rpc.MEMBER_REMOVE, pb.MemberRemoveRequest(ID=gone))
    assert text == "etcdserver: re-configuration failed due to not enough started members"


def test_without_strict_checks_anything_goes(tmp_path: Path) -> None:
    group = Group(tmp_path, ["a", "b", "c"], ["--strict-reconfig-check=false"])
    group.settle()
    for member in group.members.values():
        member.links.active_since = {m.id: None for m in group.members.values()}
    for at in (9, 10):
        urls = [f"http://10.0.0.{at}:2380"]
        group.call("a", rpc.MEMBER_ADD, pb.MemberAddRequest(peerURLs=urls))
    group.close()


def test_the_removed_member_ends_and_its_id_is_not_used_again(group: Group) -> None:
    name = follower(group)
    gone = group.members[name]
    group.call(name, rpc.MEMBER_REMOVE, pb.MemberRemoveRequest(ID=gone.id))
    group.run_until(lambda: gone.node.is_removed, "the end of the removed member")
    group.stop(name)
    other = next(iter(group.members))
    assert gone.id in group.members[other].parts.state.membership.removed
    group.run_until(lambda: group.leader is not None)
    group.put(other, b"k", b"v")


def test_the_removed_leader_ends(group: Group) -> None:
    assert group.leader is not None
    gone = group.leader
    other = follower(group)
    group.call(other, rpc.MEMBER_REMOVE, pb.MemberRemoveRequest(ID=gone.id))
    group.run_until(lambda: gone.node.is_removed, "the end of the removed member")
    group.stop(gone.name)
    group.run_until(lambda: group.leader is not None, "an election")
    group.put(other, b"k", b"v")


def test_peer_urls_are_updated(group: Group) -> None:
    moved = group.members["b"].id
    request = pb.MemberUpdateRequest(ID=moved, peerURLs=D_URLS)
    updated = group.call("a", rpc.MEMBER_UPDATE, request)
    assert {m.ID: list(m.peerURLs) for m in updated.members}[moved] == D_URLS
    group.run_for(0.2)
    assert group.members["c"].links.known[moved] == D_URLS
    request = pb.MemberUpdateRequest(ID=moved, peerURLs=group.urls["a"])
    assert refused(group, "a", rpc.MEMBER_UPDATE, request) == "etcdserver: Peer URLs already exists"
    request = pb.MemberUpdateRequest(ID=12345, peerURLs=["http://10.0.0.77:1"])
    assert refused(group, "a", rpc.MEMBER_UPDATE, request) == "etcdserver: member not found"


def add_learner(group: Group) -> int:
    request = pb.MemberAddRequest(peerURLs=D_URLS, isLearner=True)
    added = group.call(follower(group), rpc.MEMBER_ADD, request)
    assert added.member.isLearner
    return int(added.member.ID)


@pytest.mark.parametrize("through", ["leader", "follower"])
def test_a_learner_is_promoted(group: Group, through: str) -> None:
    learner = add_learner(group)
    group.join("d", D_URLS)
    group.settle()
    assert group.leader is not None
    assert names(group, "a")[-1] == ("d", True)
    who = group.leader.name if through == "leader" else follower(group)
    promoted = group.call(who, rpc.MEMBER_PROMOTE, pb.MemberPromoteRequest(ID=learner))
    assert [m.isLearner for m in promoted.members] == [False] * 4
    group.run_for(0.2)
    assert learner in group.leader.parts.raft.conf_state.voters
    text = refused(group, who, rpc.MEMBER_PROMOTE, pb.MemberPromoteRequest(ID=learner))
    assert text == "etcdserver: can only promote a learner member"


def test_a_learner_that_is_behind(group: Group) -> None:
    learner = add_learner(group)
    for name in (follower(group), group.leader.name if group.leader else ""):
        text = refused(group, name, rpc.MEMBER_PROMOTE, pb.MemberPromoteRequest(ID=learner))
        assert text == (
            "etcdserver: can only promote a learner member which is in sync with leader"
        )


def test_nobody_to_promote(group: Group) -> None:
    for name in group.members:
        text = refused(group, name, rpc.MEMBER_PROMOTE, pb.MemberPromoteRequest(ID=77))
        assert text == "etcdserver: member not found"


def test_promotion_goes_on_when_the_leader_answers_again(group: Group) -> None:
    learner = add_learner(group)
    group.join("d", D_URLS)
    group.settle()
    assert group.leader is not None
    group.refusing.add(group.leader.name)
    name = follower(group)
    call_id = group.begin(name, rpc.MEMBER_PROMOTE, pb.MemberPromoteRequest(ID=learner))
    group.run_for(2)
    assert call_id not in group.members[name].answers
    group.refusing.clear()
    assert pb.MemberPromoteResponse.FromString(group.wait(name, call_id)).members


def test_promotion_times_out(group: Group) -> None:
    learner = add_learner(group)
    group.join("d", D_URLS)
    group.settle()
    assert group.leader is not None
    group.refusing.add(group.leader.name)
    text = refused(group, follower(group), rpc.MEMBER_PROMOTE, pb.MemberPromoteRequest(ID=learner))
    assert text == "etcdserver: request timed out"


def test_one_learner_at_a_time(group: Group) -> None:
    add_learner(group)
    request = pb.MemberAddRequest(peerURLs=["http://10.0.0.10:2380"], isLearner=True)
    text = refused(group, "a", rpc.MEMBER_ADD, request)
    assert text == "etcdserver: too many learner members in cluster"


@pytest.mark.parametrize("through", ["leader", "follower"])
def test_changes_at_once_come_one_after_the_other(group: Group, through: str) -> None:
    assert group.leader is not None
    name = group.leader.name if through == "leader" else follower(group)
    ids = [m.id for m in group.members.values()]
    calls = [
        group.begin(
            name,
            rpc.MEMBER_UPDATE,
            pb.MemberUpdateRequest(ID=each, peerURLs=[f"http://10.0.1.{at}:1"]),
        )
        for at, each in enumerate(ids)
    ]
    for call_id in calls:
        group.wait(name, call_id)
    members = group.members[name].parts.state.membership.members
    assert [members[each].peer_urls for each in ids] == [
        [f"http://10.0.1.{at}:1"] for at in range(3)
    ]
