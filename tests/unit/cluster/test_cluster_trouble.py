"""Clusters of real nodes under drawn trouble: nothing acknowledged is lost, nothing done twice.

Every write is a transaction of its own key that leaves another value when it is applied once more;
reads must see everything acknowledged before they were made; in the end all states are equal.
"""

import random

import pytest
from typing_extensions import override

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.sim.disk_faults import PowerCut
from tests.support.cluster.harness import SECOND, Cluster, ClusterMember
from tests.support.cluster.network import MS

STEPS = 250


class Fragile(Cluster):
    """A cluster whose machines may lose their power in the midst of a turn."""

    @override
    def turn(self, member: ClusterMember) -> None:
        try:
            member.turn()
        except PowerCut:
            member.cut_power()

    def start_one(self, member: ClusterMember) -> None:
        """Start a member, unless its power goes while it starts."""
        try:
            member.start()
        except PowerCut:
            member.cut_power()


class Trouble:
    """One seed's trouble."""

    def __init__(self, seed: int, size: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = Fragile(
            size, seed=seed, snapshot_count=30, snapshot_catchup_entries=self.rng.choice((5, 20))
        )
        self.cluster.start()
        self.writes: dict[int, bytes] = {}  # call → name
        self.reads: dict[int, int] = {}  # call → acknowledged writes when it was made
        self.acknowledged: set[bytes] = set()
        self.count = 0

    def step(self) -> None:
        """Let something happen, and time pass."""
        rng, cluster = self.rng, self.cluster
        network = cluster.network
        what = rng.randrange(40)
        ids = [each.id for each in cluster.members]
        if what == 0:
            rng.shuffle(ids)
            at = rng.randrange(1, len(ids))
            network.partition(ids[:at], ids[at:])
        elif what == 1:
            network.cut = {(a, b) for a in ids for b in ids if a != b and rng.random() < 0.2}
        elif what in (2, 3):
            network.heal()
        elif what == 4:
            network.loss, network.duplication = rng.choice((0, 0.05, 0.3)), rng.choice((0, 0.1))
        elif what == 5:
            network.delay_ns = rng.choice(((MS, 2 * MS), (0, 40 * MS), (200 * MS, 300 * MS)))
        elif what == 6:
            self.end(rng.choice(cluster.members))
        elif what == 7:
            self.arm(rng.choice(cluster.members))
        elif what in (8, 9, 10):
            for each in cluster.members:
                if each.node is None and rng.randrange(2):
                    self.arm(each)
                    cluster.start_one(each)
        elif what == 11 and cluster.running:
            member = rng.choice(cluster.running)
            request = pb.MoveLeaderRequest(targetID=rng.choice(ids))
            cluster.send(member, rpc.MOVE_LEADER, request)
        else:
            self.ask()
        cluster.run_for(rng.choice((0, MS, 5 * MS, 50 * MS, 300 * MS)))
        if rng.randrange(50) == 0:
            cluster.run_for(rng.randrange(10) * SECOND)
        self.check()

    def end(self, member: ClusterMember) -> None:
        if member.node is None:
            return
        try:
            self.rng.choice((member.kill, member.cut_power, member.stop))()
        except PowerCut:
            member.cut_power()

    def arm(self, member: ClusterMember) -> None:
        """Let the power go somewhere in the midst of what a member does next, perhaps."""
        if self.rng.randrange(3):
            member.faults.cut_in = 1 + self.rng.randrange(self.rng.choice((3, 30, 300)))

    def ask(self) -> None:
        """Write or read through some member."""
        cluster, rng = self.cluster, self.rng
        if not cluster.running:
            return
        member = rng.choice(cluster.running)
        if rng.randrange(3) == 0:
            call = cluster.send(member, rpc.RANGE, pb.RangeRequest(key=b"w", range_end=b"x"))
            self.reads[call] = len(self.acknowledged)
            return
        for _ in range(rng.choice((1, 1, 5, 40))):
            self.count += 1
            name = b"w%06d" % self.count
            create = pb.Compare(
                key=name, target=pb.Compare.VERSION, result=pb.Compare.EQUAL, version=0
            )
            put = pb.RequestOp(request_put=pb.PutRequest(key=name, value=b"once"))
            again = pb.RequestOp(request_put=pb.PutRequest(key=name, value=b"twice"))
            request = pb.TxnRequest(compare=[create], success=[put], failure=[again])
            self.writes[cluster.send(member, rpc.TXN, request)] = name

    def check(self) -> None:
        """Look at the answers that came."""
        answers = self.cluster.answers
        for call in [call for call in self.reads if call in answers]:
            floor = self.reads.pop(call)
            code, body = answers[call]
            if code == 0:
                found = pb.RangeResponse.FromString(body)
                assert found.count >= floor, "a linearizable read missed acknowledged writes"
        for call in [call for call in self.writes if call in answers]:
            name = self.writes.pop(call)
            code, body = answers[call]
            if code == 0:
                assert pb.TxnResponse.FromString(body).succeeded, "applied twice"
                self.acknowledged.add(name)

    def calm(self) -> None:
        """End the trouble; everything must come right in bounded time."""
        cluster, network = self.cluster, self.cluster.network
        network.loss = network.duplication = 0.0
        network.delay_ns = (MS, 2 * MS)
        network.heal()
        for each in cluster.members:
            each.faults.clear()
            if each.node is None:
                each.start()
        cluster.settle()
        cluster.run_for(20 * SECOND)
        self.check()
        cluster.settle()
        store = cluster.leader().parts.state.store
        found = store.range(b"w", b"x")
        values = set(getattr(found, "kvs", ()))
        assert not [kv for kv in values if b"twice" in kv], "applied twice"
        keys = {kv[2:9] for kv in values}
        assert self.acknowledged <= keys, "an acknowledged write is gone"
        assert store.revision == 1 + len(keys)


@pytest.mark.parametrize(("size", "seed"), [(3, seed) for seed in range(6)] + [(5, 100), (5, 101)])
def test_nothing_acknowledged_is_lost_and_nothing_is_done_twice(size: int, seed: int) -> None:
    trouble = Trouble(seed, size)
    for _ in range(STEPS):
        trouble.step()
    trouble.calm()
    assert len(trouble.acknowledged) > 20
