"""Forks of clusters that are read over the wire: what they begin with, and what they ask nobody."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import CONFIG_MAPS, DEPLOYMENTS, LEASES, NODES, PODS, SECRETS
from kvstack.agents.client.informers import Informers
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.apimachinery.objects.status import ApiError
from kvstack.clusters.contents import Contents, Origin
from kvstack.clusters.forks.fork_cluster import ForkCluster, ForkSettings
from kvstack.component.clock import SystemClock
from kvstore.client.store import Store
from kvstore.client.values import KeyValue, prefix_end
from tests.clusters.support.sources import (
    API_SERVICES,
    WEBHOOKS,
    WIDGETS,
    add_config_map,
    add_widgets,
    aggregated,
    api_of,
    call,
    config_map,
    objects_of,
    read,
    webhook,
)
from tests.support.list_log import ListLog
from tests.support.waiting import answered, eventually, wait_for

pytestmark = pytest.mark.slow

READ_ONLY = ForkSettings(is_read_only=True)
Story = Callable[[ForkCluster, Api], Awaitable[None]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    """A cluster with a bit of everything."""
    directory = tmp_path_factory.mktemp("source")
    with BackgroundCluster(directory / "cluster", Settings(nodes=2)) as cluster:
        config = cluster.kubeconfig
        add_widgets(config, "one", "two")
        add_config_map(config, "a", text="<&> \u2028 é", empty="")
        add_config_map(config, "b", number="1")
        labels = {"app": "web"}
        spec = {"containers": [{"name": "c", "image": "web:1"}]}
        deployment = {
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
        secret = {"metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="}}
        call(
            config,
            lambda api: api.create(DEPLOYMENTS, "default", deployment),
            lambda api: api.create(SECRETS, "default", secret),
            lambda api: api.create(API_SERVICES, "", aggregated()),
            lambda api: api.create(WEBHOOKS, "", webhook("https://127.0.0.1:1/", policy="Ignore")),
        )
        wait_for(
            lambda: (
                call(config, lambda api: api.get(DEPLOYMENTS, "default", "web"))["status"].get(
                    "readyReplicas"
                )
                == 3
            )
        )
        yield cluster


def run(
    contents: Contents, tmp_path: Path, story: Story, settings: ForkSettings | None = None
) -> ListLog:
    """Play a story on a fork; return its log."""
    log = ListLog()

    async def main() -> None:
        directory = tmp_path / "fork"
        async with ForkCluster(contents, settings or ForkSettings(), directory, log) as fork:
            api = api_of(fork.kubeconfig)
            try:
                await story(fork, api)
            finally:
                await api.close()

    asyncio.run(main())
    return log


async def rows_of(store: Store) -> tuple[list[KeyValue], int]:
    rows: list[KeyValue] = []
    revision = 0
    async for page in store.pages(b"/registry/", prefix_end(b"/registry/")):
        revision = revision or page.revision
        rows += page.kvs
    return rows, revision


def test_a_fork_has_the_same_objects_and_revisions(
    source: BackgroundCluster, tmp_path: Path
) -> None:
    contents = read(source)
    original = source.rows()
    assert contents.revision <= original.revision
    assert contents.origin == Origin("API server", "source", "v1.37.1")
    assert [each.what for each in contents.left_out] == ["remote.example.com/v1"]

    async def story(fork: ForkCluster, api: Api) -> None:
        rows, revision = await rows_of(fork._live.store)
        assert revision == contents.revision
        assert {kv.key: kv.mod_revision for kv in rows} == {
            kv.key: kv.mod_revision for kv in contents.rows
        }
        expected = {kv.key: kv for kv in original.records if kv.mod_revision <= contents.revision}
        assert objects_of(expected.values()).items() <= objects_of(rows).items()
        unread = await api.get(WIDGETS, "default", "one")
        assert unread["spec"] == {"size": 3, "big": 1.5, "none": None}
        assert (await api.get(CONFIG_MAPS, "default", "a"))["data"]["text"] == "<&> \u2028 é"

    run(contents, tmp_path, story, READ_ONLY)


def test_requests_are_answered_before_there_are_agents(
    source: BackgroundCluster, tmp_path: Path
) -> None:
    """What is done meanwhile may fail, and then nothing goes on."""
    seen: list[Any] = []

    async def serving(fork: ForkCluster) -> None:
        api = api_of(fork.kubeconfig)
        try:
            seen.append((await api.get(DEPLOYMENTS, "default", "web"))["status"]["readyReplicas"])
        finally:
            await api.close()
        seen.append([each.why for each in fork.cluster.agents.activity().moving])
        raise RuntimeError("nobody to be told")

    async def main() -> None:
        directory = tmp_path / "fork"
        fork = ForkCluster(contents, ForkSettings(), directory, ListLog(), on_serving=serving)
        with pytest.raises(RuntimeError, match="nobody to be told"):
            async with fork:
                seen.append("it was entered")

    contents = read(source)
    asyncio.run(main())
    assert seen == [3, ["are being started"]]


def test_contents_are_let_go_once_they_are_laid(tmp_path: Path) -> None:
    """They are about as large as what the fork holds of its own."""
    value = orjson.dumps(config_map("a") | {"apiVersion": "v1", "kind": "ConfigMap"})
    row = KeyValue(b"/registry/configmaps/default/a", value, 7, 7, 1, 0)
    left = Contents([row], 7, Origin("test", "x"))

    async def main() -> None:
        fork = ForkCluster(left, READ_ONLY, tmp_path / "fork", ListLog())
        async with fork:
            assert (await rows_of(fork._live.store))[0] == [row]
            assert [sys.getrefcount(each) for each in (left, row)] == before

    before = [sys.getrefcount(each) for each in (left, row)]
    asyncio.run(main())


def test_what_can_only_be_read_stays_as_it_is(source: BackgroundCluster, tmp_path: Path) -> None:
    contents = read(source)

    async def story(fork: ForkCluster, api: Api) -> None:
        for work in (
            lambda: api.create(CONFIG_MAPS, "default", config_map("new")),
            lambda: api.delete(CONFIG_MAPS, "default", "a"),
            lambda: api.delete_collection(CONFIG_MAPS, "default"),
            lambda: api.patch(
                CONFIG_MAPS, "default", "a", {"data": {}}, "application/merge-patch+json"
            ),
        ):
            with pytest.raises(ApiError, match="this cluster is read-only") as refused:
                await work()
            assert refused.value.code == 405
        path = CONFIG_MAPS.path("default")
        body = orjson.dumps(config_map("tried"))
        tried = await api.call("POST", path, {"dryRun": "All"}, body)
        assert tried["metadata"]["uid"]
        review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
        answer = await api.call(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            None,
            orjson.dumps(review),
        )
        assert answer["status"]["allowed"]
        page = await api.list_page(CONFIG_MAPS, "default")
        assert int(page.resource_version) == contents.revision

    run(contents, tmp_path, story, READ_ONLY)


def test_a_watch_goes_on_from_its_last_resource_version(
    source: BackgroundCluster, tmp_path: Path
) -> None:
    last = call(source.kubeconfig, lambda api: api.list_page(CONFIG_MAPS)).resource_version
    contents = read(source)
    assert contents.revision >= int(last)

    async def story(fork: ForkCluster, api: Api) -> None:
        await api.create(CONFIG_MAPS, "default", config_map("later"))
        seen: list[str] = []
        watch = api.watch(CONFIG_MAPS, "default", resource_version=str(contents.revision))
        async for events in watch:
            seen += [each.object["metadata"]["name"] for each in events if each.type == "ADDED"]
            if "later" in seen:
                break
        await watch.aclose()
        assert not {"a", "b"} & set(seen)

    run(contents, tmp_path, story)


def test_an_informer_that_is_led_to_the_fork_begins_again_without_a_word(
    source: BackgroundCluster, tmp_path: Path
) -> None:
    """A client whose resourceVersion the fork does not know reads anew, and misses nothing."""
    contents = read(source)

    async def story(fork: ForkCluster, api: Api) -> None:
        with pytest.raises(ApiError) as expired:
            async for _ in api.watch(CONFIG_MAPS, resource_version=str(contents.revision - 5)):
                pass
        assert expired.value.code == 410
        log = ListLog()
        informers = Informers(api, SystemClock(), lambda: 0.5, log)
        async with informers:
            store = informers.of(CONFIG_MAPS).store
            await informers.of(CONFIG_MAPS).synced()
            assert store.get("default/a")
            await api.create(CONFIG_MAPS, "default", config_map("new"))
            await eventually(lambda: store.get("default/new"))

    run(contents, tmp_path, story)


def test_controllers_scheduler_and_nodes_go_on(source: BackgroundCluster, tmp_path: Path) -> None:
    contents = read(source)
    rows = [kv for kv in contents.rows if kv.key.startswith(b"/registry/pods/")]
    before = objects_of(rows)
    assert len(before) == 3

    async def story(fork: ForkCluster, api: Api) -> None:
        nodes = await api.list_page(NODES)
        assert [each["metadata"]["name"] for each in nodes.items] == ["hollow-1", "hollow-2"]
        for each in (await api.list_page(PODS, "default")).items:
            assert each == before[f"/registry/pods/default/{each['metadata']['name']}"]
        patch = {"spec": {"replicas": 5}}
        await api.patch(DEPLOYMENTS, "default", "web", patch, "application/merge-patch+json")
        await _ready(api, 5)
        pods = (await api.list_page(PODS, "default")).items
        assert {each["metadata"]["uid"] for each in before.values()} < {
            each["metadata"]["uid"] for each in pods
        }

    log = run(contents, tmp_path, story)
    assert not log.of("error")


async def _ready(api: Api, number: int) -> None:
    async def is_ready() -> bool:
        found = await api.get(DEPLOYMENTS, "default", "web")
        return bool(found["status"].get("readyReplicas") == number)

    await answered(is_ready)


@pytest.mark.parametrize(
    ("nodes", "names"), [("3", ["hollow-1", "hollow-2", "hollow-3"]), ("none", None)]
)
def test_other_nodes_or_none(
    source: BackgroundCluster, tmp_path: Path, nodes: str, names: list[str] | None
) -> None:
    contents = read(source)

    async def story(fork: ForkCluster, api: Api) -> None:
        found = [each["metadata"]["name"] for each in (await api.list_page(NODES)).items]
        assert found == (names or ["hollow-1", "hollow-2"])
        leases = await api.list_page(LEASES, "kube-node-lease")
        renewed = {
            each["metadata"]["name"]
            for each in leases.items
            if int(each["metadata"]["resourceVersion"]) > contents.revision
        }
        if names is None:
            assert not renewed

    run(contents, tmp_path, story, ForkSettings(nodes=nodes))


def test_nothing_leaves_a_fork(source: BackgroundCluster, tmp_path: Path) -> None:
    contents = read(source)

    async def story(fork: ForkCluster, api: Api) -> None:
        response = await api.open(
            "POST", CONFIG_MAPS.path("default"), None, orjson.dumps(config_map("new"))
        )
        assert "was not called: this cluster makes no outbound calls" in response.header("Warning")
        await response.read()
        found = (await api.list_page(PODS, "default")).items[0]
        pod, node = found["metadata"]["name"], found["spec"]["nodeName"]
        far = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}}
        await api.patch(NODES, "", node, far, "application/merge-patch+json", subresource="status")
        for path in (
            f"/api/v1/namespaces/default/pods/{pod}/log",
            f"/api/v1/nodes/{node}/proxy/metrics",
            f"/api/v1/namespaces/default/pods/{pod}/proxy/",
            "/apis/remote.example.com/v1/things",
        ):
            with pytest.raises(ApiError) as refused:
                await api.call("GET", path)
            assert refused.value.code == 503
            assert "this cluster makes no outbound calls" in str(refused.value)
        asked = {(each.what, each.name): each for each in fork.unasked}
        hook = asked["admission webhook", "check.example.com"]
        assert hook.last == "CREATE configmaps default/new"
        assert asked["aggregated API server", "v1.remote.example.com"].times == 1
        nodes = [each for each in fork.unasked if each.what == "node, pod or Service"]
        assert sum(each.times for each in nodes) == 3
        groups = await api.call("GET", "/apis")
        assert "remote.example.com" not in {each["name"] for each in groups["groups"]}

    # Controllers would have the webhook asked, too: for the CA of the fork, which is a new one.
    run(contents, tmp_path, story, ForkSettings(without=frozenset(("controllers",))))


def test_a_webhook_is_asked_where_that_is_allowed(
    source: BackgroundCluster, tmp_path: Path
) -> None:
    contents = read(source)

    async def story(fork: ForkCluster, api: Api) -> None:
        await api.create(CONFIG_MAPS, "default", config_map("new"))  # its failure is ignored
        assert fork.unasked == []

    log = run(contents, tmp_path, story, ForkSettings(asks_others=True))
    told = [
        fields
        for message, fields in log.of("warning")
        if "ignored by its failure policy" in message
    ]
    assert told[0]["webhook"] == "check.example.com"


def test_tokens_of_a_fork_open_nothing_else(source: BackgroundCluster, tmp_path: Path) -> None:
    contents = read(source)
    token = ""

    async def story(fork: ForkCluster, api: Api) -> None:
        nonlocal token
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        answer = await api.call("POST", path, None, b'{"spec":{}}')
        token = answer["status"]["token"]
        assert (await review(api, token))["authenticated"]

    run(contents, tmp_path, story)
    assert not call(source.kubeconfig, lambda api: review(api, token)).get("authenticated")


async def review(api: Api, token: str) -> dict[str, Any]:
    body = orjson.dumps({"spec": {"token": token}})
    answer = await api.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", None, body)
    found: dict[str, Any] = answer["status"]
    return found


def test_what_cannot_be_read_is_set_aside_and_named(tmp_path: Path) -> None:
    good = orjson.dumps(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "x"}}
    )
    rows = [
        KeyValue(b"/registry/configmaps/x/a", good + b"\n", 2, 2, 1, 0),
        KeyValue(b"/registry/configmaps/x/b", b"k8s\0garbage", 3, 3, 1, 0),
        KeyValue(b"/registry/configmaps/x/c", b"{", 4, 4, 1, 0),
    ]
    contents = Contents(rows, 9, Origin("test", "x"))

    async def story(fork: ForkCluster, api: Api) -> None:
        page = await api.list_page(CONFIG_MAPS, "x")
        assert [each["metadata"]["name"] for each in page.items] == ["a"]
        assert [each.what for each in fork.left_out] == [
            "/registry/configmaps/x/b",
            "/registry/configmaps/x/c",
        ]

    run(contents, tmp_path, story, READ_ONLY)
