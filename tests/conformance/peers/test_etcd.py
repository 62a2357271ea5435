"""Real etcd as the other member: streams, snapshots and requests in both directions."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.peers import questions
from kvstore.peers.tls import PeerTls
from kvstore.raft.model import Message, MessageType
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc
from tests.support.cluster.peer_member import WAIT_S, PeerMember, await_streams, wait_for
from tests.support.rpc_client import Client
from tests.support.servers import Server, etcd, etcdctl, free_ports, running

pytestmark = pytest.mark.slow


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Server]:
    server = etcd(
        tmp_path / "etcd",
        name="real",
        extra=["--snapshot-count=100"],
    )
    with running(server):
        yield server


def put(server: Server, key: str, value: str = "v") -> None:
    etcdctl(server, "put", key, value)


def join(leader: Server, directory: Path, *, learner: bool = True) -> PeerMember:
    """Add a member of ours to the cluster; returns it before it was started."""
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    flags = ["--learner"] if learner else []
    added = etcdctl(leader, "member", "add", "ours", f"--peer-urls={url}", *flags, "-w", "json")
    row = json.loads(added.stdout)
    cluster = questions.fetch_members([leader.peer_url], PeerTls(), 5.0)
    assert cluster.cluster_id == row["header"]["cluster_id"]
    others = {each.id: each.peer_urls for each in cluster.members if each.id != row["member"]["ID"]}
    return PeerMember(
        directory, row["member"]["ID"], others, cluster_id=cluster.cluster_id, urls=[url]
    )


def has(member: PeerMember, data: bytes) -> bool:
    return any(data in each.data for each in member.driven.applied)


def test_a_member_follows_votes_and_is_needed(leader: Server, tmp_path: Path) -> None:
    with join(leader, tmp_path / "ours") as ours:
        (real,) = ours.members
        put(leader, "first")
        wait_for(lambda: has(ours, b"first"), f"the log\n{ours.logger.text()}\n{leader.log()}")
        await_streams(ours, real)
        assert ours.network.active_since_ns(real) is not None
        etcdctl(leader, "member", "promote", f"{ours.id:x}")
        put(leader, "second")  # needs us: two voters
        wait_for(lambda: has(ours, b"second"), "the entry we acknowledged")
        # Leadership over to us and back: votes, appends and heartbeats in both directions.
        etcdctl(leader, "move-leader", f"{ours.id:x}")
        wait_for(lambda: ours.driven.raft.is_leader, f"our term\n{ours.logger.text()}")
        ours.do(lambda raft: raft.transfer_leader(real))
        wait_for(lambda: ours.driven.raft.lead == real, "its term")
        put(leader, "third")
        wait_for(lambda: has(ours, b"third"), "the log after all that")
        counters = ours.network.counters[real]
        assert counters.active == 1
        assert counters.sent_bytes > 0
        assert counters.received_bytes > 0
        # It would say so if a stream of ours had not been to its taste.
        log = leader.log_records()
        assert not [line for line in log if "mismatch" in str(line["msg"])]


def put_many(server: Server, count: int) -> None:
    found = rpc.METHODS[rpc.PUT]
    with Client(server.endpoint) as client:
        call = raw_grpc.unary(client.channel, found.path)
        bodies = [
            pb.PutRequest(key=b"%d" % n, value=b"x").SerializeToString() for n in range(count)
        ]
        for done in [call.future(body, timeout=WAIT_S) for body in bodies]:
            done.result()


def test_a_snapshot_comes_before_the_log(leader: Server, tmp_path: Path) -> None:
    put_many(leader, 5200)  # 3.5 keeps 5000 entries for members that lag
    with join(leader, tmp_path / "ours") as ours:
        (real,) = ours.members
        wait_for(lambda: ours.received, f"a snapshot\n{ours.logger.text()}\n{leader.log()}")
        ((index, database),) = ours.received[:1]
        assert index >= 5200
        assert database[16:20] == (0xED0CDAED).to_bytes(4, "little")  # bbolt's magic
        wait_for(lambda: ours.driven.raft.applied >= index, "the snapshot taken")
        put(leader, "after")
        wait_for(lambda: has(ours, b"after"), "the log behind the snapshot")
        counters = ours.network.counters[real]
        assert counters.snapshot_receive.count >= 1
        assert counters.snapshot_receive_inflights == 0
    # The leader counts the snapshot as sent.
    assert any("sent database snapshot" in str(line["msg"]) for line in leader.log_records())


def test_a_restarted_member_is_dialled_again(leader: Server, tmp_path: Path) -> None:
    with join(leader, tmp_path / "ours") as ours:
        (real,) = ours.members
        put(leader, "first")
        wait_for(lambda: has(ours, b"first"), "the log")
        leader.kill()
        wait_for(lambda: ours.network.active_since_ns(real) is None, "the loss")
        leader.start()
        put(leader, "again")
        wait_for(lambda: has(ours, b"again"), f"the log again\n{ours.logger.text()}")
        assert ours.network.counters[real].disconnected >= 1


def test_a_removed_member_is_notified(leader: Server, tmp_path: Path) -> None:
    with join(leader, tmp_path / "ours") as ours:
        put(leader, "first")
        wait_for(lambda: has(ours, b"first"), "the log")
        etcdctl(leader, "member", "remove", f"{ours.id:x}")
        wait_for(lambda: ours.removals, f"410\n{ours.logger.text()}")


def test_requests_before_joining(leader: Server, tmp_path: Path) -> None:
    """The answers of etcd to a member that joins can be read."""
    cluster = questions.fetch_members(["http://127.0.0.1:1", leader.peer_url], PeerTls(), 2.0)
    assert [member.name for member in cluster.members] == ["real"]

    def version() -> questions.Versions:
        return questions.fetch_version([leader.peer_url], PeerTls(), 2.0)

    assert version().server == "3.5.1"
    wait_for(lambda: version().cluster == "3.5.0", "the cluster version")
    assert questions.fetch_downgrade_enabled([leader.peer_url], PeerTls(), 2.0) is False


def test_probes_are_answered_and_measured(leader: Server, tmp_path: Path) -> None:
    with join(leader, tmp_path / "ours") as ours:
        (real,) = ours.members
        wait_for(
            lambda: real in ours.network.counters and ours.network.counters[real].rtt.count,
            "a round trip",
        )
        assert 0 < ours.network.counters[real].smoothed_rtt_s < 2
        lines = [line for line in leader.log_records() if "prober detected" in str(line["msg"])]
        assert not [line for line in lines if str(line.get("remote-peer-id")) == f"{ours.id:x}"]


def test_messages_are_posted_while_there_is_no_stream(leader: Server, tmp_path: Path) -> None:
    with join(leader, tmp_path / "ours") as ours:
        (real,) = ours.members
        put(leader, "first")
        wait_for(lambda: has(ours, b"first"), "the log")
        peer = ours.network._peers[real]
        before = peer.counters.sent_bytes
        # A heartbeat answer of the current term: taken, and of no consequence.
        message = Message(MessageType.HEARTBEAT_RESP, real, ours.id, ours.driven.raft.term)
        assert peer.pipeline.send(message)
        wait_for(lambda: peer.counters.sent_bytes > before, f"204\n{ours.logger.text()}")
