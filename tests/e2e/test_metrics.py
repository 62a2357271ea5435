"""The metrics page: what alerts and dashboards read, beside etcd's own page, and slow requests."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvstore.transport import native
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.http.plain_client import ask
from tests.support.mixin_names import ALERTS, BETWEEN_MEMBERS, DASHBOARD
from tests.support.rpc_client import Client
from tests.support.servers import Server, etcd, free_ports, ours, running
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.xdist_group("metrics"),
    pytest.mark.skipif(not native.is_available(), reason="needs the native transport"),
]

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
NATIVE = "--transport=native"
EXTENSIVE = "--metrics=extensive"
SECRET = b"hunter2hunter2"


def page(server: Server) -> str:
    status, headers, body = ask(server.client_port, "GET", "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4; charset=utf-8")
    return body.decode()


def status_page_data(server: Server) -> Any:
    status, _, body = ask(server.client_port, "GET", "/ui/data")
    assert status == 200
    return json.loads(body)


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def families(text: str) -> dict[str, tuple[str, str]]:
    """Return kind and help text by name."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            _, _, name, rest = line.split(" ", 3)
            found.setdefault(name, []).append(rest)
    return {name: (kind, text) for name, (text, kind) in found.items()}


def do_a_bit_of_everything(client: Client) -> None:
    client.put(b"a", SECRET)
    client.put(b"b", SECRET)
    client.put(b"a", SECRET)
    client.range(b"a", b"")
    assert client.refused(rpc.RANGE, pb.RangeRequest(key=b"a", revision=99))
    assert client.refused(rpc.PUT, pb.PutRequest())
    for key in (b"b", b"no such key"):
        client.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=key))
    txn = pb.TxnRequest()
    txn.compare.add(key=b"a", target=pb.Compare.VERSION, version=2)
    for key in (b"c", b"d"):
        txn.success.add(request_put=pb.PutRequest(key=key, value=SECRET))
    client.call(rpc.TXN, txn)
    lease = client.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=100)).ID
    client.call(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease))
    client.call(rpc.COMPACT, pb.CompactionRequest(revision=3, physical=True))
    client.call(rpc.DEFRAGMENT, pb.DefragmentRequest())
    watch = client.stream(rpc.WATCH)
    watch.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"a")))
    assert watch.receive().created
    client.put(b"a", b"seen")
    assert watch.receive().events
    watch.cancel()


EQUAL = {
    "etcd_cluster_version",
    "etcd_debugging_lease_granted_total",
    "etcd_debugging_lease_revoked_total",
    "etcd_debugging_lease_ttl_total",
    "etcd_debugging_mvcc_compact_revision",
    "etcd_debugging_mvcc_current_revision",
    "etcd_debugging_mvcc_db_compaction_keys_total",
    "etcd_debugging_mvcc_keys_total",
    "etcd_debugging_mvcc_watch_stream_total",
    "etcd_debugging_mvcc_watcher_total",
    "etcd_disk_defrag_inflight",
    "etcd_mvcc_delete_total",
    "etcd_mvcc_put_total",
    "etcd_mvcc_txn_total",
    "etcd_server_has_leader",
    "etcd_server_is_leader",
    "etcd_server_is_learner",
    "etcd_server_leader_changes_seen_total",
    "etcd_server_proposals_failed_total",
    "etcd_server_proposals_pending",
    "etcd_server_quota_backend_bytes",
    "grpc_server_handled_total",
    "grpc_server_started_total",
}
# What cannot be the same: versions, and calls that one server is asked and the other not.
LEFT_OUT = ('grpc_method="Status"', "cluster_version=")


def until_watch_is_counted(server: Server) -> None:
    key = (
        ("grpc_code", "Canceled"),
        ("grpc_method", "Watch"),
        ("grpc_service", "etcdserverpb.Watch"),
        ("grpc_type", "bidi_stream"),
    )
    wait_for(lambda: samples(page(server)).get(("grpc_server_handled_total", key)) == 1)


def test_the_same_calls_count_as_in_etcd(tmp_path: Path) -> None:
    counted = []
    for server in (etcd(tmp_path / "etcd"), ours(tmp_path / "ours", extra=[NATIVE])):
        with running(server), Client(server.endpoint) as client:
            do_a_bit_of_everything(client)
            until_watch_is_counted(server)
            counted.append(
                {
                    line
                    for line in page(server).splitlines()
                    if line.partition("{")[0].partition(" ")[0].removesuffix("_count") in EQUAL
                    and not line.endswith(" 0")
                    and not any(each in line for each in LEFT_OUT)
                }
            )
    theirs, mine = counted
    assert mine == theirs


def gateway_watch(server: Server) -> None:
    """Watch by HTTP, see one event, and go."""
    connection = http.client.HTTPConnection("127.0.0.1", server.client_port, timeout=20)
    connection.request("POST", "/v3/watch", json.dumps({"create_request": {"key": "YQ=="}}))
    answer = connection.getresponse()
    assert json.loads(answer.readline())["result"]["created"]
    ask(server.client_port, "POST", "/v3/kv/put", body=b'{"key":"YQ==","value":"Yg=="}')
    assert json.loads(answer.readline())["result"]["events"]
    answer.close()
    connection.close()


def test_the_gateways_calls_count_as_in_etcd(tmp_path: Path) -> None:
    posts = [
        ("kv/put", b'{"key":"YQ==","value":"Yg=="}', 200),
        ("kv/put", b'{"key":""}', 400),
        ("kv/put", b'{"key":5}', 400),
        ("kv/range", b'{"key":"YQ=="}', 200),
        ("kv/range", b'{"key":"YQ==","revision":99}', 400),
        ("kv/txn", b'{"success":[{"request_range":{"key":"YQ=="}}]}', 200),
        ("lease/grant", b'{"TTL":100}', 200),
    ]
    # etcd 3.5 counts no refusal as a message sent; 3.7 does.
    refusals_sent = [f'msg_sent_total{{grpc_method="{name}"' for name in ("Put", "Range")]
    counted = []
    for server in (etcd(tmp_path / "etcd"), ours(tmp_path / "ours", extra=[NATIVE])):
        with running(server):
            for path, body, expected in posts:
                status, _, _ = ask(server.client_port, "POST", f"/v3/{path}", body=body)
                assert status == expected, path
            gateway_watch(server)
            until_watch_is_counted(server)
            counted.append(
                {
                    line
                    for line in page(server).splitlines()
                    if line.startswith("grpc_server_")
                    and not line.endswith(" 0")
                    and not any(each in line for each in (*LEFT_OUT, *refusals_sent))
                }
            )
    theirs, mine = counted
    assert mine == theirs


def test_kinds_and_help_texts_are_etcds(tmp_path: Path) -> None:
    found = []
    for server in (
        etcd(tmp_path / "etcd", extra=[EXTENSIVE]),
        ours(tmp_path / "ours", extra=[NATIVE, EXTENSIVE]),
    ):
        with running(server), Client(server.endpoint) as client:
            do_a_bit_of_everything(client)
            found.append(families(page(server)))
    theirs, mine = found
    both = theirs.keys() & mine.keys()
    assert len(both) > 75
    newer = {  # worded anew between etcd 3.5 and 3.7
        "etcd_disk_backend_snapshot_duration_seconds",
        "etcd_disk_wal_write_bytes_total",
        "etcd_mvcc_hash_duration_seconds",
        "etcd_mvcc_hash_rev_duration_seconds",
        "go_threads",
        "process_virtual_memory_max_bytes",
    }
    assert {name: mine[name] for name in both - newer} == {
        name: theirs[name] for name in both - newer
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(ours(tmp_path_factory.mktemp("metrics"), extra=[NATIVE, EXTENSIVE])) as made:
        with Client(made.endpoint) as client:
            do_a_bit_of_everything(client)
        yield made


def test_alerts_and_dashboard_find_what_they_read(server: Server) -> None:
    found = {name: {label for label, _ in each} for name, each in samples(page(server))}
    for name, wanted in (ALERTS | DASHBOARD).items():
        assert name in found, name
        assert set(wanted) == found[name], name


def test_buckets(server: Server) -> None:
    found = samples(page(server))

    def bounds(name: str) -> list[str]:
        return list(
            dict.fromkeys(dict(each)["le"] for family, each in found if family == f"{name}_bucket")
        )

    disk = [f"{0.001 * 2**n:g}" for n in range(14)]
    assert bounds("etcd_disk_wal_fsync_duration_seconds") == [*disk, "+Inf"]
    assert bounds("etcd_disk_backend_commit_duration_seconds") == [*disk, "+Inf"]
    assert len(bounds("etcd_server_apply_duration_seconds")) == 21
    assert bounds("grpc_server_handling_seconds")[:3] == ["0.005", "0.01", "0.025"]


def test_metrics_of_the_process(server: Server) -> None:
    found = samples(page(server))
    assert found["process_resident_memory_bytes", ()] > 10 << 20
    assert found["process_open_fds", ()] == found["os_fd_used", ()] > 3
    assert 0 < time.time() - found["process_start_time_seconds", ()] < 600  # noqa: TID251
    assert found["kvstore_metrics_age_seconds", ()] == 0
    assert ("etcd_server_version", (("server_version", "3.7.1"),)) in found


def test_handling_times_only_when_asked_for(tmp_path: Path) -> None:
    with running(ours(tmp_path, extra=[NATIVE])) as server:
        assert "grpc_server_handling_seconds" not in page(server)


def test_the_page_may_be_asked_for_at_addresses_of_its_own(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    extra = [f"--listen-metrics-urls=http://127.0.0.1:{port}"]
    with running(ours(tmp_path, extra=extra)):
        status, _, body = ask(port, "GET", "/metrics")
        assert status == 200
        assert b"etcd_server_has_leader 1\n" in body


def test_between_members(tmp_path: Path) -> None:
    ports = free_ports(6)
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    cluster = ",".join(f"m{at}=http://127.0.0.1:{peer}" for at, (_, peer) in enumerate(pairs))
    members = [
        ours(tmp_path / f"m{at}", name=f"m{at}", ports=pair,
             extra=[NATIVE, f"--initial-cluster={cluster}"])
        for at, pair in enumerate(pairs)
    ]  # fmt: skip
    with ExitStack() as stack:
        for member in members:
            member.start(wait=False)
            stack.enter_context(running(member))
        for member in members:
            member.wait_ready()
        with Client(members[0].endpoint) as client:
            client.put(b"k", b"v")

        def all_seen() -> bool:
            found = {name: {label for label, _ in each} for name, each in samples(page(members[0]))}
            return all(found.get(name) == set(wanted) for name, wanted in BETWEEN_MEMBERS.items())

        wait_for(all_seen)
        leaders = [samples(page(member))["etcd_server_is_leader", ()] for member in members]
        assert sorted(leaders) == [0, 0, 1]
        known = [
            each for each in samples(page(members[0])) if each[0] == "etcd_network_known_peers"
        ]
        assert len(known) == 3
        shown = status_page_data(members[leaders.index(1)])["members"]
        others = [each for each in shown if not each["is_leader"]]
        assert {each["name"] for each in shown} == {"m0", "m1", "m2"}
        assert [(each["state"], each["active"]) for each in others] == [("replicate", True)] * 2
        assert all(each["rtt_ms"] >= 0 for each in others)


def test_slow_requests_are_logged_with_their_cause(tmp_path: Path) -> None:
    extra = [NATIVE, "--warning-unary-request-duration=1us", "--warning-apply-duration=1ns"]
    with running(ours(tmp_path, extra=extra)) as server, Client(server.endpoint) as client:
        txn = pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"t"))])
        txn.compare.add(
            key=b"a", target=pb.Compare.VALUE, value=SECRET, result=pb.Compare.NOT_EQUAL
        )
        client.call(rpc.TXN, txn)
        do_a_bit_of_everything(client)
        logged = [each for each in server.log_records() if each["msg"] == "request stats"]
        puts = [each for each in logged if each["response type"] == "/etcdserverpb.KV/Put"]
        assert puts[0]["request content"] == 'key:"a" value_size:14'
        assert str(puts[0]["remote"]).startswith("127.0.0.1:")
        assert (puts[0]["request count"], puts[0]["response count"]) == (1, 0)
        assert puts[0]["cause"] in {"disk sync", "other work of the turn", "applying"}
        stages = puts[0]["stages"]
        assert isinstance(stages, dict)
        assert "disk sync" in stages
        applies = [
            each for each in server.log_records() if each["msg"] == "apply request took too long"
        ]
        assert applies
        assert all(each["expected-duration"] == "1ns" for each in applies)
        shown = 'txn:<compare:<result:NOT_EQUAL target:VALUE key:"a" value_size:14> success:<'
        assert any(str(each["request"]).startswith(shown) for each in applies)
        assert SECRET.decode() not in server.log()
        found = samples(page(server))
        assert found["kvstore_slow_requests_total", ()] >= len(logged)
        assert found["etcd_server_slow_apply_total", ()] >= len(applies)

        before = len(server.log_records())
        for _ in range(100):
            client.put(b"a", b"")
        assert len(server.log_records()) - before < 50  # in rate_limiter


def test_a_slow_request_of_the_gateway_is_logged_too(tmp_path: Path) -> None:
    extra = [NATIVE, "--warning-unary-request-duration=1us"]
    with running(ours(tmp_path, extra=extra)) as server:
        body = b'{"key":"YQ==","value":"Yg=="}'
        assert ask(server.client_port, "POST", "/v3/kv/put", body=body)[0] == 200

        def logged_puts() -> list[dict[str, object]]:
            said = [each for each in server.log_records() if each["msg"] == "request stats"]
            return [each for each in said if each["response type"] == "/etcdserverpb.KV/Put"]

        wait_for(logged_puts)
        assert logged_puts()[0]["remote"] == "No remote client info."
        assert ask(server.client_port, "GET", "/health")[0] == 200
