"""A member that has lost the others goes on alone, with what was committed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstack.component.errors import ConfigError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.group import Group, GroupMember

FORCE = "--force-new-cluster"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    three = Group(tmp_path, ["a", "b", "c"])
    three.settle()
    three.run_for(1)
    three.put("a", b"kept", b"1")
    three.settle()
    yield three
    three.close()


def alone(group: Group, name: str) -> GroupMember:
    for other in list(group.members):
        group.stop(other)
    survivor = group.start(name, FORCE)
    group.run_until(lambda: survivor.node.is_ready, "going on alone")
    return survivor


def value(group: Group, name: str, key: bytes) -> list[bytes]:
    found = group.call(name, rpc.RANGE, pb.RangeRequest(key=key))
    return [kv.value for kv in found.kvs]


def test_one_of_three_goes_on_alone(group: Group) -> None:
    ids = {m.id for m in group.members.values()}
    survivor = alone(group, "b")
    assert value(group, "b", b"kept") == [b"1"]
    group.put("b", b"new", b"2")
    assert set(survivor.parts.state.membership.members) == {survivor.id}
    assert survivor.parts.state.membership.removed == ids - {survivor.id}
    assert survivor.parts.raft.conf_state.voters == (survivor.id,)
    group.stop("b")
    again = group.start("b")
    group.run_until(lambda: again.node.is_ready, "a plain restart")
    assert value(group, "b", b"new") == [b"2"]
    group.stop("b")
    group.start("b", FORCE)
    group.run_until(lambda: group.members["b"].node.is_ready, "forcing once more")
    assert value(group, "b", b"new") == [b"2"]


def test_what_was_not_committed_is_dropped(group: Group) -> None:
    assert group.leader is not None
    name = group.leader.name
    group.cuts.add(name)
    last = group.leader.parts.raft.last_index
    for at in range(5):
        group.begin(name, rpc.PUT, pb.PutRequest(key=b"lost%d" % at, value=b"x"))
    group.round()
    assert group.leader.parts.raft.last_index == last + 5
    group.cuts.clear()
    survivor = alone(group, name)
    assert survivor.logged("forcing restart member")[0]["discarded_entries"] == 5
    assert value(group, name, b"lost0") == []
    assert value(group, name, b"kept") == [b"1"]
    group.put(name, b"new", b"2")
    group.stop(name)
    again = group.start(name)
    group.run_until(lambda: again.node.is_ready, "a plain restart")
    assert value(group, name, b"new") == [b"2"]


def test_a_learner_goes_on_alone_as_a_voter(group: Group) -> None:
    group.run_for(6)
    urls = ["http://10.0.0.9:2380"]
    group.call("a", rpc.MEMBER_ADD, pb.MemberAddRequest(peerURLs=urls, isLearner=True))
    group.join("d", urls)
    group.settle()
    survivor = alone(group, "d")
    assert [m.is_learner for m in survivor.parts.state.membership.sorted_members()] == [False]
    assert value(group, "d", b"kept") == [b"1"]


def test_more_learners_than_allowed(group: Group) -> None:
    group.run_for(6)
    request = pb.MemberAddRequest(peerURLs=["http://10.0.0.9:2380"], isLearner=True)
    group.call("a", rpc.MEMBER_ADD, request)
    group.stop("a")
    group.learners_max = 0
    with pytest.raises(ConfigError, match="membership: too many learner members in cluster"):
        group.start("a")
    group.learners_max = 1
