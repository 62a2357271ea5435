"""Locks and elections: the same callers on real etcd and on this server, the same answers."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from kvstore.wire import rpc
from kvstore.wire.gen import election_pb2 as epb
from kvstore.wire.gen import lock_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc
from tests.support.rpc_client import TIMEOUT_S, Client
from tests.support.servers import Server, etcd, ours, running


@pytest.fixture(scope="module", params=[etcd, ours], ids=["etcd", "ours"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    make: Callable[..., Server] = request.param
    with running(make(tmp_path_factory.mktemp("data") / "member")) as started:
        yield started


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.endpoint) as made:
        yield made
        made.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"\0", range_end=b"\0"))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def _lease(client: Client) -> int:
    return int(client.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=600)).ID)


def _lock(client: Client, lease: int, name: bytes = b"l") -> Any:
    return client.call(rpc.LOCK, lock_pb2.LockRequest(name=name, lease=lease))


def _when_keys_are(client: Client, count: int) -> None:
    """Wait until so many keys exist."""
    create = pb.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=1)
    stream = client.stream(rpc.WATCH, pb.WatchRequest(create_request=create))
    for _ in stream:
        if client.range().count == count:
            break
    stream.cancel()


def test_a_lock_has_one_owner_and_passes_on_in_order(
    client: Client, pool: ThreadPoolExecutor
) -> None:
    leases = [_lease(client) for _ in range(3)]
    first = _lock(client, leases[0])
    assert first.key == b"l/" + f"{leases[0]:x}".encode()
    order: list[int] = []
    waiting: list[Future[None]] = []

    def wait(index: int) -> None:
        key = _lock(client, leases[index]).key
        order.append(index)
        client.call(rpc.UNLOCK, lock_pb2.UnlockRequest(key=key))

    for index in (1, 2):
        waiting.append(pool.submit(wait, index))
        _when_keys_are(client, index + 1)
    assert order == []
    client.call(rpc.UNLOCK, lock_pb2.UnlockRequest(key=first.key))
    for each in waiting:
        each.result(TIMEOUT_S)
    assert order == [1, 2]


def test_the_owner_may_lock_again(client: Client) -> None:
    lease = _lease(client)
    assert _lock(client, lease).key == _lock(client, lease).key
    assert client.range().count == 1


def test_an_ending_lease_passes_the_lock_on(client: Client, pool: ThreadPoolExecutor) -> None:
    first, second = _lease(client), _lease(client)
    _lock(client, first)
    waiting = pool.submit(_lock, client, second)
    _when_keys_are(client, 2)
    client.call(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=first))
    assert waiting.result(TIMEOUT_S).key.endswith(f"{second:x}".encode())


def test_a_lock_without_a_lease_gets_one(client: Client) -> None:
    key = _lock(client, 0).key
    lease = client.range(key, b"").kvs[0].lease
    ttl = client.call(rpc.LEASE_TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=lease))
    assert (key, ttl.grantedTTL) == (b"l/" + f"{lease:x}".encode(), 60)


def test_who_gives_up_leaves_the_line(client: Client, pool: ThreadPoolExecutor) -> None:
    owner, quitter = _lease(client), _lease(client)
    held = _lock(client, owner)
    request = lock_pb2.LockRequest(name=b"l", lease=quitter)
    call: Any = raw_grpc.unary(client.channel, rpc.METHODS[rpc.LOCK].path).future(
        request.SerializeToString(), timeout=TIMEOUT_S
    )
    _when_keys_are(client, 2)
    call.cancel()
    _when_keys_are(client, 1)
    assert client.range().kvs[0].key == held.key


def test_a_lost_session_ends_the_wait(client: Client, pool: ThreadPoolExecutor) -> None:
    owner, lost = _lease(client), _lease(client)
    held = _lock(client, owner)
    request = lock_pb2.LockRequest(name=b"l", lease=lost)
    waiting = pool.submit(client.refused, rpc.LOCK, request)
    _when_keys_are(client, 2)
    client.call(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lost))
    client.call(rpc.UNLOCK, lock_pb2.UnlockRequest(key=held.key))
    assert waiting.result(TIMEOUT_S) == (2, "mutex: session is expired")


LEADER = epb.LeaderKey(name=b"e", key=b"e/none", rev=1, lease=1)


@pytest.mark.parametrize(
    ("method", "request_", "refusal"),
    [
        (
            rpc.LOCK,
            lock_pb2.LockRequest(name=b"l", lease=77),
            "etcdserver: requested lease not found",
        ),
        (rpc.UNLOCK, lock_pb2.UnlockRequest(), "etcdserver: key is not provided"),
        (rpc.ELECTION_LEADER, epb.LeaderRequest(name=b"nobody"), "election: no leader"),
        (rpc.ELECTION_PROCLAIM, epb.ProclaimRequest(), '"leader" field must be provided'),
        (rpc.ELECTION_RESIGN, epb.ResignRequest(), '"leader" field must be provided'),
        (rpc.ELECTION_PROCLAIM, epb.ProclaimRequest(leader=LEADER), "election: not leader"),
    ],
    ids=lambda each: each.DESCRIPTOR.name if isinstance(each, Message) else None,
)
def test_refusals(client: Client, method: int, request_: Message, refusal: str) -> None:
    assert client.refused(method, request_) == (2, refusal)


def test_an_election(client: Client, pool: ThreadPoolExecutor) -> None:
    first, second = _lease(client), _lease(client)

    def campaign(lease: int, value: bytes) -> Any:
        request = epb.CampaignRequest(name=b"e", lease=lease, value=value)
        return client.call(rpc.ELECTION_CAMPAIGN, request).leader

    leader = campaign(first, b"one")
    assert leader.key == b"e/" + f"{first:x}".encode()
    assert campaign(first, b"uno").rev == leader.rev  # a leader that campaigns again proclaims
    found = client.call(rpc.ELECTION_LEADER, epb.LeaderRequest(name=b"e"))
    assert (found.kv.key, found.kv.value) == (leader.key, b"uno")
    waiting = pool.submit(campaign, second, b"two")
    _when_keys_are(client, 2)
    client.call(rpc.ELECTION_RESIGN, epb.ResignRequest(leader=leader))
    assert waiting.result(TIMEOUT_S).lease == second
    assert client.call(rpc.ELECTION_LEADER, epb.LeaderRequest(name=b"e")).kv.value == b"two"


def test_observing_an_election(client: Client, pool: ThreadPoolExecutor) -> None:
    seen: list[bytes] = []
    news = threading.Condition()
    call: Any = raw_grpc.unary_stream(client.channel, rpc.METHODS[rpc.ELECTION_OBSERVE].path)(
        epb.LeaderRequest(name=b"e").SerializeToString(), timeout=TIMEOUT_S
    )

    def observe() -> None:
        try:
            for body in call:
                with news:
                    seen.append(epb.LeaderResponse.FromString(body).kv.value)
                    news.notify_all()
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.CANCELLED:
                raise

    def saw(*values: bytes) -> None:
        with news:
            assert news.wait_for(lambda: seen == list(values), TIMEOUT_S), seen

    watching = pool.submit(observe)
    leases = [_lease(client), _lease(client)]
    request = epb.CampaignRequest(name=b"e", lease=leases[0], value=b"one")
    leader = client.call(rpc.ELECTION_CAMPAIGN, request).leader
    saw(b"one")
    client.call(rpc.ELECTION_PROCLAIM, epb.ProclaimRequest(leader=leader, value=b"uno"))
    saw(b"one", b"uno")
    request = epb.CampaignRequest(name=b"e", lease=leases[1], value=b"two")
    waiting = pool.submit(client.call, rpc.ELECTION_CAMPAIGN, request)
    _when_keys_are(client, 2)
    client.call(rpc.ELECTION_RESIGN, epb.ResignRequest(leader=leader))
    saw(b"one", b"uno", b"two")
    waiting.result(TIMEOUT_S)
    call.cancel()
    watching.result(TIMEOUT_S)
