"""Contents over the wire: pages, revisions that are given up, rights that are lacking, the past."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS
from kvstack.agents.client.kubeconfig import Cluster, Kubeconfigs
from kvstack.agents.client.over_http import Credentials
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.status import expired
from kvstack.apimachinery.objects.times import format_time
from kvstack.clusters.contents import Contents
from kvstack.clusters.sources import api_listing, api_server
from kvstack.clusters.sources.api_server import ApiServerSource
from kvstack.clusters.sources.source import ReadOptions, Silent, SourceError
from kvstack.component.version import KUBERNETES_VERSION
from tests.clusters.support.sources import (
    add_config_map,
    add_widgets,
    call,
    config_map,
    objects_of,
    read,
    source_of,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = ResourceType(RBAC, "v1", "clusterroles", "ClusterRole", is_namespaced=False)
CLUSTER_BINDINGS = ResourceType(
    RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", is_namespaced=False
)
BINDINGS = ResourceType(RBAC, "v1", "rolebindings", "RoleBinding")
PREFIX = b"/registry/configmaps/default/"


class Doing:
    """Progress that does something once, as soon as some objects were read."""

    def __init__(self, after: int, do: Callable[[], None]) -> None:
        self.after, self.do = after, do
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)
        words = text.split()
        if words[0] == "reading:" and int(words[1]) >= self.after and self.after >= 0:
            self.after = -1
            self.do()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    directory = tmp_path_factory.mktemp("source")
    settings = Settings(nodes=1, without=frozenset(("scheduler", "metrics")))
    with BackgroundCluster(directory / "cluster", settings) as cluster:
        for number in range(30):
            add_config_map(cluster.kubeconfig, f"c{number:02d}", n=str(number))
        yield cluster


def names_of(contents: Contents) -> list[str]:
    return [kv.key[len(PREFIX) :].decode() for kv in contents.rows if kv.key.startswith(PREFIX)]


def test_pages_are_of_one_revision_whatever_is_written_meanwhile(
    source: BackgroundCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_listing, "PAGE_OBJECTS", 7)
    before = read(source)
    made: list[str] = []

    def write() -> None:
        add_config_map(source.kubeconfig, "zz", late="yes")
        call(source.kubeconfig, lambda api: api.delete(CONFIG_MAPS, "default", "c05"))
        made.append("zz")

    def elsewhere() -> None:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()

    progress = Doing(20, elsewhere)
    contents = asyncio.run(source_of(source).read(ReadOptions(), progress))
    assert made
    assert names_of(contents) == names_of(before)
    assert contents.left_out == []
    assert all(kv.mod_revision <= contents.revision for kv in contents.rows)
    assert progress.said[0].startswith("connecting to https://127.0.0.1:")
    call(source.kubeconfig, lambda api: api.delete(CONFIG_MAPS, "default", "zz"))
    add_config_map(source.kubeconfig, "c05", n="5")


def test_a_revision_that_is_given_up_in_the_middle(
    source: BackgroundCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """410: the kind is read as it is now, and that is told."""
    monkeypatch.setattr(api_listing, "PAGE_OBJECTS", 3)
    real = Api.call
    pages: list[str] = []

    async def answered(
        self: Api, method: str, path: str, query: Any = None, *rest: Any, **more: Any
    ) -> Any:
        if path == CONFIG_MAPS.path() and (query or {}).get("continue"):
            pages.append(query["continue"])
            if len(pages) == 3:
                await asyncio.to_thread(add_config_map, source.kubeconfig, "during")
                raise expired("The provided continue parameter is too old")
        return await real(self, method, path, query, *rest, **more)

    source_of_it = source_of(source)
    with monkeypatch.context() as patched:
        patched.setattr(Api, "call", answered)
        contents = asyncio.run(source_of_it.read(ReadOptions(), Silent()))
    [left] = contents.left_out
    assert left.what == "configmaps"
    assert "its revision was given up while it was read" in left.why
    assert "during" in names_of(contents)
    newest = max(kv.mod_revision for kv in contents.rows)
    assert contents.revision >= newest
    assert f"read at revision {contents.revision} and not " in left.why
    call(source.kubeconfig, lambda api: api.delete(CONFIG_MAPS, "default", "during"))


def test_a_revision_that_is_given_up_again_and_again(
    source: BackgroundCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pages(*_: object) -> Any:
        raise expired("too old")

    monkeypatch.setattr(api_listing.Listing, "_pages", pages)
    with pytest.raises(SourceError, match="gave up the revision 3 times"):
        read(source)
    with pytest.raises(SourceError, match="too old"):
        read(source, at="3")  # nothing newer will do


def restricted(source: BackgroundCluster, name: str, rules: list[Any], namespace: str) -> Cluster:
    """Return the API as a service account with some rights; namespace: in that alone."""
    role = {"metadata": {"name": name}, "rules": rules}
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    steps = [
        lambda api: api.create(SERVICE_ACCOUNTS, "default", {"metadata": {"name": name}}),
        lambda api: api.create(CLUSTER_ROLES, "", role),
        lambda api: (
            api.create(BINDINGS, namespace, binding)
            if namespace
            else api.create(CLUSTER_BINDINGS, "", binding)
        ),
    ]
    path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"

    def ask(api: Api) -> Any:
        return api.call("POST", path, None, b'{"spec":{}}')

    token = call(source.kubeconfig, *steps, ask)
    cluster = Kubeconfigs([source.kubeconfig]).cluster()
    return replace(cluster, credentials=Credentials(token["status"]["token"]))


def test_kinds_that_may_not_be_listed_are_named(source: BackgroundCluster) -> None:
    rules = [
        {"apiGroups": [""], "resources": ["configmaps", "namespaces"], "verbs": ["list"]},
    ]
    cluster = restricted(source, "by-name", rules, "")
    contents = asyncio.run(ApiServerSource(cluster, "x").read(ReadOptions(), Silent()))
    kinds = {kv.key.split(b"/")[2] for kv in contents.rows}
    assert kinds == {b"configmaps", b"namespaces", b"clustertrustbundles"}  # which all may read
    left = {each.what: each.why for each in contents.left_out}
    assert "is forbidden" in left["secrets"]
    assert "is forbidden" in left["deployments.apps"]
    assert GroupResource("", "pods") in contents.unread
    assert GroupResource("", "configmaps") not in contents.unread


def test_rights_in_one_namespace(source: BackgroundCluster) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    cluster = restricted(source, "narrow", rules, "default")
    contents = asyncio.run(ApiServerSource(cluster, "x").read(ReadOptions(), Silent()))
    assert not names_of(contents)
    options = ReadOptions(namespaces=("default",))
    contents = asyncio.run(ApiServerSource(cluster, "x").read(options, Silent()))
    assert "c00" in names_of(contents)
    assert {each.what for each in contents.left_out} >= {
        "secrets in default",
        "nodes",
        "namespaces",
    }
    rules.append({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]})
    cluster = restricted(source, "named", rules, "default")
    contents = asyncio.run(ApiServerSource(cluster, "x").read(options, Silent()))
    assert "namespaces" not in {each.what for each in contents.left_out}
    assert GroupResource("", "namespaces") not in contents.unread
    assert b"/registry/namespaces/default" in {kv.key for kv in contents.rows}


def test_namespaces_and_events(source: BackgroundCluster) -> None:
    call(
        source.kubeconfig,
        lambda api: api.create(
            ResourceType("", "v1", "namespaces", "Namespace", is_namespaced=False),
            "",
            {"metadata": {"name": "other"}},
        ),
        lambda api: api.create(CONFIG_MAPS, "other", config_map("elsewhere")),
        lambda api: api.create(
            ResourceType("", "v1", "events", "Event"),
            "default",
            {
                "metadata": {"name": "e"},
                "involvedObject": {"namespace": "default", "name": "x", "kind": "Pod"},
                "reason": "R",
                "message": "m",
                "type": "Normal",
            },
        ),
    )
    whole = read(source)
    keys = {kv.key for kv in whole.rows}
    assert b"/registry/events/default/e" in keys
    [event] = [kv for kv in whole.rows if kv.key == b"/registry/events/default/e"]
    assert whole.leases == {event.lease: 3600}
    some = read(source, namespaces=("default",), has_events=False)
    keys = {kv.key for kv in some.rows}
    assert b"/registry/configmaps/other/elsewhere" not in keys
    assert b"/registry/namespaces/other" not in keys
    assert b"/registry/namespaces/default" in keys
    assert b"/registry/minions/hollow-1" in keys
    assert not any(key.startswith(b"/registry/events/") for key in keys)
    with pytest.raises(SourceError, match=r"more than 25 objects \(at .*--max-objects"):
        read(source, objects_max=25)


def test_the_past_by_revision_and_by_time(source: BackgroundCluster) -> None:
    made = add_config_map(source.kubeconfig, "past", n="1")
    then = int(made["metadata"]["resourceVersion"])
    moment = time.time_ns() // 10**9 + 2  # notes are taken every second
    wait_for(lambda: time.time_ns() // 10**9 > moment + 1)
    call(
        source.kubeconfig,
        lambda api: api.patch(
            CONFIG_MAPS, "default", "past", {"data": {"n": "2"}}, "application/merge-patch+json"
        ),
        lambda api: api.delete(CONFIG_MAPS, "default", "c01"),
    )
    by_revision = read(source, at=str(then))
    assert by_revision.revision == then
    by_time = read(source, at=format_time(moment))
    for contents in (by_revision, by_time):
        assert "c01" in names_of(contents)
        found = objects_of(kv for kv in contents.rows if kv.key == PREFIX + b"past")
        assert found[(PREFIX + b"past").decode()]["data"] == {"n": "1"}
    assert by_time.revision < read(source).revision
    with pytest.raises(SourceError, match="it is in the future"):
        read(source, at="2099-01-01T00:00:00Z")
    with pytest.raises(SourceError, match=r"2001-01-01T00:00:00Z: .* oldest available time is"):
        read(source, at="2001-01-01T00:00:00Z")
    add_config_map(source.kubeconfig, "c01", n="1")


def test_the_history_of_our_server(source: BackgroundCluster) -> None:
    moment = time.time_ns() // 10**9 + 1
    wait_for(lambda: time.time_ns() // 10**9 > moment + 1)
    first = add_config_map(source.kubeconfig, "story", n="1")
    patch = {"data": {"n": "2"}}
    call(
        source.kubeconfig,
        lambda api: api.patch(
            CONFIG_MAPS, "default", "story", patch, "application/merge-patch+json"
        ),
        lambda api: api.delete(CONFIG_MAPS, "default", "c02"),
        lambda api: api.create(SECRETS, "default", {"metadata": {"name": "late"}}),
    )
    since_s = time.time_ns() / 1e9 - moment
    contents = read(source, since_s=since_s)
    assert contents.history is not None
    at = int(first["metadata"]["resourceVersion"])
    assert contents.history.readable_from < at
    records = contents.history.records
    stories = [kv for kv in records if kv.key == PREFIX + b"story"]
    assert [(kv.mod_revision, kv.version) for kv in stories] == [(at, 1)]
    gone = [kv for kv in records if kv.key == PREFIX + b"c02"]
    assert [bool(kv.version) for kv in gone] == [True, False]
    [now] = [kv for kv in contents.rows if kv.key == PREFIX + b"story"]
    assert (now.create_revision, now.version) == (at, 2)
    add_config_map(source.kubeconfig, "c02", n="2")
    with pytest.raises(SourceError, match="--at and --since exclude each other"):
        read(source, since_s=1.0, at="5")


def test_a_server_without_a_past_says_so(
    source: BackgroundCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kube-apiserver, which knows no /at/."""
    from kvstack.apiserver.http import routing

    monkeypatch.setattr(routing, "_AT", "/nowhere/")
    for options in ({"at": "2026-01-01T00:00:00Z"}, {"since_s": 12345.0}):
        with pytest.raises(SourceError, match="does not show its past state"):
            read(source, **options)


def test_objects_of_definitions_that_cannot_be_read_are_kept_and_named(
    source: BackgroundCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_widgets(source.kubeconfig, "one")
    whole = read(source)
    assert whole.left_out == []
    rules = [{"apiGroups": ["example.com"], "resources": ["*"], "verbs": ["list"]}]
    cluster = restricted(source, "widgets", rules, "")
    contents = asyncio.run(ApiServerSource(cluster, "x").read(ReadOptions(), Silent()))
    [kv] = [kv for kv in contents.rows if b"example.com" in kv.key]
    assert kv.key == b"/registry/example.com/widgets/default/one"
    left = {each.what: each for each in contents.left_out}
    assert left["widgets.example.com"].number == 1
    assert "kept, but not served" in left["widgets.example.com"].why


def test_what_is_read_of_ours_is_stored_as_ours(source: BackgroundCluster) -> None:
    """Objects of this program in this version need not be decoded anew."""
    original = {kv.key: kv for kv in source.rows().records}
    contents = read(source, has_events=False)
    same = [kv for kv in contents.rows if kv.value == original[kv.key].value]
    custom = [kv for kv in contents.rows if kv.key.startswith(b"/registry/example.com/")]
    assert len(same) >= len(contents.rows) - len(custom) - 5  # leases change meanwhile
    assert contents.origin.version == f"v{KUBERNETES_VERSION}"


def test_a_server_of_another_version_is_decoded_anew(
    source: BackgroundCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "KUBERNETES_VERSION", "1.28.0")
    original = {kv.key: kv for kv in source.rows().records}
    rows = list(read(source, has_events=False).rows)
    assert all(kv.value.endswith(b"\n") for kv in rows)
    assert orjson.loads(rows[0].value)["metadata"].get("resourceVersion") is None
    assert objects_of(rows).items() <= objects_of(original.values()).items() or len(rows) > 50
