"""Definitions whose versions a webhook converts, over HTTP and a store in memory."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.server.assembly import ApiServer
from tests.apiserver.server.in_process import World, run
from tests.apiserver.support.hook_server import HookServer
from tests.support.waiting import answered

pytestmark = pytest.mark.slow


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WAIT_S = 60.0
STEP_S = 0.01


def pairs(version: str) -> str:
    return f"/apis/c.com/{version}/namespaces/default/pairs"


@pytest.fixture
def hooks() -> Iterator[HookServer]:
    with HookServer() as server:
        server.answers["/convert"] = convert
        yield server


def convert(review: Object) -> Object:
    """Join or split: v1 has spec.host and spec.port, v2 has spec.address."""
    request = review["request"]
    made = [converted(each, request["desiredAPIVersion"]) for each in request["objects"]]
    response = {"uid": request["uid"], "convertedObjects": made, "result": {"status": "Success"}}
    return {"status": 200, "json": {**review, "request": None, "response": response}}


def converted(obj: Object, api_version: str) -> Object:
    spec = dict(obj["spec"])
    if api_version.endswith("v2"):
        new = {"address": f"{spec.get('host')}:{spec.get('port')}"}
    else:
        host, _, port = spec.get("address", "").partition(":")
        new = {"host": host, "port": port}
    return {**obj, "apiVersion": api_version, "spec": new}


def definition(
    hooks: HookServer,
    stored: str = "v1",
    path: str = "/convert",
    served: tuple[str, ...] = ("v1", "v2"),
) -> Object:
    text = {"type": "string"}
    schemas = {"v1": {"host": text, "port": {**text, "default": "80"}}, "v2": {"address": text}}
    versions = [
        {
            "name": name,
            "served": name in served,
            "storage": name == stored,
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": properties, "default": {}}
                    },
                }
            },
        }
        for name, properties in schemas.items()
    ]
    webhook = {
        "clientConfig": {"url": hooks.url + path, "caBundle": hooks.ca},
        "conversionReviewVersions": ["v1"],
    }
    return {
        "metadata": {"name": "pairs.c.com"},
        "spec": {
            "group": "c.com",
            "scope": "Namespaced",
            "names": {"plural": "pairs", "kind": "Pair"},
            "versions": versions,
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    }


async def ask(
    world: World, server: ApiServer, method: str, path: str, obj: Any = None, **more: Any
) -> Any:
    body = b"" if obj is None else json.dumps(obj).encode()
    status, answer = await world.ask(server, method, path, body=body, token="admin-token", **more)
    return status, json.loads(answer) if answer.startswith(b"{") else answer


async def until(world: World, server: ApiServer, path: str, expected: int = 200) -> Any:
    async def read() -> tuple[Any] | None:
        status, found = await ask(world, server, "GET", path)
        return (found,) if status == expected else None

    return (await answered(read, within_s=WAIT_S))[0]


def pair(version: str, name: str, **spec: str) -> Object:
    return {
        "apiVersion": f"c.com/{version}",
        "kind": "Pair",
        "metadata": {"name": name, "labels": {"a": "b"}},
        "spec": spec,
    }


def test_every_verb_goes_through_the_version_that_is_asked_for(
    tmp_path: Path, hooks: HookServer
) -> None:
    async def main(world: World) -> None:
        server = await world.start()
        status, answer = await ask(world, server, "POST", DEFINITIONS, definition(hooks))
        assert status == 201, answer
        await until(world, server, pairs("v2"))
        status, made = await ask(world, server, "POST", pairs("v2"), pair("v2", "x", address="h:1"))
        assert (status, made["apiVersion"], made["spec"]) == (201, "c.com/v2", {"address": "h:1"})
        assert await _spec(world, server, "v1", "x") == {"host": "h", "port": "1"}
        assert await _spec(world, server, "v2", "x") == {"address": "h:1"}
        made["spec"]["address"] = "i:2"
        status, changed = await ask(world, server, "PUT", f"{pairs('v2')}/x", made)
        assert (status, changed["spec"], changed["metadata"]["generation"]) == (
            200,
            {"address": "i:2"},
            2,
        )
        status, same = await ask(world, server, "PUT", f"{pairs('v2')}/x", changed)
        assert same["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
        await ask(world, server, "POST", pairs("v1"), pair("v1", "y", host="j"))
        _, listed = await ask(world, server, "GET", pairs("v2"))
        assert listed["kind"] == "PairList"
        assert [each["spec"]["address"] for each in listed["items"]] == ["i:2", "j:80"]
        dry = f"{pairs('v2')}/x?dryRun=All"
        status, gone = await ask(world, server, "DELETE", dry)
        assert status == 200, gone
        status, gone = await ask(world, server, "DELETE", pairs("v2"))
        assert {each["apiVersion"] for each in gone["items"]} == {"c.com/v2"}
        _, page = await ask(world, server, "GET", "/metrics")
        told = 'crd_name="pairs.c.com",from_version="v1",succeeded="true",to_version="v2"'
        assert f"apiserver_crd_conversion_webhook_duration_seconds_count{{{told}}}".encode() in page
        told = 'failure_type="",result="success"'
        assert f"apiserver_conversion_webhook_request_total{{{told}}}".encode() in page
        assert (await ask(world, server, "GET", pairs("v1")))[1]["items"] == []

    run(tmp_path, main)


async def _created(world: World, server: ApiServer) -> None:
    """Create an object once the definition is served again."""
    status = 404
    while status == 404:
        await until(world, server, pairs("v2"))
        made = pair("v2", "y", address="i:2")
        status, _ = await ask(world, server, "POST", pairs("v2"), made)


async def _spec(world: World, server: ApiServer, version: str, name: str) -> Any:
    status, found = await ask(world, server, "GET", f"{pairs(version)}/{name}")
    assert status == 200, found
    assert found["apiVersion"] == f"c.com/{version}"
    return found["spec"]


def test_what_was_stored_in_another_version_stays_until_it_is_written(
    tmp_path: Path, hooks: HookServer
) -> None:
    async def main(world: World) -> None:
        server = await world.start()
        await ask(world, server, "POST", DEFINITIONS, definition(hooks))
        await until(world, server, pairs("v2"))
        await ask(world, server, "POST", pairs("v1"), pair("v1", "x", host="h", port="1"))
        _, current = await ask(world, server, "GET", f"{DEFINITIONS}/pairs.c.com")
        current["spec"]["versions"] = definition(hooks, "v2")["spec"]["versions"]
        status, answer = await ask(world, server, "PUT", f"{DEFINITIONS}/pairs.c.com", current)
        assert status == 200, answer
        await asyncio.wait_for(_created(world, server), WAIT_S)
        assert await _spec(world, server, "v2", "x") == {"address": "h:1"}
        assert await _spec(world, server, "v1", "x") == {"host": "h", "port": "1"}
        assert await _spec(world, server, "v1", "y") == {"host": "i", "port": "2"}
        _, found = await ask(world, server, "GET", f"{pairs('v1')}/x")
        status, moved = await ask(world, server, "PUT", f"{pairs('v1')}/x", found)
        assert status == 200
        assert moved["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]
        stored = await world.store.get(b"/registry/c.com/pairs/default/x")
        assert stored.kv is not None
        assert json.loads(stored.kv.value)["apiVersion"] == "c.com/v2"

    run(tmp_path, main)


LIES: list[tuple[Any, str]] = [
    (lambda response: response.update(uid="z"), 'expected response.uid="'),
    (lambda response: response.update(convertedObjects=[]), "returned 0 objects, expected 1"),
    (
        lambda response: response.update(result={"status": "Failed", "message": "no"}),
        "conversion webhook for c.com/v2, Kind=Pair failed: no",
    ),
    (
        lambda response: response.update(result={"status": "Failed"}),
        "response.result.status was 'Failed', not 'Success'",
    ),
    (
        lambda response: response["convertedObjects"][0]["metadata"].update(name="z"),
        "must have the same name: x != z",
    ),
    (
        lambda response: response["convertedObjects"][0].update(apiVersion="c.com/v3"),
        "invalid groupVersion (expected c.com/v1, received c.com/v3)",
    ),
    (
        lambda response: response["convertedObjects"][0].pop("metadata"),
        "missing metadata in converted object",
    ),
]


def test_a_webhook_that_lies_is_reported(tmp_path: Path, hooks: HookServer) -> None:
    async def main(world: World) -> None:
        server = await world.start()
        await ask(world, server, "POST", DEFINITIONS, definition(hooks))
        await until(world, server, pairs("v2"))
        for change, told in LIES:
            hooks.answers["/convert"] = partial(lie, change=change)
            status, answer = await ask(
                world, server, "POST", pairs("v2"), pair("v2", "x", address="h:1")
            )
            assert (status, answer["status"]) == (500, "Failure")
            assert told in answer["message"]

    run(tmp_path, main)


def lie(review: Object, change: Any) -> Object:
    answer = convert(review)
    change(answer["json"]["response"])
    return answer


def test_the_stored_version_need_not_be_served(tmp_path: Path, hooks: HookServer) -> None:
    async def main(world: World) -> None:
        server = await world.start()
        await ask(world, server, "POST", DEFINITIONS, definition(hooks, served=("v2",)))
        await until(world, server, pairs("v2"))
        made = pair("v2", "x", address="h:1")
        status, answer = await ask(world, server, "POST", pairs("v2"), made)
        assert (status, answer["spec"]) == (201, {"address": "h:1"})
        assert (await ask(world, server, "GET", pairs("v1")))[0] == 404
        stored = await world.store.get(b"/registry/c.com/pairs/default/x")
        assert stored.kv is not None
        assert json.loads(stored.kv.value)["spec"] == {"host": "h", "port": "1"}

    run(tmp_path, main)


def test_watches_and_applies_of_a_version_that_is_not_stored(
    tmp_path: Path, hooks: HookServer
) -> None:
    async def main(world: World) -> None:
        server = await world.start()
        await ask(world, server, "POST", DEFINITIONS, definition(hooks))
        await until(world, server, pairs("v2"))
        await ask(world, server, "POST", pairs("v1"), pair("v1", "x", host="h", port="1"))
        watch = f"{pairs('v2')}?watch=1&timeoutSeconds=2&resourceVersion=0"
        watching = asyncio.create_task(world.ask(server, "GET", watch, token="admin-token"))
        applied = pair("v2", "x", address="i:2")
        path = f"{pairs('v2')}/x?fieldManager=me&force=true"
        status, answer = await world.ask(
            server,
            "PATCH",
            path,
            body=json.dumps(applied).encode(),
            token="admin-token",
            media_type="application/apply-patch+yaml",
        )
        assert status == 200, answer
        assert json.loads(answer)["spec"] == {"address": "i:2"}
        await ask(world, server, "DELETE", f"{pairs('v1')}/x")
        _, body = await watching
        events = [json.loads(line) for line in body.splitlines() if line]
        told = [(each["type"], each["object"]["spec"]["address"]) for each in events]
        assert told == [("ADDED", "h:1"), ("MODIFIED", "i:2"), ("DELETED", "i:2")]
        assert {each["object"]["apiVersion"] for each in events} == {"c.com/v2"}

    run(tmp_path, main)
