"""The gRPC proxy as a process: before a real etcd, beside etcd's own proxy, and before ours."""

import hashlib
import json
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvstore.errors import Code
from kvstore.transport import native
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc
from tests.support.certificates import Authority
from tests.support.network.dns_server import dns_server
from tests.support.proxies import ETCDS, Proxy, proxy, refusal
from tests.support.rpc_client import Client, Stream
from tests.support.servers import ETCDCTL, Server, etcd, etcdctl, free_ports, ours, running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("grpc-proxy")]

READY = "started gRPC proxy"
START = ("grpc-proxy", "start")
HEALTHY = (200, '{"health":"true","reason":""}')
NEEDS_NATIVE = pytest.mark.skipif(
    not native.is_available(), reason="pages beside gRPC: the native transport is not built"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(etcd(tmp_path_factory.mktemp("cluster") / "etcd")) as server:
        yield server


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory, cluster: Server) -> Iterator[Proxy]:
    directory = tmp_path_factory.mktemp("front")
    port, metrics_port = free_ports(2)
    with proxy(
        directory, *START, f"--endpoints={cluster.endpoint}",
        f"--advertise-client-url=127.0.0.1:{port}",
        f"--metrics-addr=http://127.0.0.1:{metrics_port}", ready=READY, port=port,
    ) as running_proxy:  # fmt: skip
        yield running_proxy


def page(url: str, path: str, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{url}{path}", timeout=10, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def counters(url: str, path: str = "/proxy/metrics") -> dict[str, float]:
    _, text = page(url, path)
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels
    }


def watch(client: Client, **create: Any) -> Stream:
    request = pb.WatchRequest(create_request=pb.WatchCreateRequest(**create))
    return client.stream(rpc.WATCH, request)


def events(stream: Stream, count: int) -> list[tuple[int, bytes, bytes, bytes]]:
    """Return (watch id, key, value, previous value) of the next events."""
    found: list[tuple[int, bytes, bytes, bytes]] = []
    while len(found) < count:
        response = stream.receive()
        assert not response.canceled, response
        found += [
            (response.watch_id, each.kv.key, each.kv.value, each.prev_kv.value)
            for each in response.events
        ]
    return found


def test_watches_of_one_range_share_one_on_the_cluster(cluster: Server, front: Proxy) -> None:
    before = counters(cluster.client_url, "/metrics")["etcd_debugging_mvcc_watcher_total"]
    with Client(front.endpoint) as client:
        streams = [watch(client, key=b"shared/", range_end=b"shared0") for _ in range(8)]
        assert all(each.receive().created for each in streams)
        wait_for(
            lambda: counters(front.metrics_url)["etcd_grpc_proxy_watchers_coalescing_total"] == 7
        )
        watchers = counters(cluster.client_url, "/metrics")["etcd_debugging_mvcc_watcher_total"]
        assert watchers == before + 1
        revision = client.put(b"shared/a", b"1")
        client.put(b"shared/a", b"2")
        for each in streams:
            assert events(each, 2) == [(0, b"shared/a", b"1", b""), (0, b"shared/a", b"2", b"")]
        later = watch(
            client, key=b"shared/", range_end=b"shared0", start_revision=revision, prev_kv=True
        )
        assert later.receive().created
        assert events(later, 2) == [(0, b"shared/a", b"1", b""), (0, b"shared/a", b"2", b"1")]
        deletions = watch(
            client,
            key=b"shared/a",
            start_revision=revision,
            filters=[pb.WatchCreateRequest.NOPUT],
        )
        assert deletions.receive().created
        client.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"shared/a"))
        assert events(deletions, 1) == [(0, b"shared/a", b"", b"")]
        for each in [*streams, later, deletions]:
            each.cancel()
        wait_for(
            lambda: counters(front.metrics_url)["etcd_grpc_proxy_watchers_coalescing_total"] == 0
        )
        assert counters(front.metrics_url)["etcd_grpc_proxy_events_coalescing_total"] >= 14
    now = counters(cluster.client_url, "/metrics")
    assert now["etcd_debugging_mvcc_watcher_total"] <= before


def test_ids_cancels_refusals_and_progress_of_watches(front: Proxy) -> None:
    with Client(front.endpoint) as client:
        revision = client.put(b"ids", b"1")
        stream = watch(client, key=b"ids")
        assert stream.receive().watch_id == 0
        create = pb.WatchCreateRequest

        def ask(**fields: Any) -> Any:
            stream.send(pb.WatchRequest(create_request=create(**fields)))
            return stream.receive()

        assert ask(key=b"ids").watch_id == 1
        assert ask(key=b"ids", watch_id=77).watch_id == 77
        again = ask(key=b"ids", watch_id=77)
        assert (again.watch_id, again.created, again.canceled) == (-1, True, True)
        assert again.cancel_reason == "mvcc: duplicate watch ID provided on the WatchStream"
        assert ask(key=b"b", range_end=b"a").cancel_reason == "mvcc: watcher range is empty"
        old = ask(key=b"ids", start_revision=-1)
        assert (old.canceled, old.watch_id) == (True, -1)
        stream.send(pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=1)))
        cancelled = stream.receive()
        assert (cancelled.watch_id, cancelled.canceled) == (1, True)
        stream.send(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
        progress = stream.receive()
        assert (progress.watch_id, len(progress.events)) == (-1, 0)
        assert progress.header.revision >= revision
        client.put(b"ids", b"2")
        assert sorted(each[0] for each in events(stream, 2)) == [0, 77]
        stream.cancel()


def test_a_watch_of_what_was_compacted_is_cancelled(front: Proxy) -> None:
    with Client(front.endpoint) as client:
        revision = [client.put(b"old", b"%d" % each) for each in range(4)][-1]
        client.call(rpc.COMPACT, pb.CompactionRequest(revision=revision))
        stream = watch(client, key=b"old", start_revision=revision - 2)
        found = [stream.receive()]
        while not found[-1].canceled:
            found.append(stream.receive())
        assert found[-1].compact_revision == revision
        stream.cancel()
        code, text = client.refused(
            rpc.RANGE, pb.RangeRequest(key=b"old", revision=revision - 2, serializable=True)
        )
        assert (code, text) == (
            Code.OUT_OF_RANGE,
            "etcdserver: mvcc: required revision has been compacted",
        )


def test_serializable_reads_come_from_what_is_kept(cluster: Server, front: Proxy) -> None:
    with Client(front.endpoint) as client, Client(cluster.endpoint) as direct:
        read = pb.RangeRequest(key=b"kept", range_end=b"keptz", serializable=True)

        def values() -> list[bytes]:
            return [each.value for each in client.call(rpc.RANGE, read).kvs]

        client.put(b"kept", b"1")
        before = counters(front.metrics_url)
        assert values() == [b"1"]
        direct.put(b"kept", b"2")
        assert values() == [b"1"]
        after = counters(front.metrics_url)
        for name, more in (("hits", 1), ("misses", 1), ("keys", 1)):
            each = f"etcd_grpc_proxy_cache_{name}_total"
            assert after[each] == before[each] + more, each
        client.put(b"kept", b"3")
        assert values() == [b"3"]
        client.call(
            rpc.TXN,
            pb.TxnRequest(
                success=[pb.RequestOp(request_put=pb.PutRequest(key=b"kept2", value=b"4"))]
            ),
        )
        assert values() == [b"3", b"4"]
        client.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"kept", range_end=b"\0"))
        assert values() == []


@pytest.mark.parametrize("path", ["metrics", pytest.param("clients", marks=NEEDS_NATIVE)])
def test_pages(path: str, front: Proxy) -> None:
    url = front.metrics_url if path == "metrics" else f"http://{front.endpoint}"
    assert page(url, "/health") == HEALTHY
    assert page(url, "/proxy/health") == HEALTHY
    assert page(url, "/nothing")[0] == 404
    own = counters(url)
    assert own["process_open_fds"] > 0
    assert "etcd_server_has_leader" in counters(url, "/metrics")
    assert "etcd_server_has_leader" not in own


def test_errors_of_the_cluster_are_passed_on(front: Proxy) -> None:
    with Client(front.endpoint) as client:
        assert client.refused(rpc.PUT, pb.PutRequest()) == (
            Code.INVALID_ARGUMENT,
            "etcdserver: key is not provided",
        )
        large = pb.PutRequest(key=b"k", value=b"x" * 1_600_000)
        code, text = client.refused(rpc.PUT, large)
        assert code == Code.RESOURCE_EXHAUSTED
        assert text.startswith("trying to send message larger than max (16000")
        assert client.refused(rpc.PUT, b"\xff\xff")[0] != 0
        assert client.refused_path("/etcdserverpb.KV/Nothing", b"")[0] == Code.UNIMPLEMENTED


def test_leases_are_kept_alive_for_many_at_once(front: Proxy) -> None:
    with Client(front.endpoint) as client:
        lease_id = client.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=60)).ID
        ask = pb.LeaseKeepAliveRequest(ID=lease_id)
        streams = [client.stream(rpc.LEASE_KEEP_ALIVE, ask, ask) for _ in range(3)]
        for stream in streams:
            for _ in range(2):
                answer = stream.receive()
                assert lease_id == answer.ID
                assert answer.TTL == 60
        streams[0].send(pb.LeaseKeepAliveRequest(ID=4711))
        assert streams[0].receive().TTL == 0
        for stream in streams:
            stream.cancel()


NAMESPACE_PLAY = r"""
put a 1
put b 2
get a
get "" --prefix
get "" --from-key
get a c
get a --from-key --keys-only
del b --prev-kv
put "" x
txn <<< value("a") = "1"\n\nput c 3\nget c\ndel a --prev-kv\n\nput d 4\n\n
get "" --prefix
lease grant 500
"""


def test_a_namespace_is_as_in_etcds_proxy(tmp_path: Path) -> None:
    transcripts = []
    for name, program in (("ours", None), ("etcds", ETCDS)):
        with ExitStack() as stack:
            server = stack.enter_context(running(etcd(tmp_path / name)))
            etcdctl(server, "put", "a", "outside")
            more: dict[str, Any] = {} if program is None else {"program": program}
            ready = READY if program is None else "listening for gRPC proxy client requests"
            front = stack.enter_context(
                proxy(
                    tmp_path,
                    *START,
                    f"--endpoints={server.endpoint}",
                    "--namespace=ns/",
                    ready=ready,
                    **more,
                )
            )
            transcripts.append(_namespace_transcript(server, front))
    assert transcripts[0] == transcripts[1]


def _namespace_transcript(server: Server, front: Proxy) -> list[str]:
    found = []
    lease = ""
    for line in NAMESPACE_PLAY.strip().splitlines():
        command, _, stdin = line.partition(" <<< ")
        words = [word.strip('"') for word in command.split()]
        done = etcdctl(front, *words, check=False, stdin=stdin.replace(r"\n", "\n"))  # type: ignore[arg-type]
        if words[0] == "lease":
            lease = done.stdout.split()[1]
        else:
            found += [line, done.stdout, done.stderr.rpartition("Error: ")[2]]
    etcdctl(front, "put", "leased", "1", f"--lease={lease}")  # type: ignore[arg-type]
    left = etcdctl(front, "lease", "timetolive", lease, "--keys").stdout  # type: ignore[arg-type]
    found.append(left.partition("attached keys")[2])
    found.append(etcdctl(server, "get", "", "--prefix", "--keys-only").stdout)
    with Client(front.endpoint) as client:
        stream = watch(client, key=b"a", range_end=b"\0", start_revision=2, prev_kv=True)
        assert stream.receive().created
        found.append(repr(events(stream, 6)))
        stream.cancel()
    return found


def test_nested_transactions_in_a_namespace_of_a_cluster_that_dns_names(
    tmp_path: Path, cluster: Server
) -> None:
    records = {"_etcd-client._tcp.example.org": [f"0 0 {cluster.client_port} localhost."]}
    with (
        dns_server(records) as dns,
        proxy(
            tmp_path,
            *START,
            "--discovery-srv=example.org",
            "--insecure-discovery",
            f"--discovery-dns-server={dns}",
            "--namespace=nest/",
            ready=READY,
        ) as front,
        Client(front.endpoint) as client,
    ):
        inner = pb.TxnRequest(
            compare=[pb.Compare(key=b"x", target=pb.Compare.VERSION, version=0)],
            success=[
                pb.RequestOp(request_put=pb.PutRequest(key=b"x", value=b"1")),
                pb.RequestOp(request_range=pb.RangeRequest(key=b"", range_end=b"\0")),
            ],
        )
        found = client.call(rpc.TXN, pb.TxnRequest(success=[pb.RequestOp(request_txn=inner)]))
        nested = found.responses[0].response_txn
        assert nested.succeeded
        assert [each.key for each in nested.responses[1].response_range.kvs] == [b"x"]
    assert etcdctl(cluster, "get", "nest/x").stdout == "nest/x\n1\n"


def test_watches_and_leases_outlive_a_restart_of_the_cluster(tmp_path: Path) -> None:
    dead = free_ports(1)[0]
    with ExitStack() as stack:
        server = stack.enter_context(running(etcd(tmp_path / "etcd")))
        endpoints = f"--endpoints=127.0.0.1:{dead},{server.endpoint}"
        front = stack.enter_context(proxy(tmp_path, *START, endpoints, ready=READY))
        client = stack.enter_context(Client(front.endpoint))
        for number in range(4):  # the dead endpoint costs nobody anything
            client.put(b"k", b"%d" % number)
        stream = watch(client, key=b"k")
        assert stream.receive().created
        lease_id = client.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=60)).ID
        keeper = client.stream(rpc.LEASE_KEEP_ALIVE)
        server.kill()
        keeper.send(pb.LeaseKeepAliveRequest(ID=lease_id))
        server.start()
        assert keeper.receive().TTL == 60
        etcdctl(server, "put", "k", "after")
        assert events(stream, 1) == [(0, b"k", b"after", b"")]
        assert client.range(b"k", b"").kvs[0].value == b"after"
        for each in (stream, keeper):
            each.cancel()


def token_of(client: Client, name: str) -> tuple[tuple[str, str], ...]:
    answer = client.call(rpc.AUTHENTICATE, pb.AuthenticateRequest(name=name, password="p"))
    return (("token", answer.token),)


def test_users_see_what_is_theirs(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(running(etcd(tmp_path / "etcd")))
        for user in ("root", "ann", "bob"):
            etcdctl(server, "user", "add", f"{user}:p")
        etcdctl(server, "user", "grant-role", "root", "root")
        etcdctl(server, "role", "add", "reader")
        etcdctl(server, "role", "grant-permission", "reader", "readwrite", "a", "b")
        etcdctl(server, "user", "grant-role", "ann", "reader")
        etcdctl(server, "auth", "enable")
        metrics = f"--metrics-addr=http://127.0.0.1:{free_ports(1)[0]}"
        front = stack.enter_context(
            proxy(tmp_path, *START, f"--endpoints={server.endpoint}", metrics, ready=READY)
        )
        client = stack.enter_context(Client(front.endpoint))
        ann, bob = token_of(client, "ann"), token_of(client, "bob")
        read = pb.RangeRequest(key=b"a", serializable=True).SerializeToString()
        ask = raw_grpc.unary(client.channel, "/etcdserverpb.KV/Range")
        put = raw_grpc.unary(client.channel, "/etcdserverpb.KV/Put")
        put(pb.PutRequest(key=b"a", value=b"hers").SerializeToString(), metadata=ann)
        for _ in range(2):  # the second time from what is kept
            found = pb.RangeResponse.FromString(ask(read, metadata=ann))
            assert found.kvs[0].value == b"hers"
            with pytest.raises(grpc.RpcError) as caught:
                ask(read, metadata=bob)
            assert caught.value.details() == "etcdserver: permission denied"
        create = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"a"))
        hers, his = (client.stream(rpc.WATCH, create, metadata=each) for each in (ann, bob))
        assert hers.receive().created
        refused = his.receive()
        assert (refused.canceled, refused.cancel_reason) == (True, "etcdserver: permission denied")
        put(pb.PutRequest(key=b"a", value=b"new").SerializeToString(), metadata=ann)
        assert events(hers, 1) == [(0, b"a", b"new", b"")]
        for stream in (hers, his):
            stream.cancel()
        assert page(front.metrics_url, "/health")[0] == 503


def test_proxies_of_one_prefix_know_each_other(tmp_path: Path, cluster: Server) -> None:
    def listed(front: Proxy) -> list[str]:
        members = json.loads(etcdctl(front, "member", "list", "-w", "json").stdout)["members"]  # type: ignore[arg-type]
        return sorted(url for each in members for url in each["clientURLs"])

    with ExitStack() as stack:
        ports = sorted(free_ports(2))
        fronts = [
            stack.enter_context(
                proxy(
                    tmp_path,
                    *START,
                    f"--endpoints={cluster.endpoint}",
                    "--resolver-prefix=___p",
                    f"--advertise-client-url=127.0.0.1:{port}",
                    "--resolver-ttl=60",
                    ready="registered session with lease",
                    port=port,
                )
            )
            for port in ports
        ]
        both = sorted(each.endpoint for each in fronts)
        for front in fronts:
            wait_for(lambda front=front: listed(front) == both)  # type: ignore[misc]
        value = etcdctl(cluster, "get", f"___p/{both[0]}", "--print-value-only").stdout
        name = json.dumps({"name": os.uname().nodename}, separators=(",", ":"))
        assert json.loads(value) == {"Op": 0, "Addr": both[0], "Metadata": name}
        fronts[0].process.terminate()
        assert fronts[0].process.wait(10) == 0
        wait_for(lambda: listed(fronts[1]) == [fronts[1].endpoint])


def test_tls_on_both_sides(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    tls = (f"--cert-file={cert}", f"--key-file={key}", f"--trusted-ca-file={authority.file}")
    server = etcd(tmp_path / "etcd", extra=[*tls, "--client-cert-auth"])
    url = f"https://127.0.0.1:{server.client_port}"
    server.extra += [f"--listen-client-urls={url}", f"--advertise-client-urls={url}"]
    nameless = Authority(tmp_path, "other")  # its certificates have a name as well
    named = nameless.issue("named")
    assert refusal(*START, f"--cert={named[0]}", f"--key={named[1]}") == (
        1,
        f"cert has non empty Common Name (named): {named[0]}",
    )
    own = anonymous(authority, tmp_path)
    with ExitStack() as stack:
        server.start(wait=False)
        stack.callback(server.kill)
        port, metrics_port = free_ports(2)
        front = stack.enter_context(
            proxy(
                tmp_path,
                *START,
                f"--endpoints={url}",
                f"--cert={own[0]}",
                f"--key={own[1]}",
                f"--cacert={authority.file}",
                *tls,
                f"--metrics-addr=https://127.0.0.1:{metrics_port}",
                ready=READY,
                port=port,
            )
        )
        ctl = [
            str(ETCDCTL), f"--endpoints=https://127.0.0.1:{port}", f"--cacert={authority.file}",
            f"--cert={cert}", f"--key={key}",
        ]  # fmt: skip
        wait_for(
            lambda: (
                not subprocess.run(
                    [*ctl, "put", "a", "b"], capture_output=True, check=False
                ).returncode
            )
        )
        got = subprocess.run([*ctl, "get", "a"], capture_output=True, text=True, check=True)
        assert got.stdout == "a\nb\n"
        context = ssl.create_default_context(cafile=authority.file)
        context.load_cert_chain(cert, key)
        assert page(front.metrics_url, "/health", context) == HEALTHY
        assert page(front.metrics_url, "/metrics", context)[0] == 200
        auto = stack.enter_context(
            proxy(
                tmp_path,
                *START,
                f"--endpoints={url}",
                f"--cert={own[0]}",
                f"--key={own[1]}",
                "--insecure-skip-tls-verify",
                "--auto-tls",
                f"--data-dir={tmp_path}/auto",
                ready=READY,
            )
        )
        made = [
            str(ETCDCTL), f"--endpoints=https://{auto.endpoint}", "--insecure-skip-tls-verify",
            "--insecure-transport=false", "get", "a",
        ]  # fmt: skip
        got = subprocess.run(made, capture_output=True, text=True, check=True)
        assert got.stdout == "a\nb\n"
        assert (tmp_path / "auto" / "fixtures" / "proxy" / "cert.pem").exists()
        assert front.process.poll() is None


@NEEDS_NATIVE
def test_pages_beside_grpc_by_tls(tmp_path: Path, cluster: Server) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    tls = (f"--cert-file={cert}", f"--key-file={key}", f"--trusted-ca-file={authority.file}")
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(cert, key)
    endpoints = f"--endpoints={cluster.client_url}"
    with proxy(tmp_path, *START, endpoints, *tls, ready=READY) as front:
        address = f"https://{front.endpoint}"
        assert page(address, "/health", context) == HEALTHY
        assert page(address, "/metrics", context)[0] == 200


def anonymous(authority: Authority, directory: Path) -> tuple[str, str]:
    """Return a certificate without a common name, and its key."""
    cert, key = directory / "anonymous.pem", directory / "anonymous.key"
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/O=x"]
    request = directory / "anonymous.csr"
    for arguments in (
        ["req", *new, "-keyout", str(key), "-out", str(request)],
        ["x509", "-req", "-in", str(request), "-CA", authority.file, "-CAkey",
         str(directory / "ca.key"), "-set_serial", "99", "-days", "2", "-out", str(cert)],
    ):  # fmt: skip
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
    return str(cert), str(key)


def test_over_grpcio_before_our_own_server(tmp_path: Path) -> None:
    metrics = free_ports(1)[0]
    with ExitStack() as stack:
        server = stack.enter_context(running(ours(tmp_path / "ours")))
        front = stack.enter_context(
            proxy(
                tmp_path,
                *START,
                f"--endpoints={server.client_url}",
                "--transport=grpcio",
                "--advertise-client-url=",
                "--experimental-serializable-ordering",
                f"--metrics-addr=http://127.0.0.1:{metrics}",
                "--endpoints-auto-sync-interval=200ms",
                "--debug",
                "--experimental-enable-grpc-logging",
                ready=READY,
            )
        )
        client = stack.enter_context(Client(front.endpoint))
        stream = watch(client, key=b"a")
        assert stream.receive().created
        client.put(b"a", b"1")
        assert events(stream, 1) == [(0, b"a", b"1", b"")]
        stream.cancel()
        (member,) = client.call(rpc.MEMBER_LIST, pb.MemberListRequest()).members
        assert list(member.clientURLs) == [server.client_url]
        snapshot = b"".join(
            pb.SnapshotResponse.FromString(each).blob
            for each in client.server_stream(rpc.SNAPSHOT, b"")
        )
        assert hashlib.sha256(snapshot[:-32]).digest() == snapshot[-32:]
        address = f"http://127.0.0.1:{metrics}"
        assert page(address, "/health")[0] == 200
        reason = '{"health":"false","reason":"no connection to proxy"}\n'
        assert page(address, "/proxy/health") == (503, reason)
        assert front.wait_for("set etcd endpoints by autoSync")["endpoints"] == [server.client_url]
        logged = front.wait_for("received payload logged as grpc.request.content field")
        assert logged["grpc.service"] == "etcdserverpb.KV"
        assert json.loads(logged["grpc.request.content"])["key"]
        assert not [each for each in front.records() if each["level"] == "error"]
