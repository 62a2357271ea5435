"""Clusters of real processes under load while things break.

Each test ends with all faults removed: the cluster goes on within a bounded time, all members are
equal, and the history clients recorded is one that a single store could have given them (see
`tests/support/cluster/history.py`).

KVSTORE_TEST_KILLS=n plays n rounds instead of the few, KVSTORE_TEST_SEED=n other ones.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.load import Load
from tests.support.cluster.servers import Cluster, Member, cluster, wait_for
from tests.support.disks.small_disk import small_disk
from tests.support.network.namespaces import Network, namespaces

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("KVSTORE_TEST_SEED", "1"))
ROUNDS = int(os.environ.get("KVSTORE_TEST_KILLS", "1"))
BACK_S = 30.0  # until writes go on after a fault: a few elections
DISK_MIB = 320  # two segments of the log, the database and what it keeps back are 190 MB
FREE_BYTES = 8192
FLAGS = ["--snapshot-count=300", "--snapshot-catchup-entries=100"]


def test_kill_leader_and_follower(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with cluster(tmp_path, "ooo", extra=FLAGS) as members:
        with Load(members, seed=SEED, compacts=True) as load:
            for _ in range(ROUNDS):
                for victim in (members.leader(), rng.choice(members.followers())):
                    load.wait_for_progress()
                    victim.kill()
                    load.wait_for_progress(timeout_s=BACK_S)
                    victim.start(wait=False)
                    victim.wait_ready()
        load.check()


def test_stopped_and_continued(tmp_path: Path) -> None:
    with cluster(tmp_path, "ooo", extra=FLAGS) as members:
        with Load(members, seed=SEED) as load:
            for _ in range(ROUNDS):
                old = members.leader()
                old.pause()
                load.wait_for_progress(timeout_s=BACK_S)
                assert members.leader() is not old
                old.resume()
                # It finds out that it leads no more, and what it was asked meanwhile is sound.
                _wait_follows(members, old)
                load.wait_for_progress(timeout_s=BACK_S)
                follower = members.followers()[0]
                follower.pause()
                load.wait_for_progress(timeout_s=BACK_S)
                follower.resume()
        load.check()


def _wait_follows(members: Cluster, member: Member) -> None:
    def follows() -> bool:
        status = member.status()
        return status is not None and status.leader == members.id_of(members.leader())

    wait_for(follows, f"{member.name} follows")


@pytest.fixture
def network() -> Iterator[Network]:
    with namespaces(3, seed=SEED) as made:
        yield made


def test_partitions(tmp_path: Path, network: Network) -> None:
    with cluster(tmp_path, "ooo", network=network, extra=FLAGS) as members:
        with Load(members, seed=SEED) as load:
            for _ in range(ROUNDS):
                leader = members.leader()
                at = members.members.index(leader)
                network.isolate(at)
                load.wait_for_progress(timeout_s=BACK_S)
                _wait_steps_down(leader)
                network.heal()
                load.wait_for_progress(timeout_s=BACK_S)
                # One way: what the leader says is not heard, or what it is told.
                for cut in (lambda one, other: (one, other), lambda one, other: (other, one)):
                    at = members.members.index(members.leader())
                    for other in range(3):
                        if other != at:
                            network.cut(*cut(at, other))
                    load.wait_for_progress(timeout_s=BACK_S)
                    network.heal()
                    load.wait_for_progress(timeout_s=BACK_S)
        load.check()


def _wait_steps_down(member: Member) -> None:
    def has_stepped_down() -> bool:
        status = member.status()
        return status is not None and status.leader != status.header.member_id

    wait_for(has_stepped_down, f"{member.name} steps down")


def test_loss_and_delay(tmp_path: Path, network: Network) -> None:
    with cluster(tmp_path, "ooo", network=network, extra=FLAGS) as members:
        with Load(members, seed=SEED) as load:
            for rule in ({"delay_ms": 20.0}, {"loss": 0.05}, {"loss": 0.02, "delay_ms": 10.0}):
                network.everywhere(**rule)
                load.wait_for_progress(30 * ROUNDS)
            counts = network.heal()
            assert counts["lost"] > 0, counts
            load.wait_for_progress(timeout_s=BACK_S)
        load.check()


def test_a_full_disk_on_one_member(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", DISK_MIB) as disk,
        cluster(tmp_path, "ooo", extra=FLAGS, data_dirs={1: disk.path / "m2"}) as members,
    ):
        full = members[1]
        members.move_leader(full)
        with Load(members, seed=SEED) as load:
            load.wait_for_progress()
            disk.leave(FREE_BYTES)
            wait_for(lambda: "the disk is too full" in full.log(), "the alarm for the disk")
            process = full.process
            assert process is not None
            assert process.poll() is None, "it goes on reading"
            disk.resize(2 * DISK_MIB)
            load.wait_for_progress(timeout_s=BACK_S)
            assert process.poll() is None
        load.check()


def test_members_come_and_go(tmp_path: Path) -> None:
    # Strict checks want everybody connected for 5 s before each change; those are tested elsewhere.
    flags = [*FLAGS, "--strict-reconfig-check=false"]
    with cluster(tmp_path, "ooo", extra=flags) as members:
        with Load(members, seed=SEED) as load:
            for number in range(ROUNDS + 1):
                learner = members.join(members.make("o"), is_learner=True)
                members.promote(learner)
                load.wait_for_progress(timeout_s=BACK_S)
                leader = members.leader()
                members.remove(leader if number % 2 == 0 else members.followers()[0])
                load.wait_for_progress(timeout_s=BACK_S)
        load.check()
