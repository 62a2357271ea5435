"""Every failpoint there is, hit in real servers; what some of them change."""

import http.client
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from kvstore import failpoints
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.rpc_client import Client
from tests.support.servers import Server, free_ports, ours, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

WAIT_S = 60.0
FLAGS = (
    "--heartbeat-interval=50",
    "--election-timeout=500",
    "--snapshot-count=10",
    "--snapshot-catchup-entries=5",
    "--unsafe-no-fsync",
)


def ask(server: Server, method: str, path: str, body: str = "") -> str:
    """Ask a server's failpoints; return the answer, empty for one that refuses."""
    connection = http.client.HTTPConnection(server.env["GOFAIL_HTTP"], timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read().decode()
        return text if answer.status < 300 else ""
    finally:
        connection.close()


def armed_server(data_dir: Path, *extra: str) -> Server:
    """Return a server in which every failpoint is armed from the start, to do nothing."""
    (port,) = free_ports(1)
    terms = ";".join(f"{name}=sleep(0)" for name in sorted(failpoints.NAMES))
    env = {"GOFAIL_HTTP": f"127.0.0.1:{port}", "GOFAIL_FAILPOINTS": terms}
    return ours(data_dir, name=data_dir.name, extra=[*FLAGS, *extra], env=env)


def _kill_if_running(server: Server) -> None:
    if server.process is not None:
        server.kill()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Server]]:
    servers = [armed_server(tmp_path / f"m{number}") for number in range(3)]
    cluster = ",".join(f"{each.name}={each.peer_url}" for each in servers)
    with ExitStack() as stack:
        for each in servers:
            each.extra.append(f"--initial-cluster={cluster}")
            each.start(wait=False)
            stack.callback(_kill_if_running, each)
        for each in servers:
            each.wait_ready()
        yield servers


def status(server: Server) -> Any:
    with Client(server.endpoint) as client:
        return client.call(rpc.STATUS, pb.StatusRequest())


def use(server: Server) -> None:
    """Make the calls that come past the places which need one."""
    with Client(server.endpoint) as client:
        client.put(b"a", b"1")
        lease = client.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=600)).ID
        client.call(rpc.LEASE_TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=lease))
        renewals = client.stream(rpc.LEASE_KEEP_ALIVE, pb.LeaseKeepAliveRequest(ID=lease))
        assert renewals.receive().TTL == 600
        create = pb.WatchCreateRequest(key=b"a", start_revision=2)
        watch = client.stream(rpc.WATCH, pb.WatchRequest(create_request=create))
        assert watch.receive().created
        assert watch.receive().events  # of the past
        client.put(b"a", b"2")
        assert watch.receive().events
        request = pb.RangeRequest(key=b"a").SerializeToString()
        assert list(client.server_stream(rpc.RANGE_STREAM, request))


def test_every_failpoint_is_passed(three: list[Server]) -> None:
    leader_id = status(three[0]).leader
    leader = next(each for each in three if status(each).header.member_id == leader_id)
    away, other = (each for each in three if each is not leader)
    use(leader)
    use(other)
    away.kill()
    with Client(leader.endpoint) as client:
        for number in range(60):
            client.put(b"a", b"%d" % number)
        client.call(rpc.COMPACT, pb.CompactionRequest(revision=30, physical=True))
        client.call(rpc.DEFRAGMENT, pb.DefragmentRequest())
    away.start()  # what it missed is in no log any more

    def missed() -> set[str]:
        counts = {
            name: [ask(each, "GET", f"/{name}/count") for each in three]
            for name in failpoints.NAMES
        }
        return {name for name, found in counts.items() if not any(map(int, filter(None, found)))}

    try:
        wait_for(lambda: not missed(), "every failpoint")
    except AssertionError:
        assert missed() == set()
        raise


def test_what_they_change(tmp_path: Path) -> None:
    with running(armed_server(tmp_path / "m")) as server, Client(server.endpoint) as client:
        for name in ("defragOpenFileError", "defragdbFail"):
            ask(server, "PUT", f"/{name}", f'return("planted: {name}")')
            with pytest.raises(grpc.RpcError, match=f"planted: {name}"):
                client.call(rpc.DEFRAGMENT, pb.DefragmentRequest())
            ask(server, "PUT", f"/{name}", "off")
        client.call(rpc.DEFRAGMENT, pb.DefragmentRequest())
        ask(server, "PUT", "/raftBeforeSave", '1*sleep("300ms")')
        began_s = time.monotonic()
        client.put(b"k", b"v")
        assert time.monotonic() - began_s >= 0.3
        ask(server, "PUT", "/raftAfterSave", "panic")
        with pytest.raises(grpc.RpcError):
            client.put(b"k", b"lost or not")
        assert server.process is not None
        assert server.process.wait(WAIT_S) == 2
