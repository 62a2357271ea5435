"""Clusters of etcd 3.5.1 and ours: every ratio, each side as leader, and from one to the other.

Writes, nested transactions, leases that end, compactions and watchers run all the while; the
history is checked, and all members must hold the same (see `tests/support/cluster/load.py`).

While one member is etcd 3.5 the cluster's version is 3.5, and the way back is open. Once all are
ours it is 3.7, as it would be with etcd 3.7, and the way back is a downgrade.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.cluster.load import Load
from tests.support.cluster.servers import Cluster, Member, cluster
from tests.support.rpc_client import Client

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FLAGS = ["--snapshot-count=300"]
UNCHECKED = "--strict-reconfig-check=false"  # else all must be connected for 5 s before a change
IS_LONG = "KVSTORE_TEST_KILLS" in os.environ
WAY = ((0, "o"), (1, "o"), (0, "e"), (2, "o"), (1, "e"), (2, "e"))  # one is etcd at any time
TRIES = 5  # a write that is lost while the leadership moves, or a member ends, is made again


@pytest.mark.parametrize("kinds", ["oee", "ooe"])
def test_each_side_leads(tmp_path: Path, kinds: str) -> None:
    with cluster(tmp_path, kinds, extra=FLAGS) as members:
        with Load(members, compacts=True) as load:
            for number in (0, 2, 0, 2):
                members.move_leader(members[number])
                load.wait_for_progress(50)
        load.check(is_mixed=True)


def test_the_leader_is_killed(tmp_path: Path) -> None:
    with cluster(tmp_path, "ooe", extra=FLAGS) as members:
        with Load(members) as load:
            for number in (0, 2):
                members.move_leader(members[number])
                load.wait_for_progress()
                members[number].kill()
                load.wait_for_progress(timeout_s=10)
                members[number].start(wait=False)
                members[number].wait_ready()
        load.check(is_mixed=True)


def test_members_are_replaced_by_the_other_kind(tmp_path: Path) -> None:
    with cluster(tmp_path, "eee", extra=[*FLAGS, UNCHECKED]) as members:
        with Load(members, tries=TRIES) as load:
            for kind in "ooeee":  # e e e, e e o, e o o, o o e, o e e, e e e
                load.wait_for_progress()
                old = members[0]
                load.avoid(old)
                new = members.make(kind)
                learner = members.join(new, is_learner=True)
                members.promote(learner)
                if members.leader() is old:
                    members.move_leader(new)
                members.remove(old)
            load.wait_for_progress()
        assert load.given_up == 0, load.errors
        load.check(is_mixed=True)


def test_a_promoted_member_is_a_voter_on_either_way_to_us(tmp_path: Path) -> None:
    """Its promotion, and what members publish, is not in the rows of an early etcd 3.5."""
    with cluster(tmp_path, "ee", extra=[*FLAGS, UNCHECKED]) as members:
        members.promote(members.join(members.make("e"), is_learner=True))
        with Client(members[0].endpoint) as client:
            for number in range(320):  # a snapshot's worth
                client.put(b"k", b"%d" % number)
        member = members[1]
        if members.leader() is member:
            members.move_leader(members[0])
        assert member.stop() in (0, -signal.SIGTERM)
        member.become("o")  # takes its directory over
        member.start(wait=False)
        member.wait_ready()
        assert described(members, member) == described(members, members[0])
        members.promote(members.join(members.make("o"), is_learner=True))  # is sent a snapshot
        for each in members.members[1:]:
            assert described(members, each) == described(members, members[0])


def described(members: Cluster, member: Member) -> list[tuple[str, int, bool]]:
    """Return what a member says of all: name, client URLs, whether it is a learner."""
    members.wait_equal()
    with Client(member.endpoint) as client:
        response = client.call(rpc.MEMBER_LIST, pb.MemberListRequest())
    return sorted((each.name, len(each.clientURLs), each.isLearner) for each in response.members)


def test_members_become_the_other_program(tmp_path: Path) -> None:
    with cluster(tmp_path, "eee", extra=FLAGS) as members:
        with Load(members, tries=TRIES) as load:
            for at, kind in WAY if IS_LONG else WAY[:3]:
                load.wait_for_progress()
                become(members, members[at], kind, load)
            load.wait_for_progress()
        assert load.given_up == 0, load.errors
        load.check(is_mixed=True)


def become(members: Cluster, member: Member, kind: str, load: Load) -> None:
    """Stop a member and go on with the other program on what it left."""
    if members.leader() is member:
        members.move_leader(members.followers()[0])
    if (
        member.kind == "e"
    ):  # which breaks off what is under way when it is told to end; ours does not
        load.avoid(member)
    assert member.stop() in (0, -signal.SIGTERM)
    if kind == "e":
        back = member.data_dir.with_name(f"{member.data_dir.name}-back")
        command = ["migrate", "--data-dir", str(member.data_dir), "--to=etcd", "--out", str(back)]
        subprocess.run([sys.executable, "-m", "kvstore.util", *command], check=True)
        shutil.rmtree(member.data_dir)
        back.rename(member.data_dir)
    member.become(kind)
    member.start(wait=False)
    member.wait_ready()
