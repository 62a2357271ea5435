"""--experimental-leasing-prefix: keys that a proxy owns, between proxies of ours and etcd's.

Two proxies stand before one cluster, ours or a real etcd; the second is ours or etcd's own.
"""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typing_extensions import override

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.client import ClientOptions
from kvstore.errors import Code
from kvstore.proxy.cluster_kv import ClusterKv
from kvstore.proxy.leasing.leasing_kv import LeasingKv
from kvstore.proxy.leasing.ownership import Ownership
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.upstream import Upstream
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import pausing
from tests.support.models.row_history import Seen, held_of, now_s, rows, trouble
from tests.support.proxies import ETCDS, OURS, Proxy, proxy
from tests.support.rpc_client import Client
from tests.support.servers import Server, etcd, ours, running
from tests.support.waiting import answered, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("grpc-proxy leasing")]

PREFIX = "leasing/"
READY = "started gRPC proxy"
WAIT_S = 60.0
TXN_OPS_MAX = 128  # --max-txn-ops


class Stage(NamedTuple):
    """A cluster and two proxies before it that share a leasing prefix."""

    cluster: Server
    first: Proxy  # ours
    second: Proxy


def front(directory: Path, cluster: Server, *flags: str, program: Any = OURS) -> Any:
    flags = (f"--experimental-leasing-prefix={PREFIX}", *flags)
    return proxy(
        directory, "grpc-proxy", "start", f"--endpoints={cluster.endpoint}", *flags,
        ready=READY, program=program,
    )  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[(ours, OURS), (etcd, OURS), (ours, ETCDS), (etcd, ETCDS)],
    ids=["ours", "etcd", "ours-and-etcds-proxy", "etcd-and-etcds-proxy"],
)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    server, program = request.param
    tmp = tmp_path_factory.mktemp("leasing")
    with ExitStack() as stack:
        cluster = stack.enter_context(running(server(tmp / "member")))
        first = stack.enter_context(front(tmp, cluster))
        second = stack.enter_context(front(tmp, cluster, program=program))
        first.wait_for("leasing session began")
        yield Stage(cluster, first, second)


@pytest.fixture
def clients(stage: Stage) -> Iterator[tuple[Client, Client, Client]]:
    """Clients of the cluster itself, of our proxy and of the second."""
    with ExitStack() as stack:
        ends = (stage.cluster.endpoint, stage.first.endpoint, stage.second.endpoint)
        yield tuple(stack.enter_context(Client(each)) for each in ends)  # type: ignore[misc]


def row(client: Client, key: bytes) -> Any:
    found = client.range(key, b"").kvs
    return found[0] if found else None


def leasing_row(direct: Client, key: bytes) -> Any:
    return row(direct, PREFIX.encode() + key)


def owned(direct: Client, client: Client, key: bytes) -> Any:
    """Read a key until its leasing key is there; return the leasing key's row."""
    wait_for(lambda: (client.range(key, b""), leasing_row(direct, key))[1] is not None)
    return leasing_row(direct, key)


def test_a_read_makes_the_proxy_the_owner_and_is_answered_from_it(
    clients: tuple[Client, Client, Client],
) -> None:
    direct, first, _ = clients
    first.put(b"read", b"1")
    found = owned(direct, first, b"read")
    assert (found.value, found.lease != 0) == (b"", True)
    direct.put(b"read", b"past the proxies")  # which they cannot know: it is not coherent
    assert row(first, b"read").value == b"1"
    first.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"read"))
    assert row(first, b"read") is None
    assert row(direct, b"read") is None
    assert leasing_row(direct, b"read") is not None


def test_answers_are_the_clusters_own(clients: tuple[Client, Client, Client]) -> None:
    direct, first, _ = clients
    created = first.put(b"same", b"1")
    modified = first.put(b"same", b"22")
    owned(direct, first, b"same")
    asked: list[dict[str, Any]] = [
        {}, {"keys_only": True}, {"count_only": True}, {"limit": 1}, {"serializable": True},
        {"min_mod_revision": modified + 1}, {"max_mod_revision": modified},
        {"max_mod_revision": modified - 1}, {"min_create_revision": created + 1},
        {"max_create_revision": created}, {"revision": created}, {"range_end": b"samez"},
        {"sort_order": 2, "sort_target": 1},
    ]  # fmt: skip

    def read(client: Client, fields: dict[str, Any]) -> Any:
        request = pb.RangeRequest(key=b"same", **fields)
        found = client.call(rpc.RANGE, request)
        assert found.header.revision >= modified
        return found.kvs, found.count, found.more, found.header.cluster_id

    for fields in asked:
        assert read(first, fields) == read(direct, fields), fields
    assert leasing_row(direct, b"same").lease


def test_writes_of_owned_keys_are_kept_as_the_cluster_has_them(
    clients: tuple[Client, Client, Client],
) -> None:
    direct, first, _ = clients
    first.put(b"kept", b"1")
    leasing = owned(direct, first, b"kept")

    def same() -> Any:
        found = row(first, b"kept")
        assert found == row(direct, b"kept")
        assert leasing_row(direct, b"kept") == leasing
        return found

    put = pb.PutRequest(key=b"kept", value=b"2", prev_kv=True)
    assert first.call(rpc.PUT, put).prev_kv.value == b"1"
    assert (same().value, same().version) == (b"2", 2)
    first.call(rpc.PUT, pb.PutRequest(key=b"kept", ignore_value=True))
    assert (same().value, same().version) == (b"2", 3)
    gone = first.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"kept", prev_kv=True))
    assert [each.value for each in gone.prev_kvs] == [b"2"]
    assert same() is None
    first.put(b"kept", b"3")
    assert same().version == 1
    gone = first.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"kep", range_end=b"keq"))
    assert (gone.deleted, same()) == (1, None)


def compare(key: bytes, **fields: Any) -> pb.Compare:
    target = {"version": 0, "create_revision": 1, "mod_revision": 2, "value": 3}
    (name,) = fields
    return pb.Compare(key=key, target=target[name], result=pb.Compare.EQUAL, **fields)  # type: ignore[arg-type]


def putting(key: bytes, value: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value))


def reading(key: bytes, end: bytes = b"") -> pb.RequestOp:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=end))


def deleting(key: bytes, end: bytes = b"") -> pb.RequestOp:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key, range_end=end))


def test_transactions(clients: tuple[Client, Client, Client]) -> None:
    direct, first, second = clients
    for each in (b"t1", b"t2", b"t3"):
        first.put(each, b"0")
        owned(direct, first, each)
    first.put(b"t4", b"0")
    owned(direct, second, b"t4")

    def txn(*compares: pb.Compare, then: list[Any], otherwise: list[Any] | None = None) -> Any:
        request = pb.TxnRequest(compare=compares, success=then, failure=otherwise or [])
        return first.call(rpc.TXN, request)

    def same() -> None:
        for each in (b"t1", b"t2", b"t3", b"t4"):
            assert row(first, each) == row(second, each) == row(direct, each), each

    looked = txn(compare(b"t1", value=b"0"), then=[reading(b"t2"), reading(b"t3")])
    assert looked.succeeded
    assert [each.response_range.kvs[0].value for each in looked.responses] == [b"0", b"0"]
    assert not txn(compare(b"t1", version=7), then=[], otherwise=[]).succeeded
    assert not txn(compare(b"t-none", value=b""), then=[reading(b"t1")]).succeeded
    done = txn(
        compare(b"t1", value=b"0"),
        then=[putting(b"t1", b"1"), deleting(b"t2"), putting(b"t4", b"1")],
        otherwise=[putting(b"t3", b"1")],
    )
    assert done.succeeded
    assert [each.WhichOneof("response") for each in done.responses] == [
        "response_put", "response_delete_range", "response_put",
    ]  # fmt: skip
    assert done.header.revision == row(direct, b"t4").mod_revision
    same()
    owned(direct, second, b"t4")
    inner = pb.TxnRequest(compare=[compare(b"t2", version=0)], success=[deleting(b"t3", b"t5")])
    done = txn(then=[putting(b"t1", b"2"), pb.RequestOp(request_txn=inner)])
    assert done.responses[1].response_txn.responses[0].response_delete_range.deleted == 2
    same()
    code, text = first.refused(
        rpc.TXN, pb.TxnRequest(success=[putting(b"t1", b"3"), putting(b"t1", b"4")])
    )
    assert (code, text) == (
        Code.INVALID_ARGUMENT,
        "etcdserver: duplicate key given in txn request",
    )
    same()


def test_a_write_of_half_as_many_owned_keys_as_a_transaction_may_have(
    clients: tuple[Client, Client, Client],
) -> None:
    direct, first, _ = clients
    half = [b"half%03d" % number for number in range(TXN_OPS_MAX // 2)]
    for each in half:
        first.put(each, b"0")
        owned(direct, first, each)
    for value in (b"1", b"2"):
        done = first.call(rpc.TXN, pb.TxnRequest(success=[putting(each, value) for each in half]))
        assert done.succeeded
        assert len(done.responses) == len(half)
        for each in half:
            assert row(first, each) == row(direct, each)
            assert row(direct, each).mod_revision == done.header.revision
    whole = [b"half%03d" % number for number in range(TXN_OPS_MAX + 1)]
    refused = first.refused(rpc.TXN, pb.TxnRequest(success=[putting(each, b"3") for each in whole]))
    assert refused == (Code.INVALID_ARGUMENT, "etcdserver: too many operations in txn request")
    assert row(first, half[0]).value == b"2"


def test_a_writer_elsewhere_gets_the_key_and_the_owner_the_value(
    clients: tuple[Client, Client, Client],
) -> None:
    direct, first, second = clients
    for owner, writer in ((first, second), (second, first)):
        writer.put(b"moved", b"0")
        owned(direct, owner, b"moved")
        began_s = time.monotonic()
        writer.put(b"moved", b"1")
        assert time.monotonic() - began_s < WAIT_S  # not the lease's 60 s
        assert leasing_row(direct, b"moved") is None
        assert row(owner, b"moved").value == b"1"
        owned(direct, owner, b"moved")
        writer.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"move", range_end=b"movf"))
        assert row(owner, b"moved") is None


def test_an_owner_is_asked_by_a_put_of_revoke(clients: tuple[Client, Client, Client]) -> None:
    direct, first, _ = clients
    first.put(b"asked", b"1")
    leasing = owned(direct, first, b"asked")
    direct.call(rpc.PUT, pb.PutRequest(key=leasing.key, value=b"other words", ignore_lease=True))
    assert row(first, b"asked").value == b"1"
    direct.call(rpc.PUT, pb.PutRequest(key=leasing.key, value=b"REVOKE", ignore_lease=True))
    wait_for(lambda: leasing_row(direct, b"asked") is None)
    direct.put(b"asked", b"2")
    assert row(first, b"asked").value == b"2"


def test_a_key_with_a_lease_is_not_owned(clients: tuple[Client, Client, Client]) -> None:
    direct, first, _ = clients
    lease = direct.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=600)).ID
    first.put(b"leased", b"1", lease)
    assert row(first, b"leased").value == b"1"
    assert leasing_row(direct, b"leased") is None
    first.put(b"becomes leased", b"1")
    owned(direct, first, b"becomes leased")
    first.put(b"becomes leased", b"2", lease)
    wait_for(lambda: leasing_row(direct, b"becomes leased") is None)
    direct.call(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease))
    assert row(first, b"leased") is None
    assert row(first, b"becomes leased") is None


def test_a_session_that_ends_takes_its_keys_and_another_begins(
    stage: Stage, clients: tuple[Client, Client, Client]
) -> None:
    direct, first, second = clients
    first.put(b"session", b"1")
    lease = owned(direct, first, b"session").lease
    direct.call(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease))
    second.put(b"session", b"2")
    wait_for(lambda: row(first, b"session").value == b"2")
    assert owned(direct, first, b"session").lease != lease
    wait_for(lambda: (first.put(b"session", b"3"), row(second, b"session").value)[1] == b"3")


def test_a_proxy_that_stops_gives_its_keys_back(stage: Stage, tmp_path: Path) -> None:
    with front(tmp_path, stage.cluster) as third, Client(stage.cluster.endpoint) as direct:
        third.wait_for("leasing session began")
        with Client(third.endpoint) as client:
            client.put(b"stopped", b"1")
            owned(direct, client, b"stopped")
        third.process.send_signal(signal.SIGTERM)
        assert third.process.wait(WAIT_S) == 0
        assert leasing_row(direct, b"stopped") is None


def test_inside_a_namespace(stage: Stage, tmp_path: Path) -> None:
    with ExitStack() as stack:
        fronts = [
            stack.enter_context(front(tmp_path, stage.cluster, "--namespace=ns/")) for _ in "ab"
        ]
        one, other = (stack.enter_context(Client(each.endpoint)) for each in fronts)
        direct = stack.enter_context(Client(stage.cluster.endpoint))
        one.put(b"named", b"1")
        key = b"ns/" + PREFIX.encode() + b"named"
        wait_for(lambda: (row(one, b"named"), row(direct, key))[1] is not None)
        other.put(b"named", b"2")
        assert row(direct, key) is None
        assert row(one, b"named") == row(other, b"named")
        assert row(direct, b"ns/named").value == b"2"
        wait_for(lambda: (row(one, b"named"), row(direct, key))[1] is not None)
        gone = other.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"\0", range_end=b"\0"))
        assert gone.deleted >= 1
        assert row(one, b"named") is None


# Out of reach: the parts of a proxy beside a server that stops for a while.


async def own_one(server: Server, ttl_s: int) -> tuple[LeasingKv, Ownership, Upstream]:
    """Return what owns the key `far` with the value 1."""
    upstream = Upstream([server.client_url], ClientOptions(), LineLogger([], "info"))
    cluster, prefix = ClusterKv(upstream, None), Namespace("far-leasing/")
    ownership = Ownership(upstream, cluster, prefix, None, LineLogger([], "info"), ttl_s=ttl_s)
    return LeasingKv(cluster, ownership, prefix), ownership, upstream


async def value_of(kv: LeasingKv, key: bytes) -> bytes:
    body = await kv.call(rpc.RANGE, pb.RangeRequest(key=key).SerializeToString(), {})
    return pb.RangeResponse.FromString(body).kvs[0].value


@pytest.mark.parametrize("program", [ours, etcd], ids=["ours", "etcd"])
def test_owned_keys_are_read_without_the_cluster_until_the_session_ends(
    program: Any, tmp_path: Path
) -> None:
    async def play(server: Server) -> None:
        kv, ownership, upstream = await own_one(server, ttl_s=3)
        running = asyncio.create_task(ownership.run())
        put = pb.PutRequest(key=b"far", value=b"1").SerializeToString()
        await kv.call(rpc.PUT, put, {})

        async def is_owned() -> bool:
            return (await value_of(kv, b"far"), ownership.readable(b"far"))[1] is not None

        await answered(is_owned)
        assert server.process is not None
        pausing.pause(server.pid)
        try:
            assert await value_of(kv, b"far") == b"1"

            async def is_over() -> bool:
                return ownership.readable(b"far") is None

            await answered(is_over)
            late = asyncio.create_task(value_of(kv, b"far"))
            done, _ = await asyncio.wait([late], timeout=0.2)
            assert not done
        finally:
            pausing.resume(server.pid)
        assert await late == b"1"
        await answered(is_owned)
        await ownership.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await upstream.close()

    with running(program(tmp_path / "member")) as server:
        asyncio.run(play(server))


def test_a_token_owns_nothing_and_is_answered_by_the_cluster(tmp_path: Path) -> None:
    async def play(server: Server) -> None:
        kv, ownership, upstream = await own_one(server, ttl_s=60)
        running = asyncio.create_task(ownership.run())
        await kv.call(rpc.PUT, pb.PutRequest(key=b"far", value=b"1").SerializeToString(), {})

        async def is_owned() -> bool:
            return (await value_of(kv, b"far"), ownership.readable(b"far"))[1] is not None

        await answered(is_owned)
        asked = [
            (rpc.RANGE, pb.RangeRequest(key=b"far")),
            (rpc.TXN, pb.TxnRequest(success=[reading(b"far")])),
        ]
        for method, request in asked:
            with pytest.raises(CallRefusedError) as refused:
                await kv.call(method, request.SerializeToString(), {"token": "nobody's"})
            assert refused.value.code == Code.UNAUTHENTICATED
        await ownership.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await upstream.close()

    with running(etcd(tmp_path / "member")) as server:
        asyncio.run(play(server))


# Many at once.

KEYS = [b"many/%d" % each for each in range(4)]
KEYS_END = b"many0"


class Worker(threading.Thread):
    """One client that does one thing after another, and notes what it saw."""

    def __init__(self, endpoint: str, seed: str, calls: int) -> None:
        super().__init__(name=seed)
        self._random = random.Random(seed)
        self._endpoint = endpoint
        self._calls = calls
        self.seen: list[Seen] = []
        self.failure: BaseException | None = None

    @override
    def run(self) -> None:
        try:
            with Client(self._endpoint) as client:
                for number in range(self._calls):
                    self._step(client, number)
        except BaseException as error:  # noqa: BLE001 - raised by the test's thread
            self.failure = error

    def _step(self, client: Client, number: int) -> None:
        key, other = self._random.sample(KEYS, 2)
        value = f"{self.name} {number}".encode()
        began_s = now_s()

        def saw(key: bytes, **what: Any) -> None:
            self.seen.append(Seen(key, began_s, now_s(), self.name, **what))

        match self._random.randrange(12):
            case 0 | 1:
                saw(key, wrote=client.put(key, value))
            case 2:
                done = client.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=key))
                saw(key, wrote=done.header.revision)
            case 3:
                request = pb.DeleteRangeRequest(key=key, range_end=KEYS_END)
                revision = client.call(rpc.DELETE_RANGE, request).header.revision
                for each in KEYS[KEYS.index(key) :]:
                    saw(each, wrote=revision)
            case 4:
                txn = pb.TxnRequest(
                    compare=[compare(key, version=1)],
                    success=[putting(other, value), reading(key)],
                    failure=[putting(key, value), reading(other)],
                )
                done = client.call(rpc.TXN, txn)
                wrote, looked = (other, key) if done.succeeded else (key, other)
                found = done.responses[1].response_range.kvs
                saw(wrote, wrote=done.header.revision)
                saw(looked, held=held_of(found[0] if found else None))
            case 5:
                txn = pb.TxnRequest(success=[reading(key), reading(other)])
                done = client.call(rpc.TXN, txn)
                for each, its in zip((key, other), done.responses, strict=True):
                    found = its.response_range.kvs
                    saw(each, held=held_of(found[0] if found else None))
            case _:
                saw(key, held=held_of(row(client, key)))


def test_many_clients_of_both_see_one_order(stage: Stage) -> None:
    """Through both proxies at once; reads also of the cluster itself, which are coherent."""
    is_etcds = stage.second.process.args[0] == ETCDS[0]  # type: ignore[index]
    ends = [stage.first.endpoint] * 4
    # etcd's proxy mixes up writes of its own that overlap, so it gets one client.
    ends += [stage.second.endpoint] * (1 if is_etcds else 4)
    workers = [Worker(each, f"client {at}", 150) for at, each in enumerate(ends)]
    for each in workers:
        each.start()
    seen: list[Seen] = []
    with Client(stage.cluster.endpoint) as direct:
        while any(each.is_alive() for each in workers):
            for key in KEYS:
                began_s = now_s()
                found = held_of(row(direct, key))
                seen.append(Seen(key, began_s, now_s(), "direct", held=found))
            time.sleep(0.005)
        for each in workers:
            each.join()
            assert each.failure is None, each.failure
            seen += each.seen
        last = direct.range(b"none", b"").header.revision
        assert not trouble(seen, rows(direct, last))
        leased = [each for each in direct.history(1, last) if each.kv.value == b"REVOKE"]
    assert leased, "no key was ever asked for"
