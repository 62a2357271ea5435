"""Bugs etcd has had, by the numbers of its tracker: each a test that would have caught it.

    13766 14370 14685 17780   a crash loses a write, or tears revision and data apart
    14571 20271               members differ after a snapshot: by auth, by a defragmentation
    15220 20221               progress that runs ahead of events, or goes back
    15271 17247 17529         watchers go back in time, see twice, or miss what they were slow for
    18089 19179               a delete at the compacted revision is withheld
    18667                     a transaction reads what is compacted on one member alone
    20418                     a member that was stopped reads what is stale

Real etcd 3.5.1 has most of them, so it is no measure here.
"""

import contextlib
import http.client
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.gen.kv_pb2 import Event
from tests.support import raw_grpc
from tests.support.cluster.servers import Cluster, Member, cluster, wait_for
from tests.support.rpc_client import Client, status
from tests.support.servers import Server, free_ports, ours, running

pytestmark = pytest.mark.slow

COMPACTED = "etcdserver: mvcc: required revision has been compacted"
SHORT_LOG = ["--snapshot-count=20", "--snapshot-catchup-entries=5"]
SENT = "applied snapshot"  # says the member that was sent one
AWAY = 700  # entries: more than the leader sends ahead (512), and than a log of SHORT_LOG keeps


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("bugs")
    flags = ["--compaction-batch-limit=4", "--watch-progress-notify-interval=100ms"]
    with running(ours(directory / "data", extra=flags)) as started:
        yield started


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.endpoint) as each:
        yield each


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("three"), "ooo", extra=SHORT_LOG) as members:
        yield members


def delete(client: Client, key: bytes, range_end: bytes = b"") -> int:
    request = pb.DeleteRangeRequest(key=key, range_end=range_end)
    return int(client.call(rpc.DELETE_RANGE, request).header.revision)


def compact(client: Client, revision: int) -> None:
    client.call(rpc.COMPACT, pb.CompactionRequest(revision=revision, physical=True))


def watch(client: Client, key: bytes, first: int, range_end: bytes = b"") -> Any:
    create = pb.WatchCreateRequest(key=key, range_end=range_end, start_revision=first)
    return client.stream(rpc.WATCH, pb.WatchRequest(create_request=create))


# Crashes.


@pytest.mark.parametrize(
    ("failpoint", "trigger"),
    [
        pytest.param("raftBeforeSave", "put", id="14370-before-the-log-is-written"),
        pytest.param("raftAfterSave", "put", id="14370-after-the-log-is-written"),
        pytest.param("beforeCommit", "put", id="13766-before-the-database-commits"),
        pytest.param("defragBeforeCopy", "defragment", id="14685-defragmentation"),
        pytest.param("compactBeforeCommitBatch", "compact", id="17780-in-the-compaction"),
        pytest.param("compactBeforeSetFinishedCompact", "compact", id="17780-at-its-end"),
    ],
)
def test_a_crash_loses_nothing_acknowledged(tmp_path: Path, failpoint: str, trigger: str) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    flags = ["--compaction-batch-limit=4"]
    crashing = ours(tmp_path / "data", extra=flags, env={"GOFAIL_HTTP": address})
    acknowledged: dict[bytes, int] = {}
    with running(crashing):
        with Client(crashing.endpoint) as client:
            for number in range(40):
                key = b"k%d" % (number % 10)
                acknowledged[key] = client.put(key, b"%d" % number)
            deleted = delete(client, b"k0")
            del acknowledged[b"k0"]
            _arm(address, failpoint)
            with contextlib.suppress(grpc.RpcError):
                if trigger == "defragment":
                    client.call(rpc.DEFRAGMENT, pb.DefragmentRequest())
                elif trigger == "compact":
                    compact(client, deleted)
                for number in range(1000):  # the database commits within a moment
                    key = b"more%d" % number
                    acknowledged[key] = client.put(key, b"v")
        process = crashing.process
        assert process is not None
        wait_for(lambda: process.poll() is not None, f"the crash at {failpoint}")
        crashing.process = None
        crashing.env = {}
        crashing.start()
        with Client(crashing.endpoint) as client:
            found = client.range()
            rows = {kv.key: kv.mod_revision for kv in found.kvs}
            assert acknowledged.items() <= rows.items()
            assert b"k0" not in rows
            # What was in flight may have been done; nothing else was.
            last = max(deleted, *acknowledged.values())
            assert last <= found.header.revision <= last + 1
            assert client.put(b"next", b"v") == found.header.revision + 1
            if trigger == "compact":
                assert client.hash_kv().compact_revision in (-1, deleted)
                events = watch(client, b"k0", deleted).__iter__()
                assert next(events).created
                assert [each.type for each in next(events).events] == [Event.DELETE]


def _arm(address: str, failpoint: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request("PUT", f"/{failpoint}", body="panic")
    assert connection.getresponse().status == 204
    connection.close()


# Watchers.


def test_15220_progress_follows_events(client: Client) -> None:
    revision = client.put(b"p", b"0")
    stream = watch(client, b"p", revision + 1)
    done = threading.Event()

    def write() -> None:
        for number in range(150):
            client.put(b"p", b"%d" % number)
            stream.send(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen, told = revision, 0
    for response in stream:
        if response.events:
            revisions = [event.kv.mod_revision for event in response.events]
            assert revisions == list(range(seen + 1, revisions[-1] + 1))
            assert revisions[0] > told, "an event of what was told to be over"
            seen = revisions[-1]
        elif not response.created:
            told = response.header.revision
            assert told == seen, "progress is ahead of the events, or went back"
        if seen == revision + 150 and told == seen:
            break
    writer.join()
    stream.cancel()
    assert done.is_set()


def test_20221_a_watch_on_the_future_hears_nothing_of_before(client: Client) -> None:
    first = client.put(b"f", b"now") + 20
    stream = watch(client, b"f", first)
    assert stream.receive().created
    for number in range(20):
        client.put(b"f", b"%d" % number)
        stream.send(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
    client.put(b"f", b"after")
    responses = iter(stream)
    got: list[int] = []
    while len(got) < 2:
        response = next(responses)
        got += [event.kv.mod_revision for event in response.events]
    assert got == [first, first + 1]
    stream.cancel()


def test_17247_a_transaction_is_seen_once(client: Client) -> None:
    puts = [pb.RequestOp(request_put=pb.PutRequest(key=b"t%d" % at, value=b"v")) for at in range(4)]
    inner = pb.TxnRequest(success=puts[2:])
    request = pb.TxnRequest(success=[*puts[:2], pb.RequestOp(request_txn=inner)])
    revision = client.put(b"t0", b"before")
    live = watch(client, b"t", revision + 1, b"u")
    assert live.receive().created
    for number in range(3):
        client.call(rpc.TXN, request)
        late = watch(client, b"t", revision + 1 + number, b"u")
        assert late.receive().created
        for stream in (live, late):
            events = stream.receive().events
            assert [event.kv.key for event in events] == [b"t0", b"t1", b"t2", b"t3"]
            assert {event.kv.mod_revision for event in events} == {revision + 1 + number}
        late.cancel()
    live.cancel()


def test_17529_a_starved_stream_loses_nothing(client: Client, server: Server) -> None:
    watchers, writes, value = 20, 60, bytes(50_000)
    revision = client.put(b"s", b"first")
    with Client(server.endpoint) as slow:
        creates = [
            pb.WatchRequest(
                create_request=pb.WatchCreateRequest(
                    key=b"s", start_revision=revision + 1, prev_kv=True, watch_id=number + 1
                )
            )
            for number in range(watchers)
        ]
        stream = slow.stream(rpc.WATCH, *creates)
        for _ in range(writes):  # 120 MB of events, and nobody reads
            client.put(b"s", value)
        got: dict[int, list[int]] = {number + 1: [] for number in range(watchers)}
        for response in stream:
            assert not response.canceled, response
            got[response.watch_id] += [event.kv.mod_revision for event in response.events]
            if all(each and each[-1] == revision + writes for each in got.values()):
                break
        stream.cancel()
    wanted = list(range(revision + 1, revision + writes + 1))
    assert all(each == wanted for each in got.values())


def test_18089_19179_a_delete_at_the_compacted_revision_is_shown(client: Client) -> None:
    keys = [b"d%02d" % number for number in range(12)]  # of several batches of the compaction
    for key in keys:
        client.put(key, b"v")
    deletes = {key: delete(client, key) for key in keys}
    for at in (3, 7, 11):
        compact(client, deletes[keys[at]])
        stream = watch(client, b"d", deletes[keys[at]], b"e")
        assert stream.receive().created
        events: list[Any] = []
        while len(events) < len(keys) - at:
            events += stream.receive().events
        assert [(event.type, event.kv.key) for event in events] == [
            (event.DELETE, key) for event, key in zip(events, keys[at:], strict=True)
        ]
        stream.cancel()


def test_15271_a_watcher_of_a_member_that_was_away(three: Cluster) -> None:
    away = three.followers()[0]
    with Client(away.endpoint) as client, Client(three.leader().endpoint) as writer:
        revision = writer.put(b"w", b"0")
        stream = watch(client, b"w", revision + 1)
        assert stream.receive().created
        _write_while_away(away, writer, b"w")
        got: list[int] = []
        while not got or got[-1] < revision + AWAY:
            got += [event.kv.mod_revision for event in stream.receive().events]
        assert got == list(range(revision + 1, revision + AWAY + 1))
        stream.cancel()
    assert len(set(three.hashes().values())) == 1
    assert SENT in away.log_path.read_text()


def _write_while_away(away: Member, writer: Client, key: bytes) -> None:
    """Stop a member until the log it needs is gone: it will be sent a snapshot."""
    away.pause()
    for number in range(AWAY):
        writer.put(key, b"%d" % number)
    away.resume()


def test_20271_a_defragmentation_while_a_snapshot_is_taken(three: Cluster) -> None:
    away = three.followers()[0]
    with Client(away.endpoint) as client, Client(three.leader().endpoint) as writer:
        away.pause()
        for number in range(AWAY):
            writer.put(b"%d" % (number % 50), bytes(2000))
        away.resume()
        client.call(rpc.DEFRAGMENT, pb.DefragmentRequest())
        assert len(set(three.hashes().values())) == 1
        assert client.range().kvs == writer.range().kvs
    assert SENT in away.log_path.read_text()


# Reads.


def test_18667_a_transaction_reads_what_is_compacted(three: Cluster) -> None:
    with Client(three.leader().endpoint) as leader, Client(three.members[0].endpoint) as client:
        for _ in range(5):
            revision = leader.put(b"c", b"v")
        wait_for(lambda: client.range(b"c").header.revision == revision, "the member is up")
        compact(leader, revision)
        request = pb.TxnRequest(
            success=[
                pb.RequestOp(request_put=pb.PutRequest(key=b"c", value=b"half")),
                pb.RequestOp(request_range=pb.RangeRequest(key=b"c", revision=revision - 1)),
            ]
        )
        for each in (leader, client):
            assert each.refused(rpc.TXN, request)[1] == COMPACTED
        assert [kv.value for kv in client.range(b"c", b"").kvs] == [b"v"]
    assert len(set(three.hashes().values())) == 1


def test_20418_a_member_that_was_stopped_reads_nothing_stale(three: Cluster) -> None:
    """Its reads, asked before and after the stop, are as new as what was written meanwhile."""
    for old in (three.leader(), three.followers()[0]):
        others = [each for each in three.members if each is not old]
        with Client(old.endpoint) as reader:
            reader.range(b"r", b"")  # connected
            old.pause()
            revision = _put_anywhere(others)
            answer: list[Any] = []
            asking = threading.Thread(target=lambda to=reader, put=answer: put.append(_read(to)))
            asking.start()
            old.resume()
            asking.join()
            assert answer[0] >= revision
        three.leader()


def _put_anywhere(members: list[Member]) -> int:
    """Put at whoever takes it; return the revision."""
    told: list[int] = []

    def is_put() -> bool:
        for member in members:
            with Client(member.endpoint) as client:
                try:
                    request = pb.PutRequest(key=b"r", value=b"new")
                    told.append(client.call(rpc.PUT, request, 1.0).header.revision)
                except grpc.RpcError:
                    continue
                return True
        return False

    wait_for(is_put, "a put")
    return told[0]


def _read(client: Client) -> int:
    """Read until an answer comes; return its revision."""
    told: list[int] = []

    def is_read() -> bool:
        with contextlib.suppress(grpc.RpcError):
            told.append(client.range(b"r", b"").header.revision)
        return bool(told)

    wait_for(is_read, "a read")
    return told[0]


# Members.


def test_14571_authentication_comes_with_a_snapshot(tmp_path: Path) -> None:
    with (
        cluster(tmp_path, "ooo", extra=SHORT_LOG) as members,
        Client(members.leader().endpoint) as client,
    ):
        away = members.followers()[0]
        away.pause()
        client.call(rpc.AUTH_ROLE_ADD, pb.AuthRoleAddRequest(name="root"))
        client.call(rpc.AUTH_USER_ADD, pb.AuthUserAddRequest(name="root", password="secret"))
        client.call(rpc.AUTH_USER_GRANT_ROLE, pb.AuthUserGrantRoleRequest(user="root", role="root"))
        for number in range(AWAY):
            client.put(b"a", b"%d" % number)
        client.call(rpc.AUTH_ENABLE, pb.AuthEnableRequest())
        away.resume()
        request = pb.AuthenticateRequest(name="root", password="secret")
        token = client.call(rpc.AUTHENTICATE, request).token
        put = raw_grpc.unary(client.channel, rpc.METHODS[rpc.PUT].path)
        for number in range(20):  # these, the member that was away must apply like the others
            body = pb.PutRequest(key=b"b", value=b"%d" % number).SerializeToString()
            put(body, metadata=(("token", token),), timeout=10)
        revision = pb.PutResponse.FromString(
            put(pb.PutRequest(key=b"c").SerializeToString(), metadata=(("token", token),))
        ).header.revision
        hashed = {each.name: _hash_as_root(each, revision) for each in members.members}
        assert len(set(hashed.values())) == 1, hashed
        assert SENT in away.log_path.read_text()
        with pytest.raises(grpc.RpcError) as refused:
            client.put(b"d", b"without a token")
        assert "user name is empty" in status(refused.value)[1]


def _hash_as_root(member: Member, revision: int) -> int:
    """Return a member's HashKV at a revision, as soon as it has come that far."""
    found: list[int] = []

    def is_there() -> bool:
        with Client(member.endpoint) as client, contextlib.suppress(grpc.RpcError):
            request = pb.AuthenticateRequest(name="root", password="secret")
            token = client.call(rpc.AUTHENTICATE, request).token
            ask = raw_grpc.unary(client.channel, rpc.METHODS[rpc.HASH_KV].path)
            body = pb.HashKVRequest(revision=revision).SerializeToString()
            told = pb.HashKVResponse.FromString(ask(body, metadata=(("token", token),), timeout=5))
            found.append(told.hash)
        return bool(found)

    wait_for(is_there, f"{member.name} comes up to revision {revision}")
    return found[0]
