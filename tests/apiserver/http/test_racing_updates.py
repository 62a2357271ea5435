"""PUTs that race: without a resourceVersion the last one wins, and none is refused."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.writes import Writes
from tests.apiserver.support.sites import Api, site

MAPS = "/api/v1/namespaces/a/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/a/deployments"
COUNT = 20


def run(main: Callable[[Api], Awaitable[None]]) -> None:
    async def body() -> None:
        async with site() as api:
            await main(api)

    asyncio.run(body())


def deployment(image: str) -> Object:
    labels = {"a": "b"}
    pod = {"containers": [{"name": "c", "image": image}]}
    return {
        "metadata": {"name": "x", "ownerReferences": [OWNER, OWNER]},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}


@pytest.fixture
def overtaken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often somebody else still writes at the moment at which an object is put back."""
    left = [0]
    replace = Writes.replace

    async def overtaking(
        self: Writes, collection: Any, record: Record, *rest: Any, **more: Any
    ) -> Any:
        if left[0]:
            left[0] -= 1
            other = record.parse()
            other["metadata"].setdefault("annotations", {})["left"] = str(left[0])
            written = await replace(self, collection, record, other)
            assert isinstance(written, Record)
        return await replace(self, collection, record, *rest, **more)

    monkeypatch.setattr(Writes, "replace", overtaking)
    return left


@pytest.mark.parametrize("path", [MAPS, DEPLOYMENTS])
@pytest.mark.parametrize("count", [1, 3])
def test_a_put_without_a_version_is_made_again(path: str, count: int, overtaken: list[int]) -> None:
    def body(number: int) -> Object:
        if path == MAPS:
            return {
                "metadata": {"name": "x", "ownerReferences": [OWNER, OWNER]},
                "data": {"n": str(number)},
            }
        return deployment(f"i:{number}")

    async def main(api: Api) -> None:
        made = await api.ask("POST", path, body(0))
        assert made.status == 201, made.body
        overtaken[0] = count
        answer = await api.ask("PUT", f"{path}/x", body(1))
        assert overtaken == [0]
        assert answer.status == 200, answer.body
        found = answer.json
        assert "annotations" not in found["metadata"]  # it is a PUT: the other's write is replaced
        assert found["data"] == {"n": "1"} if path == MAPS else found["metadata"]["generation"] == 2
        assert len(answer.all("warning")) == 1  # once, however often it was tried

    run(main)


def test_a_scale_without_a_version_is_made_again(overtaken: list[int]) -> None:
    async def main(api: Api) -> None:
        await api.ask("POST", DEPLOYMENTS, deployment("i:1"))
        overtaken[0] = 1
        scale = {"metadata": {"name": "x", "namespace": "a"}, "spec": {"replicas": 7}}
        answer = await api.ask("PUT", f"{DEPLOYMENTS}/x/scale", scale)
        assert (answer.status, answer.json.get("spec")) == (200, {"replicas": 7}), answer.body
        assert overtaken == [0]
        kept = (await api.ask("GET", f"{DEPLOYMENTS}/x")).json
        assert kept["metadata"]["annotations"]["left"] == "0"  # only the replicas are another

    run(main)


def test_a_put_with_a_version_is_refused_when_another_came_first() -> None:
    async def main(api: Api) -> None:
        made = (await api.ask("POST", MAPS, {"metadata": {"name": "x"}})).json
        puts = [
            api.ask("PUT", f"{MAPS}/x", {**made, "data": {"n": str(number)}})
            for number in range(COUNT)
        ]
        answers = await asyncio.gather(*puts)
        assert sorted(each.status for each in answers) == [200] + [409] * (COUNT - 1)

    run(main)
