"""Snapshots and data directories: of a real cluster, of etcd, of ours; damaged, locked, unclean."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.client.built_in import SECRETS
from kvstack.agents.standalone.background import BackgroundCluster, Settings
from kvstack.clusters.contents import Contents, Origin
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.sources.source import ReadOptions, Silent, SourceError
from kvstack.clusters.sources.state_files import StateFileSource
from kvstack.clusters.sources.store_records import StoreRecords
from kvstore import embed
from kvstore.client import connect
from kvstore.client.values import KeyValue
from tests.clusters.support.snapshots import REVISION, real_objects, real_snapshot
from tests.clusters.support.sources import call
from tests.support.servers import etcd, etcdctl, ours, running


def read(path: Path, **options: Any) -> Contents:
    return asyncio.run(StateFileSource(path).read(ReadOptions(**options), Silent()))


def test_the_snapshot_of_a_real_cluster_reads_as_its_server_answered(tmp_path: Path) -> None:
    contents = read(real_snapshot(tmp_path))
    expected = real_objects()
    assert contents.revision == REVISION
    assert contents.origin.kind == "etcd database file"
    assert contents.left_out == []
    assert contents.time_s > 0
    kinds = Kinds.of(contents.rows)
    found = {kv.key.decode(): kinds.read(kv) for kv in contents.rows}
    assert found.keys() == expected.keys()
    assert len(found) > 250
    for key, obj in expected.items():
        assert json.loads(json.dumps(found[key])) == obj, key
    storage = {kv.value[:4] for kv in contents.rows}
    assert {b"k8s\0"} < storage  # protobuf, and JSON of custom resources and definitions


def test_its_history_comes_along_as_far_as_it_is_asked_for(tmp_path: Path) -> None:
    path = real_snapshot(tmp_path)
    whole = read(path)
    assert whole.history is not None
    assert whole.history.readable_from == 1
    assert read(path, since_s=0.0).history is None
    part = read(path, since_s=5.0)
    assert part.history is not None
    assert 1 < part.history.readable_from < REVISION
    assert len(part.history.records) < len(whole.history.records)
    assert read(path, has_events=False).rows != whole.rows
    shop = read(path, namespaces=("shop",))
    assert {kv.key for kv in shop.rows if kv.key.startswith(b"/registry/namespaces/")} == {
        b"/registry/namespaces/shop"
    }
    assert any(kv.key.startswith(b"/registry/minions/") for kv in shop.rows)
    with pytest.raises(SourceError, match=r"more than 20 objects \(at /registry/.*--max-objects"):
        read(path, objects_max=20)


def written(server_url: str) -> None:
    async def main() -> None:
        async with connect([server_url]) as store:
            for number in range(20):
                name = b"%d" % number
                obj = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%b","uid":"u"}}\n'
                await store.put(b"/registry/configmaps/x/" + name, obj % name)
            await store.delete(b"/registry/configmaps/x/3")
            await store.put(b"/registry/masterleases/10.0.0.1", b"leftover")
            await store.put(b"/other", b"not of Kubernetes")
            lease = await store.lease_grant(600)
            await store.put(b"/registry/events/x/e", b"{}", lease=lease.lease)

    asyncio.run(main())


KEYS = {f"/registry/configmaps/x/{each}" for each in range(20) if each != 3}


@pytest.mark.slow
@pytest.mark.parametrize("make", [etcd, ours])
def test_a_stopped_data_directory(tmp_path: Path, make: Any) -> None:
    server = make(tmp_path / "data")
    with running(server):
        written(server.client_url)
        if make is etcd:
            etcdctl(server, "snapshot", "save", str(tmp_path / "snapshot.db"))
        with pytest.raises(SourceError, match=r"in use by another process|is locked"):
            read(tmp_path / "data")
        server.stop()
    contents = read(tmp_path / "data")
    keys = {kv.key.decode() for kv in contents.rows}
    assert keys == KEYS | {"/registry/events/x/e"}
    assert contents.revision == 25
    assert contents.left_out == []
    [event] = [kv for kv in contents.rows if kv.lease]
    assert contents.leases == {event.lease: 600}
    assert contents.history is not None
    assert contents.history.readable_from == 1
    deleted = [kv for kv in contents.history.records if not kv.version]
    assert [(kv.key, kv.mod_revision) for kv in deleted] == [(b"/registry/configmaps/x/3", 22)]
    if make is etcd:
        assert read(tmp_path / "snapshot.db").rows == contents.rows


@pytest.mark.slow
def test_a_directory_whose_server_was_killed_names_what_its_log_has_besides(
    tmp_path: Path,
) -> None:
    server = ours(tmp_path / "data", extra=["--backend-batch-interval=1h"])
    with running(server):
        written(server.client_url)
        server.kill()
    [left] = read(tmp_path / "data").left_out
    assert left.what == "entries of the log"
    assert left.number > 20


def test_what_is_no_state_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="none: no such file or directory"):
        read(tmp_path / "none")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SourceError, match="expected a data directory"):
        read(empty)
    with pytest.raises(SourceError, match=r"--at 5: .* is read as it was last"):
        read(empty, at="5")


def test_a_damaged_snapshot_names_where(tmp_path: Path) -> None:
    path = real_snapshot(tmp_path)
    data = bytearray(path.read_bytes())
    flipped = data.copy()
    flipped[300_000] ^= 0xFF
    path.write_bytes(flipped)
    with pytest.raises(SourceError, match=r"kubernetes\.db"):
        read(path)  # its checksum is another one
    path.write_bytes(data[: len(data) // 2 // 4096 * 4096])
    with pytest.raises(SourceError, match=r"kubernetes\.db"):
        read(path)


ENDS = """
import os, signal, sys
from kvstack.clusters.commands import open_command
from kvstack.clusters.sources import state_files
state_files.open_offline = lambda path: os.kill(os.getpid(), signal.SIGBUS)
sys.exit(open_command.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_end_of_a_reader_by_a_signal_is_an_error_of_its_file(tmp_path: Path) -> None:
    """As LMDB ends a process that reads a file which was cut short."""
    with embed.start(tmp_path / "data"):
        pass
    environment = {
        **os.environ,
        "XDG_RUNTIME_DIR": str(tmp_path),
        "KUBECONFIG": str(tmp_path / "config"),
    }
    command = [sys.executable, "-c", ENDS, str(tmp_path / "data")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "a file is truncated or damaged: its reader was ended by SIGBUS" in done.stderr
    assert f"reading {tmp_path / 'data'}" in done.stderr
    assert os.listdir(tmp_path / "kvstack" / "forks") == [".lock"]


RULES = """\
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox: {keys: [{name: k, secret: QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=}]}
"""


def contents_of(rows: Sequence[KeyValue], **options: Any) -> Contents:
    records = StoreRecords(ReadOptions(**options), Silent())
    for kv in rows:
        records.add(kv)
    return asyncio.run(records.contents(Origin("test", "x"), 999, 999, {}))


@pytest.mark.slow
def test_encrypted_values_need_their_configuration(tmp_path: Path) -> None:
    config = tmp_path / "encryption.yaml"
    config.write_text(RULES)
    settings = Settings(
        nodes=0,
        without=frozenset(("controllers", "scheduler", "metrics")),
        flags={"encryption-provider-config": str(config)},
    )
    with BackgroundCluster(tmp_path / "cluster", settings) as cluster:
        secret = {"metadata": {"name": "s"}, "data": {"p": "aGk="}}
        call(cluster.kubeconfig, lambda api: api.create(SECRETS, "default", secret))
        rows = list(cluster.rows().records)
    without = contents_of(rows)
    [left] = without.left_out
    assert (left.what, left.number) == ("secrets", 1)
    assert "--encryption-provider-config reads them" in left.why
    assert {str(each) for each in without.unread} == {"secrets"}
    plain = contents_of(rows, encryption_config=str(config))
    assert plain.left_out == []
    [kv] = [kv for kv in plain.rows if kv.key == b"/registry/secrets/default/s"]
    assert Kinds().read(kv)["data"] == {"p": "aGk="}
    config.write_text(RULES.replace("QUFB", "QkJC"))
    [left] = contents_of(rows, encryption_config=str(config)).left_out
    assert left.what == "secrets"
    with pytest.raises(SourceError, match="--encryption-provider-config"):
        contents_of(rows, encryption_config=str(tmp_path / "none"))


def test_keys_of_another_prefix() -> None:
    keys = (b"/kubernetes.io/pods/a/b", b"/registry/pods/c/d", b"/kubernetes.io/masterleases/x")
    rows = [KeyValue(key, b"{}", 5, 5, 1, 0) for key in keys]
    found = contents_of(rows, etcd_prefix="kubernetes.io").rows
    assert [kv.key for kv in found] == [b"/registry/pods/a/b"]
