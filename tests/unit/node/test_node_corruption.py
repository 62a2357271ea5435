"""Members whose data differs are found, named, fenced off, and let in again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.message import Message

from kvstore.backend import Table
from kvstore.errors import CorruptionError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.group import Group, GroupMember
from tests.support.node.harness import CallError

CORRUPT = pb.AlarmType.CORRUPT
FENCED = "is fenced off: its data differs from the other members'; it must be rebuilt from them"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    three = Group(tmp_path, ["a", "b", "c"])
    begin(three)
    yield three
    three.close()


def begin(group: Group) -> None:
    group.settle()
    group.run_for(1)
    for at in range(10):
        group.put("a", b"k%d" % (at % 4), b"v%d" % at)
    group.settle()


def spoil(member: GroupMember) -> None:
    """Change the newest record behind the member's back, and back again."""
    store, backend = member.parts.state.store, member.parts.state.backend
    store.flush()
    key, kv = backend.scan(Table.KEY, b"", None, 1000)[-1]
    backend.put(Table.KEY, key, kv[:-1] + bytes((kv[-1] ^ 1,)))


def alarms(group: Group) -> list[int]:
    found = {tuple(m.parts.state.alarms.raised(CORRUPT)) for m in group.members.values()}
    assert len(found) == 1, found
    return [member for member, _ in found.pop()]


def compact(group: Group, revision: int) -> None:
    request = pb.CompactionRequest(revision=revision, physical=True)
    group.call("a", rpc.COMPACT, request)
    group.run_for(1)


def follower(group: Group) -> GroupMember:
    return next(m for m in group.members.values() if m is not group.leader)


def refused(group: Group, name: str, method: int, request: Message) -> tuple[int, str]:
    with pytest.raises(CallError) as caught:
        group.call(name, method, request)
    return caught.value.code, caught.value.text


def test_equal_members_get_no_alarm(group: Group) -> None:
    compact(group, 5)
    group.idle_for(1300)
    assert alarms(group) == []
    assert group.leader is not None
    assert group.leader.logged("finished compaction hash check")
    assert len(group.leader.logged("finished peer corruption check")) == 2


def test_a_compaction_finds_the_one_that_differs(group: Group) -> None:
    wrong = follower(group)
    spoil(wrong)
    compact(group, 11)
    group.idle_for(70)
    assert alarms(group) == [wrong.id]


def test_a_compaction_finds_that_the_leader_differs(group: Group) -> None:
    assert group.leader is not None
    wrong = group.leader
    spoil(wrong)
    compact(group, 11)
    group.idle_for(70)
    assert alarms(group) == [wrong.id]
    group.run_for(5)
    assert group.leader is not wrong, "a member that is fenced off goes on leading"


def test_a_default_check_finds_it_too_and_checks_twice(group: Group) -> None:
    wrong = follower(group)
    spoil(wrong)
    group.idle_for(600)
    assert group.leader is not None
    assert len(group.leader.logged("found data inconsistency with peers")) == 1
    assert alarms(group) == []
    group.run_for(11)
    assert alarms(group) == [wrong.id]


def test_a_configured_check_raises_the_alarm_at_once(tmp_path: Path) -> None:
    group = Group(tmp_path, ["a", "b", "c"], ["--corrupt-check-time=5s"])
    begin(group)
    wrong = follower(group)
    spoil(wrong)
    group.run_for(6)
    assert alarms(group) == [wrong.id]
    group.close()


def test_a_compaction_at_revision_0_hides_nothing(tmp_path: Path) -> None:
    group = Group(tmp_path, ["a", "b", "c"], ["--corrupt-check-time=5s"])
    begin(group)
    compact(group, 0)  # whose hash is what etcd answers from then on for revision 0, the newest
    compact(group, 5)
    wrong = follower(group)
    spoil(wrong)
    group.run_for(6)
    assert alarms(group) == [wrong.id]
    group.close()


def test_a_member_that_is_ahead_of_its_leader(tmp_path: Path) -> None:
    group = Group(tmp_path, ["a", "b", "c"], ["--corrupt-check-time=5s"])
    begin(group)
    wrong = follower(group)
    wrong.parts.state.store.revision += 5
    group.run_for(6)
    assert alarms(group) == [wrong.id]
    group.close()


def test_without_a_majority_a_default_check_raises_no_alarm(tmp_path: Path) -> None:
    group = Group(tmp_path, ["a", "b"])
    begin(group)
    spoil(follower(group))
    compact(group, 11)
    group.idle_for(700)
    assert alarms(group) == []
    assert group.leader is not None
    assert group.leader.logged("found data inconsistency with peers")
    group.close()


def test_without_a_majority_a_configured_check_raises_the_alarm(tmp_path: Path) -> None:
    group = Group(tmp_path, ["a", "b"], ["--feature-gates=CompactHashCheck=true"])
    begin(group)
    spoil(follower(group))
    compact(group, 11)
    group.idle_for(70)
    assert alarms(group) == [0]
    for name in group.members:
        group.call(name, rpc.RANGE, pb.RangeRequest(key=b"k1"))
        assert refused(group, name, rpc.PUT, pb.PutRequest(key=b"k")) == (
            15,
            "etcdserver: corrupt cluster",
        )
    group.close()


def test_older_releases_are_not_compared_by_default(tmp_path: Path) -> None:
    group = Group(tmp_path, ["a", "b", "c"])
    for member in group.members.values():
        member.version = "3.5.1"
    begin(group)
    spoil(follower(group))
    compact(group, 11)
    group.idle_for(700)
    assert alarms(group) == []
    group.close()


def test_behind_the_fence(group: Group) -> None:
    wrong = follower(group)
    watch = 777
    wrong.inbox.opened.append((watch, rpc.WATCH))
    group.round()
    spoil(wrong)
    compact(group, 11)
    ended: list[tuple[int, int, bytes]] = []
    for _ in range(70 * 50):
        group.clock.now_ns += 20_000_000
        for member in group.members.values():
            group._answer_tasks(member)
            ended += [end for end in member.turn().ends if member is wrong]
    assert [(stream, code) for stream, code, _ in ended] == [(watch, 14)]
    told = f"etcdserver: member {wrong.id:x} {FENCED}"
    for method, request in (
        (rpc.RANGE, pb.RangeRequest(key=b"k1")),
        (rpc.RANGE, pb.RangeRequest(key=b"k1", serializable=True)),
        (rpc.TXN, pb.TxnRequest()),
        (rpc.PUT, pb.PutRequest(key=b"k1")),
        (rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=10)),
    ):
        assert refused(group, wrong.name, method, request) == (14, told)
    status = group.call(wrong.name, rpc.STATUS, pb.StatusRequest())
    assert f"memberID:{wrong.id} alarm:CORRUPT" in status.errors
    group.call(wrong.name, rpc.MEMBER_LIST, pb.MemberListRequest(linearizable=True))
    group.call(wrong.name, rpc.HASH_KV, pb.HashKVRequest())
    line = wrong.logged(
        "this member's data differs from the others': it is fenced off and serves no data. "
        "To rebuild it, restart it with the flag below in addition to its present ones"
    )
    assert [each["flag"] for each in line] == ["--rebuild-from-peers=http://localhost:2379"]
    sound = next(m for m in group.members.values() if m is not wrong)
    assert group.call(sound.name, rpc.RANGE, pb.RangeRequest(key=b"k1")).count == 1
    assert refused(group, sound.name, rpc.PUT, pb.PutRequest(key=b"k"))[0] == 15
    disarm = pb.AlarmRequest(
        action=pb.AlarmRequest.DEACTIVATE, memberID=wrong.id, alarm=pb.AlarmType.CORRUPT
    )
    group.call(sound.name, rpc.ALARM, disarm)
    group.run_for(1)
    assert group.call(wrong.name, rpc.RANGE, pb.RangeRequest(key=b"k1")).count == 1


def restart(group: Group, name: str, *flags: str) -> GroupMember:
    group.stop(name)
    return group.start(name, *flags)


def test_a_restarted_member_raises_its_own_alarm(group: Group) -> None:
    name = follower(group).name
    spoil(group.members[name])
    wrong = restart(group, name)
    group.run_until(lambda: wrong.node.is_ready, "joining")
    group.run_for(5)
    assert len(wrong.logged("found data inconsistency with peers")) == 1
    assert alarms(group) == []
    group.run_for(12)
    assert alarms(group) == [wrong.id]
    again = restart(group, name)
    group.run_until(lambda: again.node.is_ready, "joining")
    assert refused(group, name, rpc.PUT, pb.PutRequest(key=b"k1"))[0] == 14


def test_a_restarted_member_without_differences(group: Group) -> None:
    back = restart(group, follower(group).name)
    group.run_until(lambda: back.node.is_ready, "joining")
    group.run_for(5)
    assert back.logged("initial corruption checking passed; no corruption")


def test_a_restarted_member_must_not_serve_before_it_is_compared(group: Group) -> None:
    gate = "--feature-gates=InitialCorruptCheck=true"
    name = follower(group).name
    back = restart(group, name, gate)
    group.run_until(lambda: back.node.is_ready, "joining")
    assert back.logged("initial corruption checking passed; no corruption")
    spoil(back)
    restart(group, name, gate)
    with pytest.raises(CorruptionError, match="found data inconsistency with peers"):
        group.run_for(5)


def test_nobody_answers_a_member_that_starts(group: Group) -> None:
    name = follower(group).name
    group.refusing |= set(group.members) - {name}
    back = restart(group, name, "--feature-gates=InitialCorruptCheck=true")
    group.run_until(lambda: back.node.is_ready, "joining")


def test_the_others_have_compacted_what_a_member_has(group: Group) -> None:
    """It serves at once, gate or not, and is compared when it has the compaction too."""
    name = follower(group).name
    for flags in ([], ["--feature-gates=InitialCorruptCheck=true"]):
        group.stop(name)
        asked = next(iter(group.members))
        for at in range(10):
            group.put(asked, b"k%d" % (at % 4), b"w%d" % at)
        revision = next(iter(group.members.values())).parts.state.store.revision
        compaction = pb.CompactionRequest(revision=revision, physical=True)
        group.call(asked, rpc.COMPACT, compaction)
        back = group.start(name, *flags)
        before_ns = group.clock.now_ns
        group.settle()
        group.run_for(1)
        assert group.clock.now_ns - before_ns < 5 * 10**9
        assert back.parts.state.store.compacted == revision
        passed = back.logged("initial corruption checking passed; no corruption")
        assert len(passed) == len(flags) + 1


def test_a_rebuilt_member_clears_its_alarm_when_the_others_agree(group: Group) -> None:
    wrong = follower(group)
    accuse = pb.AlarmRequest(
        action=pb.AlarmRequest.ACTIVATE, memberID=wrong.id, alarm=pb.AlarmType.CORRUPT
    )
    spoil(wrong)
    group.call("a", rpc.ALARM, accuse)
    wrong.parts.limits.is_rebuilt = True
    group.run_for(10)
    assert alarms(group) == [wrong.id]
    spoil(wrong)  # twice is as good as never
    group.run_for(5)
    assert alarms(group) == []
    group.put(wrong.name, b"k", b"v")
