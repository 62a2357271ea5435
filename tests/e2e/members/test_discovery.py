"""Members that find each other: in a registry, which is a real etcd, and by SRV records."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.config.model import DiscoveryConfig
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.server.discovery.discovery import (
    BAD_SIZE,
    FULL_CLUSTER,
    INVALID_URL,
    SIZE_NOT_FOUND,
    Discovery,
    DiscoveryError,
    RegistryError,
)
from kvstore.server.discovery.registry import open_registry
from tests.support.network.dns_server import dns_server
from tests.support.servers import Server, etcd, etcdctl, free_ports, ours, running

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("discovery")]

SILENT = LineLogger([], "info")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(etcd(tmp_path_factory.mktemp("registry") / "etcd")) as server:
        yield server


def settings(registry: Server, token: str, *flags: str) -> DiscoveryConfig:
    return configure(
        read_command_line(
            [f"--discovery-endpoints={registry.endpoint}", f"--discovery-token={token}", *flags]
        ),
        {},
    ).discovery


def join(registry: Server, token: str, member_id: int, contents: str, *flags: str) -> str:
    with open_registry(settings(registry, token, *flags)) as opened:
        return Discovery(opened, token, SILENT).join(member_id, contents)


def key(token: str, rest: str) -> str:
    return f"/_etcd/registry/{token}/{rest}"


def test_who_is_first_is_in_and_who_is_late_is_not(registry: Server) -> None:
    etcdctl(registry, "put", key("two", "_config/size"), "2")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(join, registry, "two", 0xA, "a=http://h:1,a=http://h:2")
        etcdctl(registry, "get", "nothing")
        second = pool.submit(join, registry, "two", 0xB, "b=http://h:3")
        found = {first.result(20), second.result(20)}
    assert len(found) == 1
    assert sorted(found.pop().split(",")) == ["a=http://h:1", "a=http://h:2", "b=http://h:3"]
    assert etcdctl(registry, "get", key("two", "members/b")).stdout.split("\n")[1] == "b=http://h:3"
    with pytest.raises(DiscoveryError, match=FULL_CLUSTER):
        join(registry, "two", 0xC, "c=http://h:4")
    assert etcdctl(registry, "get", key("two", "members/c")).stdout == ""
    # Who was in comes back to the same answer.
    assert sorted(join(registry, "two", 0xB, "b=http://h:3").split(","))[2] == "b=http://h:3"


@pytest.mark.parametrize("size", ["", "0", "-1", "three", "99999999999999999999"])
def test_a_size_that_is_none(registry: Server, size: str) -> None:
    token = f"size{size}"
    if size:
        etcdctl(registry, "put", "--", key(token, "_config/size"), size)
    with pytest.raises(DiscoveryError, match=BAD_SIZE if size else SIZE_NOT_FOUND):
        join(registry, token, 1, "a=http://h:1")


def test_what_others_registered_may_be_nonsense(registry: Server) -> None:
    etcdctl(registry, "put", key("odd", "_config/size"), "2")
    etcdctl(registry, "put", key("odd", "members/1"), "no address")  # passed over
    etcdctl(registry, "put", key("odd", "members/2"), "b=not-a-url")
    with pytest.raises(DiscoveryError, match=INVALID_URL):
        join(registry, "odd", 3, "c=http://h:1")


def test_a_registry_that_does_not_answer_is_asked_again(registry: Server) -> None:
    etcdctl(registry, "put", key("late", "_config/size"), "1")
    config = settings(registry, "late", "--discovery-dial-timeout=200ms")
    config = replace(config, endpoints=(f"127.0.0.1:{free_ports(1)[0]}",))
    pauses: list[float] = []

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 3:
            raise InterruptedError

    with open_registry(config) as opened, pytest.raises(InterruptedError):
        Discovery(opened, "late", SILENT, sleep).join(1, "a=http://h:1")
    assert pauses == [2, 4, 8]
    config = replace(config, endpoints=(*config.endpoints, registry.endpoint))
    with open_registry(config) as opened:
        assert Discovery(opened, "late", SILENT).join(1, "a=http://h:1") == "a=http://h:1"


def test_a_registry_with_users(tmp_path: Path) -> None:
    with running(etcd(tmp_path / "etcd")) as server:
        etcdctl(server, "put", key("t", "_config/size"), "1")
        etcdctl(server, "user", "add", "root:secret")
        etcdctl(server, "user", "grant-role", "root", "root")
        etcdctl(server, "auth", "enable")
        user = "--discovery-user=root:secret"
        assert join(server, "t", 1, "a=http://h:1", user) == "a=http://h:1"
        with pytest.raises(DiscoveryError, match="authentication failed, invalid user ID"):
            join(server, "t", 1, "a=http://h:1", "--discovery-user=root:wrong")
        with open_registry(settings(server, "t")) as opened, pytest.raises(RegistryError):
            opened.get("x")


def three(directory: Path, extra: dict[str, list[str]]) -> list[Server]:
    """Return members that are told how to find each other, not started."""
    members = []
    for name, flags in extra.items():
        member = ours(directory / name, name=name, extra=flags)
        arguments = [a for a in member.arguments() if not a.startswith("--initial-cluster=")]
        member.arguments = lambda arguments=arguments: arguments  # type: ignore[misc]
        members.append(member)
    return members


def assert_one_cluster(members: list[Server], stack: ExitStack) -> None:
    for member in members:
        member.start(wait=False)
        stack.callback(member.kill)
    for member in members:
        member.wait_ready()
    etcdctl(members[0], "put", "found", "each other")
    assert etcdctl(members[2], "get", "found").stdout == "found\neach other\n"
    listed = etcdctl(members[1], "member", "list").stdout
    assert sorted(line.split(", ")[2] for line in listed.splitlines()) == ["m0", "m1", "m2"]


def test_three_members_meet_in_a_registry(registry: Server, tmp_path: Path) -> None:
    etcdctl(registry, "put", key("three", "_config/size"), "3")
    flags = [f"--discovery-endpoints=http://{registry.endpoint}", "--discovery-token=three"]
    members = three(tmp_path, {f"m{each}": flags for each in range(3)})
    with ExitStack() as stack:
        assert_one_cluster(members, stack)
        members[0].restart()
        messages = [record["msg"] for record in members[0].log_records()]
        assert any(str(each).startswith("discovery token is ignored") for each in messages)
    late = three(tmp_path, {"m3": flags})[0].start(wait=False)
    assert late.process is not None
    assert late.process.wait(20) == 1
    assert "failed to join discovery cluster (discovery: cluster is full)" in late.log()


def test_three_members_that_dns_names(tmp_path: Path) -> None:
    ports = free_ports(3)
    records = {"_etcd-server._tcp.example.org": [f"0 0 {port} localhost." for port in ports]}
    with ExitStack() as stack:
        dns = stack.enter_context(dns_server(records))
        flags = {
            f"m{at}": [
                "--discovery-srv=example.org",
                f"--discovery-dns-server={dns}",
                f"--initial-advertise-peer-urls=http://localhost:{port}",
                f"--listen-peer-urls=http://127.0.0.1:{port}",
            ]
            for at, port in enumerate(ports)
        }
        assert_one_cluster(three(tmp_path, flags), stack)
