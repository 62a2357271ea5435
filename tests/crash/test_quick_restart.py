"""A member that is killed and started again at once is back within a second.

Members speak TLS to each other, through TCP proxies that accept connections while the member behind
them is down. The time a start waits for a processor that others use is taken off: it is not the
server's.
"""

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest
from typing_extensions import override

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.certificates import Authority
from tests.support.network.tcp_proxy import TcpProxy
from tests.support.processors import queued_s
from tests.support.rpc_client import Client
from tests.support.servers import Server, free_ports, ours
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("openssl") is None, reason="the openssl command is needed to make certificates"
    ),
    pytest.mark.skipif(
        not Path("/proc/self/schedstat").exists(), reason="waiting for a processor is not measured"
    ),
]

BACK_S: Final = 2.0  # 1.5 where the machine stands still for a third of the time
WAIT_S: Final = 60.0
KEYS: Final = 200
RESTARTS: Final = 3
DOWN_S: Final = 3.0
STREAM_DIALS_MAX: Final = 2 * 2 * 10  # a second: two streams from each of two members
OTHER_DIALS_MAX: Final = 2 * 10  # a second: a heartbeat from each of them, at most


class ProxiedMember(Server):
    """A member whose peers reach it through a proxy."""

    advertised_url = ""

    @override
    @property
    def peer_url(self) -> str:
        return self.advertised_url

    @override
    def arguments(self) -> list[str]:
        listening = f"--listen-peer-urls=https://127.0.0.1:{self.peer_port}"
        return [*super().arguments(), listening]


@contextmanager
def members(directory: Path, *flags: str) -> Iterator[list[tuple[Server, TcpProxy]]]:
    authority = Authority(directory)
    certificate, key = authority.issue("member")
    tls = [
        f"--peer-cert-file={certificate}",
        f"--peer-key-file={key}",
        f"--peer-trusted-ca-file={authority.file}",
        "--peer-client-cert-auth",
    ]
    ports = free_ports(6)
    with ExitStack() as stack:
        made: list[tuple[Server, TcpProxy]] = []
        for at in range(3):
            server = ours(
                directory / f"m{at}", name=f"m{at}", ports=(ports[2 * at], ports[2 * at + 1])
            )
            server.__class__ = ProxiedMember
            proxy = stack.enter_context(TcpProxy(server.peer_port))
            server.advertised_url = f"https://127.0.0.1:{proxy.port}"  # type: ignore[attr-defined]
            made.append((server, proxy))
        named = ",".join(f"{server.name}={server.peer_url}" for server, _ in made)
        for server, _ in made:
            server.extra += [*tls, f"--initial-cluster={named}", *flags]
            server.start(wait=False)
            stack.callback(_end, server)
        for server, _ in made:
            server.wait_ready()
        yield made


def _end(server: Server) -> None:
    if server.process is not None:
        server.kill()


def restart(server: Server) -> float:
    """Kill and start a server; return the seconds until it answers a linearizable read."""
    server.kill()
    begun_s = time.monotonic()
    server.start(wait=False)
    deadline_s = begun_s + WAIT_S
    while not _listens(server.client_port):
        assert time.monotonic() < deadline_s, server.log()
        time.sleep(0.005)
    with Client(server.endpoint) as client:
        while True:
            try:
                client.call(rpc.RANGE, pb.RangeRequest(key=b"k1"), 5.0)
            except grpc.RpcError:
                assert time.monotonic() < deadline_s, server.log()
                time.sleep(0.005)
            else:
                return time.monotonic() - begun_s - queued_s(server.pid)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def write(server: Server, count: int = KEYS) -> int:
    """Put some keys, where an election is going on again; return the revision."""
    revision, left = 0, count
    deadline_s = time.monotonic() + WAIT_S
    with Client(server.endpoint) as client:
        while left:
            put = pb.PutRequest(key=b"k%d" % (left % 50), value=b"v" * 300)
            try:
                revision = int(client.call(rpc.PUT, put, 5.0).header.revision)
            except grpc.RpcError:
                assert time.monotonic() < deadline_s, server.log()
            else:
                left -= 1
    return revision


def followers_of(servers: list[Server]) -> list[Server]:
    """Return the servers that do not lead, once there is a leader that all of them know."""

    def followers() -> list[Server]:
        found = []
        for server in servers:
            with Client(server.endpoint) as client:
                found.append(client.call(rpc.STATUS, pb.StatusRequest(), 5.0))
        leaders = {status.leader for status in found}
        if len(leaders) > 1 or leaders == {0}:
            return []
        pairs = zip(servers, found, strict=True)
        return [each for each, status in pairs if status.header.member_id not in leaders]

    return wait_for(followers, servers[0].log, WAIT_S)


@pytest.mark.parametrize("gate", ["false", "true"])
def test_a_member_killed_and_started_is_back_within_a_second(tmp_path: Path, gate: str) -> None:
    """A follower: after the death of a leader the others take an election timeout, as in etcd."""
    with members(tmp_path, f"--feature-gates=InitialCorruptCheck={gate}") as cluster:
        servers = [server for server, _ in cluster]
        write(servers[0])
        took_s: list[float] = []
        for at in range(RESTARTS):
            victim, other = followers_of(servers)[:: 1 if at % 2 else -1]
            took_s.append(restart(victim))
            victim.wait_ready()
            revision = write(other)
            with Client(other.endpoint) as client:
                request = pb.CompactionRequest(revision=revision, physical=True)
                client.call(rpc.COMPACT, request, 5.0)
        assert sorted(took_s)[RESTARTS // 2] < BACK_S, took_s


def test_a_member_that_is_down_is_dialled_no_oftener_than_etcd_dials(tmp_path: Path) -> None:
    with members(tmp_path) as cluster:
        victim, proxy = cluster[2]
        victim.kill()
        before, begun_s = proxy.accepted, time.monotonic()
        while time.monotonic() < begun_s + DOWN_S:
            write(cluster[0][0], 10)  # its messages to the dead member are what is counted
        dials = proxy.accepted - before
        down_s = time.monotonic() - begun_s
        assert dials <= (STREAM_DIALS_MAX + OTHER_DIALS_MAX) * (down_s + 1)
