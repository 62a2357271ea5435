"""A cluster restored from a snapshot by etcd's own tool, and one that is forced to one member."""

from pathlib import Path

import pytest

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.group import Group
from tests.support.servers import etcd, etcdctl, etcdutl, ours, running

pytestmark = pytest.mark.e2e

NAMES = ("a", "b", "c")
URLS = {name: [f"http://127.0.0.1:{port}"] for port, name in enumerate(NAMES, 23811)}
CLUSTER = ",".join(f"{name}={urls[0]}" for name, urls in URLS.items())


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("snapshot")
    file = directory / "s.db"
    with running(etcd(directory / "source", extra=["--unsafe-no-fsync"])) as source:
        for at in range(5):
            etcdctl(source, "put", f"k{at}", f"v{at}")
        etcdctl(source, "snapshot", "save", str(file))
    return file


def restore(snapshot: Path, name: str, data_dir: Path) -> None:
    etcdutl(
        *("snapshot", "restore", str(snapshot), "--data-dir", str(data_dir), "--name", name),
        *("--initial-cluster", CLUSTER, "--initial-cluster-token", "tok"),
        *("--initial-advertise-peer-urls", URLS[name][0]),
    )


def test_three_restored_members_are_one_cluster(snapshot: Path, tmp_path: Path) -> None:
    """Ids and first entries are etcdutl's, and those that founders of that name would have."""
    for name in NAMES:
        restore(snapshot, name, tmp_path / name)
    group = Group(tmp_path, NAMES, urls=URLS, in_memory=False)
    group.settle()
    founded = Group(tmp_path / "founded", NAMES, urls=URLS)
    founded.settle()
    for name, member in group.members.items():
        assert member.id == founded.members[name].id
        assert member.parts.cluster_id == founded.members[name].parts.cluster_id
        assert group.call(name, rpc.RANGE, pb.RangeRequest(key=b"k3")).kvs[0].value == b"v3"
    group.put("b", b"k3", b"new")
    group.settle()
    hashes = {
        group.call(name, rpc.HASH_KV, pb.HashKVRequest(revision=7)).hash for name in group.members
    }
    assert len(hashes) == 1
    group.close()
    founded.close()


def test_a_restored_member_of_three_is_forced_to_one(snapshot: Path, tmp_path: Path) -> None:
    server = ours(tmp_path / "a", name="a", extra=["--unsafe-no-fsync", "--force-new-cluster"])
    restore(snapshot, "a", server.data_dir)
    with running(server):
        listed = etcdctl(server, "member", "list").stdout.splitlines()
        assert len(listed) == 1
        assert URLS["a"][0] in listed[0]
        assert etcdctl(server, "get", "k3", "--print-value-only").stdout == "v3\n"
        etcdctl(server, "put", "k3", "new")
        server.stop()
        server.extra = ["--unsafe-no-fsync"]
        server.start()
        assert etcdctl(server, "get", "k3", "--print-value-only").stdout == "new\n"
        added = etcdctl(server, "member", "add", "x", "--peer-urls=http://127.0.0.1:23899").stdout
        assert "Member" in added
        assert 'ETCD_INITIAL_CLUSTER_STATE="existing"' in added


def test_flags_that_name_another_cluster_do_not_count_after_a_restore(
    snapshot: Path, tmp_path: Path
) -> None:
    server = ours(tmp_path / "a", name="a", extra=["--unsafe-no-fsync", "--force-new-cluster"])
    restore(snapshot, "a", server.data_dir)
    server.extra += ["--initial-cluster-token=other", "--initial-cluster-state=existing"]
    with running(server):
        assert etcdctl(server, "get", "k3", "--print-value-only").stdout == "v3\n"
