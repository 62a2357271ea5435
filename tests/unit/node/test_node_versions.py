"""The cluster's version follows its members'; downgrades are checked, begun and ended."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.errors import DataDirError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.group import Group
from tests.support.node.harness import CallError

VALIDATE, ENABLE, CANCEL = (
    pb.DowngradeRequest.VALIDATE,
    pb.DowngradeRequest.ENABLE,
    pb.DowngradeRequest.CANCEL,
)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    three = Group(tmp_path, ["a", "b", "c"])
    yield three
    three.close()


def versions(group: Group) -> set[str | None]:
    return {member.parts.state.membership.cluster_version for member in group.members.values()}


def downgrade(
    group: Group, name: str, action: pb.DowngradeRequest.DowngradeAction, version: str = ""
) -> str:
    request = pb.DowngradeRequest(action=action, version=version)
    return str(group.call(name, rpc.DOWNGRADE, request).version)


def refused(
    group: Group, name: str, action: pb.DowngradeRequest.DowngradeAction, version: str
) -> tuple[int, str]:
    with pytest.raises(CallError) as caught:
        downgrade(group, name, action, version)
    return caught.value.code, caught.value.text


def test_one_member_decides_at_once(tmp_path: Path) -> None:
    group = Group(tmp_path, ["a"])
    group.settle()
    group.run_for(0.2)
    assert versions(group) == {"3.7.0"}
    group.close()


def test_status_has_a_storage_version_from_the_start(tmp_path: Path) -> None:
    """Before the database commits for the first time, too: that of the cluster once it is known."""
    group = Group(tmp_path, ["a"])
    group.run_until(lambda: group.leader is not None)
    before = group.call("a", rpc.STATUS, pb.StatusRequest()).storageVersion
    assert before in ("3.5.0", "3.7.0")
    group.run_until(lambda: versions(group) == {"3.7.0"})
    assert group.call("a", rpc.STATUS, pb.StatusRequest()).storageVersion == "3.7.0"
    group.close()


def test_the_least_version_counts(group: Group) -> None:
    group.run_until(lambda: group.leader is not None)
    one, other = (m for m in group.members.values() if m is not group.leader)
    one.version, other.version = "3.5.9", "3.6.2-rc.1"
    group.settle()
    group.run_for(1)
    assert versions(group) == {"3.5.0"}
    one.version = "3.7.1"
    group.run_for(5)
    assert versions(group) == {"3.6.0"}
    other.version = "3.8.0"
    group.run_for(5)
    assert versions(group) == {"3.7.0"}
    other.version = "3.6.0"
    group.run_for(9)
    assert versions(group) == {"3.7.0"}


def test_a_member_that_does_not_answer(group: Group) -> None:
    group.refusing |= {"a", "b", "c"}
    group.settle()
    group.run_for(1)
    assert versions(group) == {"3.0.0"}
    group.run_for(5)
    assert versions(group) == {"3.0.0"}
    group.refusing.clear()
    group.run_for(5)
    assert versions(group) == {"3.7.0"}


def test_an_invalid_version_in_an_answer(group: Group) -> None:
    group.members["a"].version = group.members["b"].version = "none of your business"
    group.settle()
    group.run_for(5)
    assert versions(group) == {"3.0.0"}


@pytest.mark.parametrize(
    ("version", "code", "text"),
    [
        ("", 3, "etcdserver: wrong downgrade target version format"),
        ("3.x", 3, "etcdserver: wrong downgrade target version format"),
        ("3.5", 3, "etcdserver: invalid downgrade target version"),
        ("3.7.0", 3, "etcdserver: invalid downgrade target version"),
        ("3.8.0", 3, "etcdserver: invalid downgrade target version"),
    ],
)
def test_invalid_targets(group: Group, version: str, code: int, text: str) -> None:
    group.settle()
    group.run_for(5)
    for name in group.members:
        assert refused(group, name, VALIDATE, version) == (code, text)
        assert refused(group, name, ENABLE, version) == (code, text)


def test_a_downgrade_from_its_beginning_to_its_end(group: Group) -> None:
    group.settle()
    group.run_for(5)
    assert downgrade(group, "a", VALIDATE, "3.6") == "3.7"
    assert downgrade(group, "b", ENABLE, "3.6.0") == "3.7"
    assert refused(group, "c", ENABLE, "3.6.0") == (
        9,
        "etcdserver: cluster has a downgrade job in progress",
    )
    group.run_for(10)
    assert versions(group) == {"3.6.0"}
    status = group.call("c", rpc.STATUS, pb.StatusRequest())
    assert (status.downgradeInfo.enabled, status.downgradeInfo.targetVersion) == (True, "3.6.0")
    assert status.storageVersion == "3.6.0"
    leader = group.leader
    assert leader is not None
    for member in group.members.values():
        if member is not leader:
            member.version = "3.6.4"
    group.run_for(10)
    assert {m.parts.state.membership.downgrade_target for m in group.members.values()} == {"3.6.0"}
    assert not leader.logged("the cluster has been downgraded")


def test_the_end_of_a_downgrade(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    group.settle()
    group.run_for(5)
    downgrade(group, "b", ENABLE, "3.6.0")
    group.run_for(5)
    monkeypatch.setattr("kvstore.node.cluster.versions.SERVER_VERSION", "3.6.9")
    for member in group.members.values():
        member.version = "3.6.4"
    group.run_for(15)
    assert versions(group) == {"3.6.0"}
    assert {m.parts.state.membership.downgrade_target for m in group.members.values()} == {None}
    assert group.leader is not None
    assert group.leader.logged("the cluster has been downgraded")


def test_a_downgrade_is_cancelled(group: Group) -> None:
    group.settle()
    group.run_for(5)
    downgrade(group, "a", ENABLE, "3.6.0")
    group.run_for(5)
    assert versions(group) == {"3.6.0"}
    assert downgrade(group, "b", CANCEL) == "3.6"
    group.run_for(5)
    assert versions(group) == {"3.7.0"}
    assert downgrade(group, "b", CANCEL) == "3.7"


def test_before_the_version_is_known(tmp_path: Path) -> None:
    group = Group(tmp_path, ["a"])
    group.settle()
    group.members["a"].parts.state.membership.cluster_version = None
    assert refused(group, "a", VALIDATE, "3.6.0") == (
        9,
        "etcdserver: cluster version not found during downgrade",
    )
    group.close()


def test_a_lowered_version_takes_a_snapshot(group: Group) -> None:
    group.settle()
    group.run_for(5)
    downgrade(group, "a", ENABLE, "3.6.0")
    group.run_for(5)
    for member in group.members.values():
        assert len(member.logged("saved snapshot")) == 1
        told = member.logged("updated cluster version")
        assert [(line["before"], line["to"]) for line in told] == [("3.7.0", "3.6.0")]


def test_a_cluster_that_has_left_this_server_behind(group: Group) -> None:
    group.settle()
    with pytest.raises(DataDirError, match="invalid downgrade; server version is lower"):
        group.members["a"].parts.state.membership.set_version("3.8.0")
