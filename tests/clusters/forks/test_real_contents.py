"""Forks of the snapshot of a real cluster: its past, its ranges, its nodes, what it does next."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import orjson
import pytest

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS, SERVICES
from kvstack.agents.client.kubeconfig import Kubeconfigs
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.standalone.in_memory.memory_cluster import memory_stack
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.server.served import served_rows
from kvstack.clusters.contents import Contents, Origin
from kvstack.clusters.forks.fork_cluster import ForkCluster, ForkSettings
from kvstack.clusters.forks.server_settings import server_options
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.sources.api_server import ApiServerSource
from kvstack.clusters.sources.source import ReadOptions, Silent, SourceError
from kvstack.clusters.sources.state_files import StateFileSource
from kvstore.client.values import KeyValue
from tests.clusters.support.snapshots import REVISION, real_objects, real_snapshot
from tests.clusters.support.sources import api_of
from tests.support.list_log import ListLog
from tests.support.waiting import answered

pytestmark = pytest.mark.slow

CARTS = ResourceType("example.com", "v1", "carts", "Cart")
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    path = real_snapshot(tmp_path_factory.mktemp("snapshot"))
    return asyncio.run(StateFileSource(path).read(ReadOptions(), Silent()))


def run(
    contents: Contents,
    tmp_path: Path,
    story: Callable[[ForkCluster, Api], Awaitable[None]],
    settings: ForkSettings | None = None,
) -> ListLog:
    log = ListLog()

    async def main() -> None:
        async with ForkCluster(contents, settings or ForkSettings(), tmp_path, log) as fork:
            api = api_of(fork.kubeconfig)
            try:
                await story(fork, api)
            finally:
                await api.close()

    asyncio.run(main())
    return log


def test_it_is_served_as_its_own_server_served_it(contents: Contents, tmp_path: Path) -> None:
    expected = real_objects()

    async def story(fork: ForkCluster, api: Api) -> None:
        assert fork.left_out == []
        for resource, prefix in (
            (PODS, "pods"),
            (DEPLOYMENTS, "deployments"),
            (NODES, "minions"),
            (SERVICES, "services/specs"),
            (CARTS, "example.com/carts"),
        ):
            page = await api.list_page(resource)
            assert page.resource_version == str(REVISION)
            found = {each["metadata"]["uid"]: each for each in page.items}
            start = f"/registry/{prefix}/"
            wanted = [each for key, each in expected.items() if key.startswith(start)]
            assert found == {each["metadata"]["uid"]: each for each in wanted}
            assert found

    run(contents, tmp_path, story, ForkSettings(is_read_only=True))


def test_watches_go_on_in_the_history_that_the_snapshot_has(
    contents: Contents, tmp_path: Path
) -> None:
    """A client of the real server that was at some revision is led to the fork."""
    at = 330

    async def story(fork: ForkCluster, api: Api) -> None:
        now = {
            each["metadata"]["name"]: each["metadata"]["resourceVersion"]
            for each in (await api.list_page(PODS, "shop")).items
        }
        page = await api.call(
            "GET",
            PODS.path("shop"),
            {"resourceVersion": str(at), "resourceVersionMatch": "Exact"},
        )
        seen = {
            each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in page["items"]
        }
        assert seen != now
        watch = api.watch(PODS, "shop", resource_version=str(at))
        async for events in watch:
            for each in events:
                if each.type in ("ADDED", "MODIFIED"):
                    meta = each.object["metadata"]
                    seen[meta["name"]] = meta["resourceVersion"]
            if seen == now:
                break
        await watch.aclose()

    run(contents, tmp_path, story, ForkSettings(is_read_only=True))


def test_it_goes_on_with_its_ranges_and_its_nodes(contents: Contents, tmp_path: Path) -> None:
    async def story(fork: ForkCluster, api: Api) -> None:
        before = {each["metadata"]["uid"] for each in (await api.list_page(PODS, "shop")).items}
        service = {"metadata": {"name": "new"}, "spec": {"ports": [{"port": 80}]}}
        made = await api.create(SERVICES, "shop", service)
        assert ip_address(made["spec"]["clusterIP"]) in ip_network("10.0.0.0/16")
        cart = {"apiVersion": "example.com/v1", "kind": "Cart", "metadata": {"name": "bob"}}
        await api.create(CARTS, "shop", cart | {"spec": {}})
        assert (await api.get(CARTS, "shop", "bob"))["spec"] == {"size": 1}
        await api.patch(DEPLOYMENTS, "shop", "web", {"spec": {"replicas": 6}}, MERGE)

        async def is_ready() -> bool:
            found = await api.get(DEPLOYMENTS, "shop", "web")
            return bool(found["status"].get("readyReplicas") == 6)

        await answered(is_ready)
        pods = (await api.list_page(PODS, "shop")).items
        assert before < {each["metadata"]["uid"] for each in pods}
        nodes = {each["spec"]["nodeName"] for each in pods}
        assert nodes == {"hollow-1", "hollow-2", "hollow-3"}

    log = run(contents, tmp_path, story)
    assert not log.of("error")


def test_a_revision_that_a_server_has_given_up(contents: Contents, tmp_path: Path) -> None:
    """The fork of one revision is itself a server that lacks what was before."""
    alone = replace(contents, history=None)

    async def story(fork: ForkCluster, api: Api) -> None:
        source = ApiServerSource(Kubeconfigs([fork.kubeconfig]).cluster(), "fork")
        with pytest.raises(SourceError, match="for the provided list is too old"):
            await source.read(ReadOptions(at=str(REVISION - 1)), Silent())
        again = await source.read(ReadOptions(at=str(REVISION)), Silent())
        assert again.revision == REVISION
        assert [kv.key for kv in again.rows] == [kv.key for kv in contents.rows]

    run(alone, tmp_path, story, ForkSettings(is_read_only=True))


def test_nodes_that_could_not_be_read_are_made(contents: Contents, tmp_path: Path) -> None:
    rows = [kv for kv in contents.rows if not kv.key.startswith(b"/registry/minions/")]
    unread = frozenset((GroupResource("", "nodes"),))
    lacking = replace(contents, rows=rows, unread=unread, history=None)
    before = {
        each["metadata"]["uid"]
        for key, each in real_objects().items()
        if key.startswith("/registry/pods/")
    }

    async def story(fork: ForkCluster, api: Api) -> None:
        nodes = (await api.list_page(NODES)).items
        assert [each["metadata"]["name"] for each in nodes] == ["hollow-1", "hollow-2", "hollow-3"]
        assert all(each["status"]["conditions"][-1]["status"] == "True" for each in nodes)
        pods = (await api.list_page(PODS, "shop")).items
        assert before <= {each["metadata"]["uid"] for each in pods}

    run(lacking, tmp_path, story)


def options_of(tmp_path: Path, *objects: tuple[str, dict[str, object]]) -> object:
    rows = [
        KeyValue(f"/registry/{key}".encode(), orjson.dumps(obj) + b"\n", 2, 2, 1, 0)
        for key, obj in sorted(objects)
    ]
    own = memory_stack(tmp_path)
    return server_options(own, Kinds(), rows, asks_others=False, is_read_only=False)


def service(name: str, *addresses: str, ports: tuple[int, ...] = ()) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "clusterIPs": list(addresses),
            "ports": [{"port": 80, "nodePort": each} for each in ports],
        },
    }


@pytest.mark.parametrize(
    ("addresses", "ranges"),
    [
        (("10.43.0.1", "10.43.200.7"), ["10.43.0.0/16"]),
        (("172.20.0.1", "172.20.0.9"), ["172.20.0.0/24"]),
        (("10.96.0.1", "10.100.3.4"), ["10.96.0.0/13"]),
        (("fd00:10:96::1", "fd00:10:96::beef"), ["fd00:10:96::/112"]),
        (("10.43.0.1", "192.168.0.1"), ["10.96.0.0/16"]),  # no range has both
    ],
)
def test_ranges_of_clusters_without_service_cidrs(
    tmp_path: Path, addresses: tuple[str, str], ranges: list[str]
) -> None:
    options = options_of(
        tmp_path,
        ("services/specs/default/kubernetes", service("kubernetes", addresses[0])),
        ("services/specs/default/web", service("web", addresses[1], ports=(29999,))),
    )
    assert [each.cidr for each in options.service_ranges] == ranges  # type: ignore[attr-defined]
    assert options.node_ports.text == "29999-32767"  # type: ignore[attr-defined]


def test_kinds_of_beta_versions_that_have_objects_are_served(tmp_path: Path) -> None:
    beta = [
        (prefix, rows[0]) for prefix, rows in Kinds().resources.items() if not served_rows(rows, {})
    ]
    assert beta
    prefix, row = beta[0]
    obj: dict[str, object] = {
        "apiVersion": row.group_version,
        "kind": row.kind.kind,
        "metadata": {"name": "x"},
    }
    options = options_of(tmp_path, (f"{prefix}/x", obj))
    assert options.runtime_config[f"{row.group_version}/{row.name}"] == "true"  # type: ignore[attr-defined]
    assert options_of(tmp_path).runtime_config == {}  # type: ignore[attr-defined]


def test_more_objects_that_cannot_be_read_than_are_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvstack.clusters.forks import fork_cluster

    monkeypatch.setattr(fork_cluster, "UNREADABLE_MAX", 1)
    rows = [KeyValue(b"/registry/configmaps/x/%d" % n, b"{", 2, 2, 1, 0) for n in range(2)]

    async def story(*_: object) -> None:
        raise AssertionError("it must not start")

    with pytest.raises(Exception, match="2 objects cannot be read, more than 1; /registry/config"):
        run(Contents(rows, 5, Origin("test", "x")), tmp_path, story)


def test_names_of_the_fork_are_not_of_the_source(contents: Contents, tmp_path: Path) -> None:
    """Its authority and the Service `kubernetes` are its own."""

    async def story(fork: ForkCluster, api: Api) -> None:
        ca = (fork.kubeconfig.parent / "pki" / "ca.crt").read_text()

        async def is_ours() -> bool:
            found = await api.get(CONFIG_MAPS, "shop", "kube-root-ca.crt")
            return bool(found["data"]["ca.crt"] == ca)

        await answered(is_ours)

    run(contents, tmp_path, story)
