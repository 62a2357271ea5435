"""kvstore-util beside etcdutl, and its results in the hands of the servers they are made for."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.models.store_view import FIRST_LEASE, Store, fill, member, view
from tests.support.servers import (
    Server,
    etcd,
    etcdctl,
    etcdutl,
    free_ports,
    ours,
    running,
)
from tests.support.util_command import Tool

pytestmark = pytest.mark.e2e

FAST = "--unsafe-no-fsync"
HEALTHY_TRIES = 100


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


def _populate(server: Server) -> None:
    """A history, leases, users and roles, and an alarm: some of everything a state holds."""
    with Store(server) as store:
        fill(store, 11)
        store.call(rpc.ALARM, action=pb.AlarmRequest.ACTIVATE, memberID=7, alarm=pb.NOSPACE)


def _add_users(server: Server) -> None:
    etcdctl(server, "role", "add", "reader")
    etcdctl(server, "role", "grant-permission", "reader", "read", "k/", "k0")
    etcdctl(server, "user", "add", "ann:secret")
    etcdctl(server, "user", "grant-role", "ann", "reader")


def _flags(*servers: Server) -> tuple[str, ...]:
    first = servers[0]
    return (
        f"--name={first.name}",
        f"--initial-advertise-peer-urls={first.peer_url}",
        "--initial-cluster=" + ",".join(f"{each.name}={each.peer_url}" for each in servers),
        "--initial-cluster-token=restored",
    )


def _rows(tool: Tool, path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in tool.done("dump", "state", path).splitlines()]


def _without_versions(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    moving = {"clusterVersion", "storageVersion", "consistent_index", "term", "confState"}
    return [row for row in rows if row.get("key") not in moving]


def test_snapshot_of_an_etcd_read_restored_and_served(tool: Tool, tmp_path: Path) -> None:
    """Status, ids and rows are etcdutl's; etcd and we start on the result and see the same."""
    file = tmp_path / "s.db"
    with running(etcd(tmp_path / "source", extra=[FAST])) as source:
        _populate(source)
        _add_users(source)
        etcdctl(source, "snapshot", "save", str(file))
        with Store(source) as store:
            before = view(store)
    theirs = json.loads(etcdutl("snapshot", "status", str(file), "-w", "json").stdout)
    found = json.loads(tool.done("snapshot", "status", file, "-w", "json"))
    for name in ("hash", "revision", "totalSize"):
        assert found[name] == theirs[name]
    by_tool, by_us, by_etcdutl = (
        etcd(tmp_path / "tool", extra=[FAST]),
        ours(tmp_path / "ours", extra=[FAST]),
        etcd(tmp_path / "etcdutl", extra=[FAST]),
    )
    ports = by_tool.client_port, by_tool.peer_port
    for server in (by_us, by_etcdutl):
        server.client_port, server.peer_port = ports
    command = ("snapshot", "restore", str(file))
    tool.done(*command, *_flags(by_tool), "--data-dir", by_tool.data_dir, "--to=etcd")
    tool.done(*command, *_flags(by_us), "--data-dir", by_us.data_dir)
    etcdutl(*command, *_flags(by_etcdutl), "--data-dir", str(by_etcdutl.data_dir))
    dbs = [tool.done("snapshot", "status", each.data_dir) for each in (by_tool, by_etcdutl)]
    assert dbs[0].split(",")[:3] == dbs[1].split(",")[:3]
    logs = [
        [json.loads(line) for line in tool.done("dump", "wal", each.data_dir).splitlines()]
        for each in (by_tool, by_us, by_etcdutl)
    ]
    ids = [next(line for line in log if line["record"] == "metadata") for log in logs]
    assert ids[0] == ids[1] == ids[2]
    added = [[line["change"] for line in log if line["record"] == "entry"] for log in logs]
    assert added[0] == added[1] == added[2]
    for server in (by_tool, by_us):
        with running(server), Store(server) as store:
            assert view(store) == before
            server.stop()
        tool.done("verify", server.data_dir)


@pytest.mark.parametrize(("make", "kind"), [(etcd, "etcd"), (ours, "kvstore")])
def test_three_members_boot_from_one_snapshot(
    tool: Tool, tmp_path: Path, make: Callable[..., Server], kind: str
) -> None:
    file = tmp_path / "s.db"
    with running(etcd(tmp_path / "source", extra=[FAST])) as source:
        etcdctl(source, "put", "here", "before")
        etcdctl(source, "snapshot", "save", str(file))
    members = [make(tmp_path / name, name=name, extra=[FAST]) for name in ("a", "b", "c")]
    cluster = ",".join(f"{each.name}={each.peer_url}" for each in members)
    try:
        for each in members:
            others = [other for other in members if other is not each]
            flags = _flags(each, *others)
            tool.done(
                "snapshot", "restore", file, *flags, "--data-dir", each.data_dir, "--to", kind
            )
            each.extra.append(f"--initial-cluster={cluster}")
            each.start(wait=False)
        for each in members:
            each.wait_ready()
            assert etcdctl(each, "get", "here", "--print-value-only").stdout == "before\n"
        listed = json.loads(etcdctl(members[0], "member", "list", "-w", "json").stdout)
        assert sorted(each["name"] for each in listed["members"]) == ["a", "b", "c"]
        etcdctl(members[1], "put", "here", "after")
        assert etcdctl(members[2], "get", "here", "--print-value-only").stdout == "after\n"
    finally:
        for each in members:
            if each.process is not None:
                each.kill()


def test_a_member_moves_to_us_and_back_to_etcd(tool: Tool, tmp_path: Path) -> None:
    """With users and an alarm made on etcd, writes of ours in between, and an older version."""
    ports = tuple(free_ports(2))
    assert len(ports) == 2
    first = etcd(tmp_path / "first", extra=[FAST], ports=ports)
    with running(first):
        _populate(first)
        _add_users(first)
        with Store(first) as store:
            before, who = view(store), member(store)
        first.stop()
    at_ours = ours(tmp_path / "ours", extra=[FAST], ports=ports)
    migrate = ("migrate", "--data-dir")
    tool.done(*migrate, first.data_dir, "--to=kvstore", "--out", at_ours.data_dir)
    assert _rows(tool, at_ours.data_dir) == _rows(tool, first.data_dir)
    with running(at_ours), Store(at_ours) as store:
        assert view(store) == before
        assert member(store) == who
        store.call(rpc.ALARM, action=pb.AlarmRequest.DEACTIVATE, memberID=7, alarm=pb.NOSPACE)
        store.put(b"written", b"by us", FIRST_LEASE + 1)
        store.call(rpc.ALARM, action=pb.AlarmRequest.ACTIVATE, memberID=8, alarm=pb.NOSPACE)
        middle = view(store)
        at_ours.stop()
    kept = _without_versions(_rows(tool, at_ours.data_dir))
    back = etcd(tmp_path / "back", extra=[FAST], ports=ports)
    flags = ("--to=etcd", "--target-version=3.5", "--out", back.data_dir)
    tool.done(*migrate, at_ours.data_dir, *flags)
    assert _without_versions(_rows(tool, back.data_dir)) == kept
    with running(back), Store(back) as store:
        assert view(store) == middle
        assert member(store) == who
        assert "k/" in etcdctl(back, "user", "get", "ann", "--detail").stdout
        back.restart()
        assert view(store) == middle
    tool.done("verify", back.data_dir)


def test_a_directory_that_a_server_holds_is_left_to_it(tool: Tool, tmp_path: Path) -> None:
    for make in (etcd, ours):
        with running(make(tmp_path / make.__name__, extra=[FAST])) as server:
            etcdctl(server, "put", "k", "v")
            for command in (
                ("snapshot", "status", server.data_dir),
                ("hashkv", server.data_dir),
                ("verify", server.data_dir),
                ("dump", "wal", server.data_dir),
                ("defrag", "--data-dir", server.data_dir),
                ("migrate", "--data-dir", server.data_dir, "--to=etcd", "--out", tmp_path / "x"),
            ):
                said = tool.failed("--timeout=1ms", *command)
                assert "in use by another process" in said
            assert etcdctl(server, "get", "k", "--print-value-only").stdout == "v\n"
            server.stop()
        assert "1 segments" in tool.done("verify", server.data_dir)
    assert not (tmp_path / "x").exists()
