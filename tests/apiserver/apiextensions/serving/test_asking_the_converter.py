"""When a conversion webhook is asked, and field selectors on what it makes."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.server.assembly import ApiServer
from tests.apiserver.apiextensions.serving.test_conversion import (
    DEFINITIONS,
    ask,
    convert,
    definition,
    lie,
    pair,
    pairs,
    until,
)
from tests.apiserver.server.in_process import World, run
from tests.apiserver.support.hook_server import HookServer

pytestmark = pytest.mark.slow


@pytest.fixture
def hooks() -> Iterator[HookServer]:
    with HookServer() as server:
        server.answers["/convert"] = convert
        yield server


def selectable(hooks: HookServer) -> Object:
    found = definition(hooks)
    for version in found["spec"]["versions"]:
        name = "host" if version["name"] == "v1" else "address"
        version["selectableFields"] = [{"jsonPath": f".spec.{name}"}]
    return found


async def prepared(world: World, given: Object) -> ApiServer:
    server = await world.start()
    status, answer = await ask(world, server, "POST", DEFINITIONS, given)
    assert status == 201, answer
    await until(world, server, pairs("v2"))
    return server


def test_a_get_asks_each_time(tmp_path: Path, hooks: HookServer) -> None:
    def lies(review: Object) -> Object:
        return lie(review, lambda response: response.update(convertedObjects=[]))

    def shouts(review: Object) -> Object:
        def change(response: Object) -> None:
            for each in response["convertedObjects"]:
                each["spec"] = {name: text.upper() for name, text in each["spec"].items()}

        return lie(review, change)

    async def main(world: World) -> None:
        server = await prepared(world, definition(hooks))
        await ask(world, server, "POST", pairs("v1"), pair("v1", "x", host="h", port="1"))
        path = f"{pairs('v2')}/x"
        assert (await ask(world, server, "GET", path))[1]["spec"] == {"address": "h:1"}
        asked = len(hooks.calls)
        assert (await ask(world, server, "GET", path))[1]["spec"] == {"address": "h:1"}
        assert len(hooks.calls) == asked + 1

        hooks.answers["/convert"] = lies
        status, answer = await ask(world, server, "GET", path)
        assert (status, "returned 0 objects" in answer["message"]) == (500, True)
        hooks.answers["/convert"] = shouts
        assert (await ask(world, server, "GET", path))[1]["spec"] == {"address": "H:1"}
        hooks.answers["/convert"] = convert
        assert (await ask(world, server, "GET", path))[1]["spec"] == {"address": "h:1"}

        # Who is content with what a cache has, and lists, see what was converted before.
        hooks.answers["/convert"] = lies
        status, answer = await ask(world, server, "GET", f"{path}?resourceVersion=0")
        assert (status, answer["spec"]) == (200, {"address": "h:1"})
        status, answer = await ask(world, server, "GET", pairs("v2"))
        assert [each["spec"] for each in answer["items"]] == [{"address": "h:1"}]

    run(tmp_path, main)


def test_a_write_asks_each_time_and_holds_nothing(tmp_path: Path, hooks: HookServer) -> None:
    async def main(world: World) -> None:
        server = await prepared(world, definition(hooks))
        await ask(world, server, "POST", pairs("v1"), pair("v1", "x", host="h", port="1"))
        for number in range(2):  # the manager of v1 is compared in v1
            body = {"metadata": {"labels": {"n": str(number)}}}
            for version in ("v2", "v1"):
                status, answer = await ask(
                    world,
                    server,
                    "PATCH",
                    f"{pairs(version)}/x",
                    body,
                    media_type="application/merge-patch+json",
                )
                assert status == 200, answer
        row = next(each for each in server.definitions._served["pairs.c.com"].rows)
        assert row.converter is not None
        assert row.converter._held == {}  # type: ignore[attr-defined]
        found = await ask(world, server, "GET", f"{pairs('v1')}/x")
        assert found[1]["spec"] == {"host": "h", "port": "1"}

    run(tmp_path, main)


def test_a_bundle_may_hold_more_than_certificates(tmp_path: Path, hooks: HookServer) -> None:
    given = definition(hooks)
    client = given["spec"]["conversion"]["webhook"]["clientConfig"]
    broken = b"-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n"
    bundle = "# autorité é\n".encode() + broken + b64decode(hooks.ca)
    client["caBundle"] = b64encode(bundle).decode()

    async def main(world: World) -> None:
        server = await prepared(world, given)
        await ask(world, server, "POST", pairs("v1"), pair("v1", "x", host="h", port="1"))
        status, answer = await ask(world, server, "GET", f"{pairs('v2')}/x")
        assert (status, answer["spec"]) == (200, {"address": "h:1"})

    run(tmp_path, main)


async def names(world: World, server: ApiServer, version: str, query: str) -> list[str]:
    status, answer = await ask(world, server, "GET", f"{pairs(version)}?{query}")
    assert status == 200, answer
    return [each["metadata"]["name"] for each in answer["items"]]


def test_field_selectors_are_about_the_version_of_the_request(
    tmp_path: Path, hooks: HookServer
) -> None:
    async def main(world: World) -> None:
        server = await prepared(world, selectable(hooks))
        for number in range(6):
            made = pair("v1", f"x{number}", host="ab"[number % 2], port="1")
            await ask(world, server, "POST", pairs("v1"), made)
        odd = ["x1", "x3", "x5"]
        assert await names(world, server, "v1", "fieldSelector=spec.host%3Db") == odd
        assert await names(world, server, "v2", "fieldSelector=spec.address%3Db:1") == odd
        assert await names(world, server, "v2", "fieldSelector=spec.address%3Db:2") == []
        assert await names(world, server, "v2", "fieldSelector=spec.address!%3Db:1") == [
            "x0",
            "x2",
            "x4",
        ]
        some = "fieldSelector=spec.address%3Db:1,metadata.name%3Dx3"
        assert await names(world, server, "v2", some) == ["x3"]
        pages, token = [], ""
        while True:
            query = f"fieldSelector=spec.address%3Db:1&limit=2&continue={token}"
            _, answer = await ask(world, server, "GET", f"{pairs('v2')}?{query}")
            pages.append([each["metadata"]["name"] for each in answer["items"]])
            token = answer["metadata"].get("continue", "")
            if not token:
                break
        assert pages == [["x1", "x3"], ["x5"]]

        query = "fieldSelector=spec.address%3Db:1"
        status, gone = await ask(world, server, "DELETE", f"{pairs('v2')}?{query}")
        assert (status, [each["metadata"]["name"] for each in gone["items"]]) == (200, odd)
        assert await names(world, server, "v1", "") == ["x0", "x2", "x4"]

    run(tmp_path, main)


def test_a_collection_that_cannot_be_converted_is_not_deleted(
    tmp_path: Path, hooks: HookServer
) -> None:
    async def main(world: World) -> None:
        server = await prepared(world, selectable(hooks))
        await ask(world, server, "POST", pairs("v1"), pair("v1", "x", host="a", port="1"))
        hooks.answers["/convert"] = {"status": 500, "text": "no"}
        status, _ = await ask(world, server, "DELETE", pairs("v2"))
        assert status == 500
        assert await names(world, server, "v1", "") == ["x"]

    run(tmp_path, main)


def test_a_watch_selects_by_the_fields_of_its_version(tmp_path: Path, hooks: HookServer) -> None:
    async def main(world: World) -> None:
        server = await prepared(world, selectable(hooks))
        await ask(world, server, "POST", pairs("v1"), pair("v1", "x", host="a", port="1"))
        await ask(world, server, "POST", pairs("v1"), pair("v1", "y", host="b", port="1"))
        _, listed = await ask(world, server, "GET", pairs("v2"))
        for name, host in (("y", "a"), ("x", "b"), ("y", "b"), ("z", "a")):
            spec = {"spec": {"host": host}}
            if name == "z":
                made = pair("v1", "z", host=host, port="1")
                status, answer = await ask(world, server, "POST", pairs("v1"), made)
                assert status == 201, answer
                continue
            status, answer = await ask(
                world,
                server,
                "PATCH",
                f"{pairs('v1')}/{name}",
                spec,
                media_type="application/merge-patch+json",
            )
            assert status == 200, answer
        version = listed["metadata"]["resourceVersion"]
        changes = await watched(world, server, f"resourceVersion={version}")
        assert changes == [
            ("ADDED", "y", "a:1"),
            ("DELETED", "x", "a:1"),
            ("DELETED", "y", "a:1"),
            ("ADDED", "z", "a:1"),
        ]
        assert await watched(world, server, "") == [("ADDED", "z", "a:1")]

    run(tmp_path, main)


async def watched(world: World, server: ApiServer, query: str) -> list[tuple[str, str, str]]:
    """Return what a watch of v2 that selects an address tells within a second."""
    selector = f"fieldSelector=spec.address%3Da:1&watch=1&timeoutSeconds=1&{query}"
    _, body = await world.ask(server, "GET", f"{pairs('v2')}?{selector}", token="admin-token")
    told = [json.loads(line) for line in body.splitlines() if line]
    return [
        (each["type"], each["object"]["metadata"]["name"], each["object"]["spec"]["address"])
        for each in told
    ]
