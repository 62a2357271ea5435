"""A cluster's store changes hands: a real etcd's data directory, objects of a real kube-apiserver.

    etcd with what kube-apiserver 1.37.1 stored (objects of every kind, in protobuf)
      → taken over by our store, served by our API server, every second object changed
      → given back to etcd, which has every key, every object and its history

`stored.jsonl.gz` has the keys and values; nothing in them is made up.
"""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.protobuf.codec import from_protobuf
from kvstack.apimachinery.schema.protobuf.envelope import MAGIC, unwrap
from kvstack.apimachinery.schema.resource import Kind
from kvstore.wire import rpc
from tests.apiserver.support.api_servers import ApiServer, SharedFiles, serving
from tests.apiserver.support.requests import Connection, RefusedError
from tests.support.models.store_view import Store
from tests.support.servers import Server, etcd, ours, running
from tests.support.util_command import Tool

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RECORDED = Path(__file__).parents[1] / "recorded" / "stored.jsonl.gz"
ROOT, AFTER_ROOT = b"/registry/", b"/registry0"
FAST = "--unsafe-no-fsync"
KINDS_MIN, OBJECTS_MIN = 50, 250
LABELS = {"metadata": {"labels": {"swapped": "ours"}}}
UNSERVED = ("/registry/ranges/", "/registry/peerserverleases/")
"""What no client sees: allocations of addresses and ports, servers among themselves."""
KEPT_BY_SERVERS = ("default/kubernetes", "kube-node-lease", "/apiserver-")
"""What any API server writes while it runs: its own addresses and leases."""


class Value(NamedTuple):
    """A value as a store has it."""

    data: bytes
    revision: int


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


def recorded() -> Iterator[tuple[bytes, bytes]]:
    """Give the keys and values that a kube-apiserver stored."""
    with gzip.open(RECORDED, "rt") as lines:
        for line in lines:
            each = json.loads(line)
            yield each["key"].encode(), base64.b64decode(each["base64"])


def values(server: Server, revision: int = 0) -> dict[str, Value]:
    """Return all that a store has below /registry/."""
    with Store(server) as store:
        answer = store.call(rpc.RANGE, key=ROOT, range_end=AFTER_ROOT, revision=revision)
    return {kv.key.decode(): Value(kv.value, kv.mod_revision) for kv in answer.kvs}


def plain(data: bytes) -> dict[str, Any]:
    """Return a stored object, whoever wrote it."""
    if not data.startswith(MAGIC):
        found: dict[str, Any] = json.loads(data)
        return found
    envelope = unwrap(data)
    group, _, version = envelope.api_version.rpartition("/")
    type_ = load().type_of(Kind(group, version, envelope.kind))
    assert type_ is not None, envelope
    obj = from_protobuf(envelope.content, type_)
    return {"apiVersion": envelope.api_version, "kind": envelope.kind, **obj}


def path_of(obj: dict[str, Any]) -> str:
    """Return where an API server has an object."""
    group = obj["apiVersion"].rpartition("/")[0]
    meta = obj["metadata"]
    if obj["kind"] == "Widget":
        base, resource, is_namespaced = f"/apis/{obj['apiVersion']}", "widgets", True
    else:
        rows = [each for each in load() if (each.group, each.kind.kind) == (group, obj["kind"])]
        rows.sort(key=lambda each: ("alpha" in each.version, "beta" in each.version))
        row = rows[0]  # not what it was stored in, but what is served by default
        base = f"/apis/{group}/{row.version}" if group else f"/api/{row.version}"
        resource, is_namespaced = row.name, row.is_namespaced
    place = f"namespaces/{meta['namespace']}/" if is_namespaced else ""
    return f"{base}/{place}{resource}/{meta['name']}"


def test_nothing_is_lost_on_the_way_there_and_back(tmp_path: Path, tool: Tool) -> None:
    first = etcd(tmp_path / "etcd", extra=[FAST])
    with running(first), Store(first) as store:
        for key, data in recorded():
            store.put(key, data)
        before = values(first)
        first.stop()
    assert len(before) >= OBJECTS_MIN

    taken = ours(first.data_dir, extra=[FAST], ports=(first.client_port, first.peer_port))
    with running(taken):
        assert values(taken) == before
        shown = serve(taken, tmp_path, before)
        after = values(taken)
        taken.stop()

    back = etcd(tmp_path / "back", extra=[FAST], ports=(first.client_port, first.peer_port))
    flags = ("--to=etcd", "--target-version=3.5", "--out", back.data_dir)
    tool.done("migrate", "--data-dir", taken.data_dir, *flags)
    with running(back):
        found = values(back)
        assert found == after
        compare(before, found, shown)
        with Store(back) as store:
            last = max(each.revision for each in before.values())
            history = store.call(rpc.RANGE, key=ROOT, range_end=AFTER_ROOT, revision=last)
        assert {kv.key.decode(): kv.value for kv in history.kvs} == {
            key: each.data for key, each in before.items()
        }


def serve(store: Server, directory: Path, before: dict[str, Value]) -> dict[str, dict[str, Any]]:
    """Look at every object through our API server, change every second; return what was shown."""
    files = SharedFiles.make(directory / "files")
    kinds = set()
    shown: dict[str, dict[str, Any]] = {}
    with serving(ApiServer(directory / "api", files, [store.client_url])) as server:
        connection = Connection(server)
        for number, (key, value) in enumerate(sorted(before.items())):
            if key.startswith(UNSERVED):
                continue
            was = plain(value.data)
            path = path_of(was)
            found = connection.ask("GET", path)
            assert found["metadata"]["uid"] == was["metadata"]["uid"], key
            assert found["metadata"]["name"] == was["metadata"]["name"]
            kinds.add(was["kind"])
            if number % 2:
                found = connection.ask(
                    "PATCH", path, LABELS, content_type="application/merge-patch+json"
                )
            if was["kind"] == "CustomResourceDefinition":
                assert found["spec"]["versions"][0]["schema"], key
            shown[key] = found
        made = {"metadata": {"name": "ours", "namespace": "a"}, "data": {"a": "b"}}
        shown["/registry/configmaps/a/ours"] = connection.ask(
            "POST", "/api/v1/namespaces/a/configmaps", made
        )
        connection.ask("DELETE", "/api/v1/namespaces/a/configmaps/cm1")
        with pytest.raises(RefusedError):
            connection.ask("GET", "/api/v1/namespaces/a/configmaps/cm1")
        del shown["/registry/configmaps/a/cm1"]
        connection.close()
        server.stop()
    assert len(kinds) >= KINDS_MIN
    return shown


def compare(
    before: dict[str, Value], found: dict[str, Value], shown: dict[str, dict[str, Any]]
) -> None:
    """Compare what a store has with what was there and with what clients were shown."""
    kept = [key for key in before if key != "/registry/configmaps/a/cm1"]
    assert not [key for key in kept if key not in found]
    changed = 0
    for key, last in shown.items():
        value = found[key]
        if any(part in key for part in KEPT_BY_SERVERS):
            continue
        assert last["metadata"]["resourceVersion"] == str(value.revision), key
        if key in before and value.revision == before[key].revision:
            assert value.data == before[key].data, key
        else:
            changed += 1
        own = plain(value.data)
        if own["apiVersion"] != last["apiVersion"]:  # it is stored in an older version than shown
            own, last = ({"metadata": each["metadata"]} for each in (own, last))
        assert without_version(own) == without_version(last), key
    assert changed > len(shown) // 3


def without_version(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without its resourceVersion, which stores do not keep in it."""
    metadata = {name: each for name, each in obj["metadata"].items() if name != "resourceVersion"}
    return {**obj, "metadata": metadata}
