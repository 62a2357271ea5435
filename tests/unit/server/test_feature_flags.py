"""What feature gates and raft's flags change in a node."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvstore.backend import Table
from kvstore.batch import Inbox
from kvstore.errors import TOO_MANY_REQUESTS
from kvstore.lease.row import decode_row
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.cluster.harness import SECOND, Cluster
from tests.support.node.harness import Disk, Harness

LARGE = pb.PutRequest(key=b"k", value=bytes(1 << 20)).SerializeToString()
PUTS = 8  # of a mebibyte: more than one turn applies, so a gap is left


@contextmanager
def member(tmp_path: Path, *flags: str) -> Iterator[Harness]:
    harness = Harness(tmp_path, Disk(in_memory=True), list(flags))
    yield harness
    harness.close()


def remaining_s(harness: Harness) -> list[int]:
    rows = harness.parts.state.backend.scan(Table.LEASE, b"", None, 10)
    return [decode_row(key, value)[2] for key, value in rows]


@pytest.mark.parametrize(("gates", "stored_s"), [("LeaseCheckpoint=true", 600), ("", 0)])
def test_checkpoints_of_leases_are_proposed_with_their_gate(
    tmp_path: Path, gates: str, stored_s: int
) -> None:
    with member(tmp_path, f"--feature-gates={gates}") as harness:
        harness.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=900))
        harness.clock.now_ns += 300 * SECOND
        for _ in range(5):
            harness.turn()
        assert remaining_s(harness) == [stored_s]


def behind(harness: Harness) -> int:
    """Let more be committed than a turn applies; return the entries that are left."""
    calls = [(harness.take_id(), rpc.PUT, LARGE) for _ in range(PUTS)]
    harness.turn(Inbox(calls=calls))
    raft = harness.parts.raft
    return raft.committed - raft.applied


@pytest.mark.parametrize(
    ("gates", "gap_max", "is_taken"),
    [("PriorityRequest=true", 2, True), ("PriorityRequest=true", 1, False), ("", 2, False)],
)
def test_revokes_go_on_in_a_member_that_is_behind(
    tmp_path: Path, gates: str, gap_max: int, *, is_taken: bool
) -> None:
    with member(tmp_path, f"--feature-gates={gates}", "--max-request-bytes=9000000") as harness:
        lease = pb.LeaseRevokeRequest(ID=7)
        harness.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=900, ID=7))
        harness.parts.limits.apply_gap_max = gap_max
        assert behind(harness) == 4
        put, revoke = harness.start((rpc.PUT, pb.PutRequest(key=b"a")), (rpc.LEASE_REVOKE, lease))
        assert harness.answers[put] == (TOO_MANY_REQUESTS.code, TOO_MANY_REQUESTS.text.encode())
        assert (harness.answers.get(revoke) is None) == is_taken
        while harness.parts.raft.applied < harness.parts.raft.committed:
            harness.turn()
        assert harness.parts.state.lessor.exists(7) is not is_taken


@pytest.mark.parametrize(("gates", "is_fast"), [("", True), ("FastLeaseKeepAlive=false", False)])
def test_keep_alives_wait_for_what_is_committed_without_their_gate(
    tmp_path: Path, gates: str, *, is_fast: bool
) -> None:
    with member(tmp_path, f"--feature-gates={gates}", "--max-request-bytes=9000000") as harness:
        harness.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=900, ID=7))
        stream = harness.open(rpc.LEASE_KEEP_ALIVE)
        frames = [(stream, pb.LeaseKeepAliveRequest(ID=7).SerializeToString())]
        calls = [(harness.take_id(), rpc.PUT, LARGE) for _ in range(PUTS)]
        harness.turn(Inbox(calls=calls, frames=frames))
        assert harness.parts.raft.applied < harness.parts.raft.committed
        assert (stream in harness.delivered) == is_fast
        while harness.parts.raft.applied < harness.parts.raft.committed:
            harness.turn()
        assert len(harness.delivered[stream]) == 1


@pytest.mark.parametrize("asks_first", [True, False])
def test_a_member_cut_off_counts_terms_up_without_pre_vote(*, asks_first: bool) -> None:
    three = Cluster(3, flags=[f"--pre-vote={str(asks_first).lower()}"])
    three.start()
    follower = three.followers()[0]
    term = three.leader().parts.raft.term
    three.network.partition([follower.id], [m.id for m in three.members if m is not follower])
    three.run_for(10 * SECOND)
    assert (follower.parts.raft.term == term) == asks_first


@pytest.mark.parametrize("flags", [["--max-snapshots=2"], ["--max-snapshots=0"]])
def test_snapshot_files_beyond_the_number_are_deleted(tmp_path: Path, flags: list[str]) -> None:
    with member(tmp_path, "--snapshot-count=1", *flags) as harness:
        for number in range(10):
            harness.call(rpc.PUT, pb.PutRequest(key=b"k%d" % number))
        made = len(list(tmp_path.glob("member/snap/*.snap")))
        assert made > 2
        harness.clock.now_ns += 60 * SECOND
        harness.turn()
        left = len(list(tmp_path.glob("member/snap/*.snap")))
        assert left == (2 if "2" in flags[0] else made)
