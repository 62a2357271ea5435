"""What the observer notices: late heartbeats, slow disks, leaders; and the page, stuck or not."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from kvstack.component.metrics.histograms import DISK_BOUNDS, Histogram
from kvstack.component.units import MILLISECOND_NS
from kvstore.batch import Inbox, Outbox
from kvstore.errors import Code
from kvstore.server.metrics.calls import SlowCalls
from kvstore.server.metrics.gatherer import WAITING_MAX, BusyError, Gatherer
from kvstore.server.metrics.observer import MetricsObserver
from kvstore.server.metrics.page import MetricsPage
from kvstore.server.metrics.slow_requests import KEPT_MAX, SlowRequests, split
from kvstore.server.metrics.sources import Disk
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.cluster.harness import SECOND, Cluster, ClusterMember

MS = MILLISECOND_NS
SLOW_REQUEST_NS = 300 * MS


class Wal:
    """The counters of a log."""

    def __init__(self) -> None:
        self.written_bytes = self.sync_ns = self.sync_count = 0
        self.sync_seconds = Histogram(DISK_BOUNDS)
        self.write_seconds = Histogram(DISK_BOUNDS)


class Database:
    """The counters of a database."""

    def __init__(self) -> None:
        self.commit_ns = 0
        self.commit_seconds = Histogram(DISK_BOUNDS)


class Watched:
    """An observer of one member of a cluster of real nodes; turns of it are made by hand."""

    def __init__(self, cluster: Cluster, member: ClusterMember, wake: Callable[[], None]) -> None:
        self.cluster = cluster
        self.log = member.log
        self.disk = Disk(Wal(), Database())
        self.gatherer = Gatherer(wake)
        self.observer = MetricsObserver(
            member.parts,
            self.disk,
            cluster.clock,
            self.gatherer,
            slow_request_ns=SLOW_REQUEST_NS,
        )

    def fill(self, inbox: Inbox | None = None) -> None:
        self.observer.on_inbox(inbox or Inbox())

    def drain(self, out: Outbox | None = None) -> None:
        self.observer.on_sent(out or Outbox())

    def wait(self, duration_ns: int) -> None:
        self.cluster.clock.now_ns += duration_ns

    def logged(self, msg: str) -> list[dict[str, object]]:
        return [fields for text, fields in self.log if text.startswith(msg)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(3)
    made.start()
    yield made
    for member in made.running:
        member.stop()


@pytest.fixture
def leader(cluster: Cluster) -> Watched:
    return Watched(cluster, cluster.leader(), lambda: None)


def test_late_heartbeats(leader: Watched, cluster: Cluster) -> None:
    heartbeat_ns = cluster.leader().parts.limits.heartbeat_ns
    for gap_ns in (0, 0, heartbeat_ns, 2 * heartbeat_ns):
        leader.wait(gap_ns)
        leader.fill()
    assert leader.observer.sources.observer.late_heartbeats == 0
    leader.wait(2 * heartbeat_ns + 250 * MS)
    leader.fill()
    assert leader.observer.sources.observer.late_heartbeats == 2
    told = leader.logged("leader failed to send out heartbeat on time; took too long")
    assert {each["to"] for each in told} == {
        f"{each.id:x}" for each in cluster.members if not each.is_leader
    }
    assert told[0]["heartbeat-interval"] == "100ms"
    assert told[0]["expected-duration"] == "200ms"
    assert told[0]["exceeded-duration"] == "250ms"


def test_a_follower_sends_none(cluster: Cluster) -> None:
    follower = Watched(cluster, cluster.followers()[0], lambda: None)
    follower.fill()
    for _ in range(3):
        follower.wait(SECOND)
        follower.fill()
    assert follower.observer.sources.observer.late_heartbeats == 0


def test_leaders_are_counted(leader: Watched, cluster: Cluster) -> None:
    leader.fill()
    leader.fill()
    assert leader.observer.sources.observer.leader_changes == 1
    old = cluster.leader()
    cluster.network.partition([old.id], [each.id for each in cluster.followers()])
    cluster.run_until(lambda: old.parts.raft.lead == 0)
    leader.fill()
    assert leader.observer.sources.observer.leader_changes == 1
    cluster.network.heal()
    cluster.run_until(lambda: old.parts.raft.lead != 0)
    leader.fill()
    assert leader.observer.sources.observer.leader_changes == 2


def test_slow_syncs_and_commits(leader: Watched) -> None:
    for took_ns in (5 * MS, SECOND):
        leader.disk.wal.sync_ns += took_ns
        leader.drain()
    assert leader.logged("slow fdatasync") == []
    leader.disk.wal.sync_ns += 1500 * MS
    leader.disk.backend.commit_ns += SLOW_REQUEST_NS + 1
    leader.drain()
    leader.drain()
    assert leader.logged("slow fdatasync") == [{"took": "1.5s", "expected-duration": "1s"}]
    assert leader.logged("slow database commit") == [
        {"took": "300.000001ms", "expected-duration": "300ms"}
    ]


def test_a_slow_put_and_its_cause(leader: Watched) -> None:
    put = pb.PutRequest(key=b"k", value=b"secret").SerializeToString()
    leader.observer.slow_requests.peer_of = {1: "127.0.0.1:4711"}.get
    leader.fill(Inbox(calls=[(1, rpc.PUT, put)]))
    leader.wait(400 * MS)
    leader.disk.wal.sync_ns += 350 * MS
    leader.drain(Outbox(replies=[(1, 0, b"")]))
    (kept,) = leader.observer.slow_requests.kept
    assert (kept.method, kept.code, kept.count, kept.took_ms) == ("KV/Put", "OK", 1, 400.0)
    assert kept.cause == "disk sync"
    assert kept.stages_ms["other work of the turn"] == 50.0
    (told,) = leader.logged("request stats")
    assert told["time spent"] == "400ms"
    assert told["response type"] == "/etcdserverpb.KV/Put"
    assert told["remote"] == "127.0.0.1:4711"
    assert told["request content"] == 'key:"k" value_size:6'
    assert told["stages"] == {"disk sync": "350ms", "other work of the turn": "50ms"}


def test_a_put_that_waited_for_others(leader: Watched) -> None:
    leader.fill(Inbox(calls=[(1, rpc.PUT, b"")]))
    leader.drain()
    leader.wait(2 * SECOND)
    leader.fill()
    leader.drain(Outbox(replies=[(1, int(Code.UNAVAILABLE), b"request timed out")]))
    (kept,) = leader.observer.slow_requests.kept
    assert (kept.cause, kept.code) == ("waiting for other members", "UNAVAILABLE")


def test_secrets_of_other_requests_are_not_shown(leader: Watched) -> None:
    body = pb.AuthenticateRequest(name="root", password="hunter2").SerializeToString()
    leader.fill(Inbox(calls=[(1, rpc.AUTHENTICATE, body)]))
    leader.wait(SECOND)
    leader.drain(Outbox(replies=[(1, 0, b"token")]))
    (told,) = leader.logged("request stats")
    assert (told["request content"], told["request size"]) == ("", -1)
    assert told["remote"] == "No remote client info."
    assert "hunter2" not in str(leader.log)


def test_slow_requests_are_bounded(leader: Watched, cluster: Cluster) -> None:
    slow = SlowRequests(cluster.leader().parts.logger, cluster.clock)
    for _ in range(3 * KEPT_MAX):
        leader.wait(11 * SECOND)
        slow.add(
            SlowCalls(
                rpc.RANGE, 0, 1, 1, in_one_turn=True, before=(0,) * 4, request=None, response=None
            ),
            (0,) * 4,
            is_alone=True,
        )
    assert len(slow.kept) == KEPT_MAX


def test_stages_never_go_below_zero() -> None:
    stages = split(10, (5, 0, 0, 0), (25, 0, 0, 0), "rest")
    assert stages == {
        "disk sync": 20,
        "database commit": 0,
        "applying": 0,
        "reading": 0,
        "rest": 0,
    }


# --- the page ---


def test_the_page_is_read_between_two_turns(cluster: Cluster) -> None:
    async def ask() -> bytes:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon(watched.drain)

        watched = Watched(cluster, cluster.leader(), wake)
        text, content_type = await MetricsPage(watched.observer.sources, watched.gatherer)()
        assert content_type.startswith("text/plain; version=0.0.4")
        return text

    text = asyncio.run(ask())
    assert b"\netcd_server_is_leader 1\n" in text
    assert b"\nkvstore_metrics_age_seconds 0\n" in text
    assert b'\nkvstore_raft_match_index{member="' in text


def test_a_stuck_member_still_has_a_page(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvstore.server.metrics.page._TIMEOUT_S", 0.01)

    async def ask() -> tuple[bytes, bytes]:
        watched = Watched(cluster, cluster.leader(), lambda: None)
        page = MetricsPage(watched.observer.sources, watched.gatherer)
        waiting = asyncio.create_task(page())
        await asyncio.sleep(0)  # the page's task begins
        await asyncio.sleep(0)  # the one it makes asks
        watched.drain()
        fresh, _ = await waiting
        watched.wait(7 * SECOND)
        stale, _ = await page()  # nobody drains now
        return fresh, stale

    fresh, stale = asyncio.run(ask())
    assert b"\nkvstore_metrics_age_seconds 0\n" in fresh
    assert b"\nkvstore_metrics_age_seconds 7\n" in stale
    assert b"\netcd_server_is_leader 1\n" in stale


def test_scrapes_at_once_share_one_reading(cluster: Cluster) -> None:
    asked = []

    async def ask() -> list[tuple[bytes, str]]:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            asked.append(1)
            loop.call_soon(watched.drain)

        watched = Watched(cluster, cluster.leader(), wake)
        page = MetricsPage(watched.observer.sources, watched.gatherer)
        return await asyncio.gather(*(page() for _ in range(20)))

    pages = asyncio.run(ask())
    assert len(asked) == 1
    assert len({text for text, _ in pages}) == 1


def test_reads_are_bounded_and_their_errors_are_raised_in_read() -> None:
    async def ask() -> None:
        gatherer = Gatherer(lambda: None)
        waiting = [
            asyncio.create_task(gatherer.read(lambda: 1 // 0, 5.0)) for _ in range(WAITING_MAX)
        ]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="too many reads are waiting, limit 64"):
            await gatherer.read(lambda: 1, 5.0)
        gatherer.run_all()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, ZeroDivisionError) for each in results)
        with pytest.raises(BusyError, match=r"more than 0\.01 s"):
            await gatherer.read(lambda: 1, 0.01)

    asyncio.run(ask())


# --- what the node itself warns of ---


def test_read_indexes_that_get_no_answer(cluster: Cluster) -> None:
    follower = cluster.followers()[0]
    call_id = cluster.send(follower, rpc.RANGE, pb.RangeRequest(key=b"k"))
    cluster.network.partition([follower.id], [m.id for m in cluster.members if m is not follower])
    cluster.run_until(lambda: call_id in cluster.answers)
    code, _ = cluster.answers[call_id]
    assert code == Code.UNAVAILABLE
    told = [
        fields
        for text, fields in follower.log
        if text == "waiting for ReadIndex response took too long, retrying"
    ]
    assert told
    assert told[0]["retry-timeout"] == "500ms"
    assert isinstance(told[0]["sent-request-id"], int)
