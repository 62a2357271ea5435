"""The `kvstore` command as operators run it: flags in, a server, log lines, an exit code."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from typing_extensions import override

from kvstore.wire import rpc
from kvstore.wire.gen import health_pb2
from tests.support import raw_grpc
from tests.support.models.store_view import Store
from tests.support.servers import Server, etcdctl, free_ports, ours, running

pytestmark = pytest.mark.e2e

KVSTORE = Path(sys.executable).with_name("kvstore")
HEALTH = "/grpc.health.v1.Health/"
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
FAST = "--unsafe-no-fsync"


class Bare(Server):
    """Our server with exactly the arguments and variables given, nothing added."""

    @override
    def arguments(self) -> list[str]:
        filled = [
            word.replace("{client}", self.client_url)
            .replace("{peer}", self.peer_url)
            .replace("{data}", str(self.data_dir))
            for word in self.extra
        ]
        return [*self.command, *filled]


def bare(
    data_dir: Path, *arguments: str, env: dict[str, str] | None = None, command: Path = KVSTORE
) -> Bare:
    return Bare([str(command)], data_dir, extra=arguments, env=env)


def run(*arguments: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(KVSTORE), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PATH": os.environ["PATH"], **(env or {})},
    )


def messages(server: Server) -> list[str]:
    return [str(record["msg"]) for record in server.log_records()]


FORMS = {
    "equals": ["--name=n1", "--data-dir={data}", "--listen-client-urls={client}"],
    "separate": ["--name", "n1", "--data-dir", "{data}", "--listen-client-urls", "{client}"],
    "one dash": ["-name", "n1", "-data-dir={data}", "-listen-client-urls", "{client}"],
}


@pytest.mark.parametrize("form", FORMS)
def test_flags_in_every_form(form: str, tmp_path: Path) -> None:
    advertise = [
        "--advertise-client-urls={client}",
        "--listen-peer-urls={peer}",
        "--unsafe-no-fsync",
        "--pre-vote=false",
    ]
    with running(bare(tmp_path / "data", *FORMS[form], *advertise)) as server:
        with Store(server) as store:
            (member,) = store.call(rpc.MEMBER_LIST).members
            assert (member.name, list(member.clientURLs)) == ("n1", [server.client_url])
        assert (tmp_path / "data" / "member" / "wal").is_dir()
        assert server.stop() == 0


def test_variables(tmp_path: Path) -> None:
    server = bare(tmp_path / "data")
    server.env = {
        "ETCD_NAME": "n2",
        "ETCD_DATA_DIR": str(server.data_dir),
        "ETCD_LISTEN_CLIENT_URLS": server.client_url,
        "ETCD_ADVERTISE_CLIENT_URLS": server.client_url,
        "ETCD_LISTEN_PEER_URLS": server.peer_url,
        "ETCD_UNSAFE_NO_FSYNC": "true",
        "ETCD_VERIFY": "all",
        "ETCD_NO_SUCH_THING": "1",
    }
    with running(server), Store(server) as store:
        assert store.call(rpc.MEMBER_LIST).members[0].name == "n2"
        assert any("ETCD_NO_SUCH_THING" in message for message in messages(server))
    clash = run("--name=n3", env={"ETCD_NAME": "n2"})
    assert clash.returncode == 1
    assert "ETCD_NAME" in json.loads(clash.stderr.splitlines()[-1])["error"]


def test_a_config_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yml"
    server = bare(tmp_path / "data", f"--config-file={file}", "--name=ignored")
    file.write_text(
        f"name: n4\ndata-dir: {server.data_dir}\nlisten-client-urls: {server.client_url}\n"
        f"advertise-client-urls: {server.client_url}\nunsafe-no-fsync: true\n"
        f"listen-peer-urls: {server.peer_url}\n"
    )
    with running(server), Store(server) as store:
        assert store.call(rpc.MEMBER_LIST).members[0].name == "n4"


def test_version_and_what_it_cannot_make_sense_of() -> None:
    version = run("--version")
    assert (version.returncode, version.stdout.splitlines()[0]) == (0, "etcd Version: 3.7.1")
    unknown = run("--no-such-flag=1")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("flag provided but not defined: -no-such-flag\n")
    unreadable = run("--snapshot-count=many")
    assert unreadable.returncode == 2
    assert 'invalid value "many" for flag -snapshot-count' in unreadable.stderr
    absurd = run("--heartbeat-interval=0")
    assert absurd.returncode in (1, 2)
    assert "heartbeat-interval" in absurd.stderr


def test_log_lines(tmp_path: Path) -> None:
    extra = ["--logger=zap", "--backend-bbolt-freelist-type=array"]
    with running(ours(tmp_path / "data", name="n5", extra=extra)) as server:
        etcdctl(server, "put", "a", "1")
        etcdctl(server, "compaction", "2", "--physical")
        etcdctl(server, "defrag")
        etcdctl(server, "snapshot", "save", str(tmp_path / "snapshot"))
        assert server.stop() == 0
        records = server.log_records()
    for record in records:
        assert list(record)[:4] == ["level", "ts", "caller", "msg"]
        assert TIMESTAMP.fullmatch(str(record["ts"]))
        assert re.fullmatch(r"[\w./]+\.py:\d+", str(record["caller"]))
        assert record["level"] in ("info", "warn"), record
    told = [record["msg"] for record in records]
    for message in (
        "ready to serve client requests",
        "serving client traffic",
        "finished scheduled compaction",
        "finished defragment",
        "closed the server",
    ):
        assert message in told
    (unused,) = [each for each in records if each["msg"] == "these settings have no effect here"]
    assert "backend-bbolt-freelist-type" in str(unused["settings"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    """In mid-stream as well; what was acknowledged is there at the next start."""
    with running(ours(tmp_path / "data")) as server:
        with Store(server) as store:
            watch = raw_grpc.stream(store.channel, "/etcdserverpb.Watch/Watch")(iter([]))
            store.put(b"a", b"1")
            assert server.process is not None
            server.process.send_signal(number)
            assert server.process.wait(5) == 0
            watch.cancel()
        server.process = None
        server.start()
        with Store(server) as store:
            assert store.call(rpc.RANGE, key=b"a").kvs[0].value == b"1"


def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    with running(ours(tmp_path / "first", extra=[FAST])) as first:
        ports = (first.client_port, free_ports(1)[0])
        second = ours(tmp_path / "second", ports=ports).start(wait=False)
        assert second.process is not None
        assert second.process.wait(20) == 1
        last = second.log_records()[-1]
        assert last["level"] == "fatal"
        assert str(first.client_port) in str(last["error"])
        etcdctl(first, "put", "a", "1")


def test_one_data_directory_has_one_server(tmp_path: Path) -> None:
    with running(ours(tmp_path / "data", extra=[FAST])) as first:
        second = ours(tmp_path / "data")
        second.log_path = tmp_path / "second.log"
        second.start(wait=False)
        assert second.process is not None
        assert second.process.wait(20) == 1
        last = second.log_records()[-1]
        assert last["level"] == "fatal"
        assert str(first.data_dir) in str(last["error"])
        etcdctl(first, "put", "a", "1")


def test_several_addresses_one_of_them_a_socket_file(tmp_path: Path) -> None:
    socket = f"unix://{tmp_path}/client.sock"
    other = free_ports(1)[0]
    urls = f"--listen-client-urls={{client}},http://127.0.0.1:{other},{socket}"
    server = bare(
        tmp_path / "data",
        "--data-dir={data}",
        urls,
        "--advertise-client-urls={client}",
        "--listen-peer-urls={peer}",
        FAST,
    )
    with running(server):
        served = [
            r["address"] for r in server.log_records() if r["msg"] == "serving client traffic"
        ]
        assert sorted(str(url) for url in served) == sorted(
            [server.client_url, f"http://127.0.0.1:{other}", socket]
        )
        etcdctl(server, "put", "a", "1")
        for endpoint in (f"127.0.0.1:{other}", socket):
            assert etcdctl(server, f"--endpoints={endpoint}", "get", "a").stdout == "a\n1\n"
        with grpc.insecure_channel(socket) as channel:
            put = raw_grpc.unary(channel, rpc.METHODS[rpc.PUT].path)
            request = rpc.METHODS[rpc.PUT].request(key=b"a", value=b"2")
            put(request.SerializeToString(), timeout=5)
        assert etcdctl(server, "get", "a").stdout == "a\n2\n"
    with running(server):  # the socket file of the killed server is no obstacle
        assert etcdctl(server, f"--endpoints={socket}", "get", "a").stdout == "a\n2\n"


def test_a_log_directory_of_its_own(tmp_path: Path) -> None:
    extra = [f"--wal-dir={tmp_path}/elsewhere", FAST]
    with running(ours(tmp_path / "data", extra=extra)) as server:
        with Store(server) as store:
            revision = store.put(b"a", b"1")
        assert list((tmp_path / "elsewhere").glob("*.wal"))
        assert not (tmp_path / "data" / "member" / "wal").exists()
        server.kill()
        server.start()
        with Store(server) as store:
            assert store.revision == revision


def test_the_log_is_trimmed(tmp_path: Path) -> None:
    """There are snapshots, few of them; old segments go; what is left is enough to start from."""
    extra = ["--snapshot-count=20", "--snapshot-catchup-entries=10", "--max-wals=2", FAST]
    member = tmp_path / "data" / "member"
    with running(ours(tmp_path / "data", extra=extra)) as server:
        value = os.urandom(1 << 20)
        with Store(server) as store:
            for number in range(210):
                store.put(b"k%d" % (number % 3), value)
                if number % 64 == 63:
                    store.call(rpc.COMPACT, revision=store.revision, physical=True)
            revision = store.revision
        assert "saved snapshot" in messages(server)
        for end in (server.kill, server.stop):
            end()
            server.start()
            with Store(server) as store:
                assert store.revision == revision
                assert store.call(rpc.RANGE, key=b"k1").kvs[0].value == value
        snapshots = sorted(path.name for path in (member / "snap").glob("*.snap"))
        assert snapshots
        assert len(snapshots) <= 5
        assert all(re.fullmatch(r"[0-9a-f]{16}-[0-9a-f]{16}\.snap", name) for name in snapshots)
        segments = sorted(path.name for path in (member / "wal").glob("*.wal"))
        assert len(segments) <= 3
        assert not segments[0].startswith("0000000000000000-")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(ours(tmp_path_factory.mktemp("health") / "data", extra=[FAST])) as started:
        yield started


def test_health_is_reported(server: Server) -> None:
    with grpc.insecure_channel(server.endpoint) as channel:
        check = channel.unary_unary(
            HEALTH + "Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        answer = check(health_pb2.HealthCheckRequest(), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            check(health_pb2.HealthCheckRequest(service="none"), timeout=5)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_health_may_be_watched(server: Server) -> None:
    """A watch begins with what is now, and stays."""
    with grpc.insecure_channel(server.endpoint) as channel:
        watch = channel.unary_stream(
            HEALTH + "Watch",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        stream = watch(health_pb2.HealthCheckRequest())
        assert next(stream).status == health_pb2.HealthCheckResponse.SERVING
        etcdctl(server, "put", "a", "1")
        assert stream.is_active()
        stream.cancel()
