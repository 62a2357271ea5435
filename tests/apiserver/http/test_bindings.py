"""A pod is bound as this server knows it; only the store's word refuses."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from tests.apiserver.support.sites import Api, KeptAnswer, site
from tests.apiserver.support.virtual_time import run

PODS = "/api/v1/namespaces/a/pods"
GATES = [{"name": "example.com/wait"}]


def run_story(story: Callable[[Api], Awaitable[None]]) -> None:
    """Run a story on a site."""

    async def main() -> None:
        async with site() as api:
            await story(api)

    run(main())


async def make_pod(api: Api, **spec: Any) -> None:
    """Store a pod, which the copy then knows."""
    containers = [{"name": "c", "image": "image:1"}]
    body = {"metadata": {"name": "x"}, "spec": {"containers": containers, **spec}}
    made = await api.ask("POST", PODS, body)
    assert made.status == 201, made.json
    await api.world.settle()


async def bind(api: Api, query: str = "") -> KeptAnswer:
    body = {"metadata": {"name": "x"}, "target": {"kind": "Node", "name": "n1"}}
    return await api.ask("POST", f"{PODS}/x/binding{query}", body)


async def change_behind(api: Api, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the pod as another server would: the copy has not heard of it."""
    store = api.world.store
    [found] = (await store.range(b"/registry/pods/", b"/registry/pods0")).kvs
    pod = orjson.loads(found.value)
    change(pod)
    await store.put(found.key, orjson.dumps(pod))
    store.calls.clear()


def test_a_pod_that_is_known_is_not_read_again() -> None:
    async def story(api: Api) -> None:
        await make_pod(api)
        api.world.store.calls.clear()
        assert (await bind(api)).status == 201
        assert api.world.store.calls == ["txn"]
        found = (await api.ask("GET", f"{PODS}/x")).json
        assert found["spec"]["nodeName"] == "n1"

    run_story(story)


def test_nothing_is_refused_by_a_guess() -> None:
    def open_gates(pod: dict[str, Any]) -> None:
        del pod["spec"]["schedulingGates"]

    async def story(api: Api) -> None:
        await make_pod(api, schedulingGates=GATES)
        refused = await bind(api)
        assert (refused.status, refused.json["reason"]) == (409, "Conflict")
        await change_behind(api, open_gates)
        assert (await bind(api)).status == 201
        assert api.world.store.calls == ["get", "txn"]

    run_story(story)


def test_a_pod_that_another_server_bound_is_not_bound_again() -> None:
    def take(pod: dict[str, Any]) -> None:
        pod["spec"]["nodeName"] = "n2"

    async def story(api: Api) -> None:
        await make_pod(api)
        await change_behind(api, take)
        refused = await bind(api)
        assert refused.status == 409
        assert 'is already assigned to node "n2"' in refused.json["message"]
        await api.world.settle()
        assert (await api.ask("GET", f"{PODS}/x")).json["spec"]["nodeName"] == "n2"

    run_story(story)


def test_a_dry_run_is_of_what_is_stored() -> None:
    def take(pod: dict[str, Any]) -> None:
        pod["spec"]["nodeName"] = "n2"

    async def story(api: Api) -> None:
        await make_pod(api)
        await change_behind(api, take)
        assert (await bind(api, "?dryRun=All")).status == 409

    run_story(story)
