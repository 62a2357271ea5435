"""Custom resources from their definition to its end, over HTTP and a store in memory."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.server.assembly import ApiServer
from tests.apiserver.server.in_process import World, run
from tests.support.waiting import answered

pytestmark = pytest.mark.slow

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TABS = "/apis/e.com/v1/namespaces/default/tabs"
WAIT_S = 60.0
STEP_S = 0.01


def definition(**spec: Object) -> Object:
    """Return the definition of tabs.e.com."""
    properties: Object = {
        "spec": {"type": "object", "properties": spec},
        "status": {"type": "object"},
    }
    return {
        "metadata": {"name": "tabs.e.com"},
        "spec": {
            "group": "e.com",
            "scope": "Namespaced",
            "names": {"plural": "tabs", "kind": "Tab"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                    "subresources": {
                        "scale": {
                            "specReplicasPath": ".spec.n",
                            "statusReplicasPath": ".status.n",
                        }
                    },
                }
            ],
        },
    }


async def ask(world: World, server: ApiServer, method: str, path: str, obj: Any = None) -> Any:
    """Return the status of an answer and its object."""
    body = b"" if obj is None else json.dumps(obj).encode()
    status, answer = await world.ask(server, method, path, body=body, token="admin-token")
    return status, json.loads(answer) if answer.startswith(b"{") else answer


async def until(
    world: World, server: ApiServer, path: str, is_so: Callable[[int, Any], bool]
) -> Any:
    """Return the object at a path when it is as it should be."""

    async def read() -> tuple[Any] | None:
        status, found = await ask(world, server, "GET", path)
        return (found,) if is_so(status, found) else None

    return (await answered(read, within_s=WAIT_S))[0]


async def establish(world: World, server: ApiServer, made: Object) -> None:
    status, answer = await ask(world, server, "POST", DEFINITIONS, made)
    assert status == 201, answer
    await until(world, server, TABS, lambda status, _: status == 200)


def tab(name: str, **spec: Any) -> Object:
    return {"apiVersion": "e.com/v1", "kind": "Tab", "metadata": {"name": name}, "spec": spec}


def test_a_definition_from_its_begin_to_its_end(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await world.start()
        number: Object = {"type": "integer", "minimum": 1, "default": 3}
        await establish(world, server, definition(n=number))
        status, made = await ask(world, server, "POST", TABS, tab("a", z=1))
        assert (status, made["spec"]) == (201, {"n": 3})
        status, refused = await ask(world, server, "POST", TABS, tab("b", n=0))
        assert (status, refused["reason"]) == (422, "Invalid")
        listed = await world.object(server, TABS)
        assert (listed["kind"], [each["metadata"]["name"] for each in listed["items"]]) == (
            "TabList",
            ["a"],
        )
        scale = await world.object(server, f"{TABS}/a/scale")
        scale["spec"]["replicas"] = 5
        status, _ = await ask(world, server, "PUT", f"{TABS}/a/scale", scale)
        assert status == 200
        assert (await world.object(server, f"{TABS}/a"))["spec"] == {"n": 5}
        names = {
            each["name"] for each in (await world.object(server, "/apis/e.com/v1"))["resources"]
        }
        assert names == {"tabs", "tabs/scale"}
        published = await world.object(server, "/openapi/v3/apis/e.com/v1")
        own = published["components"]["schemas"]["com.e.v1.Tab"]
        assert own["properties"]["spec"]["properties"]["n"] == number
        assert (await world.get(server, "/openapi/v2"))[0] == 200
        await _check_end(world, server)

    run(tmp_path, main)


async def _check_end(world: World, server: ApiServer) -> None:
    """The objects of a definition go before it, and those with finalizers hold it."""
    held = tab("held", n=1)
    held["metadata"]["finalizers"] = ["e.com/x"]
    assert (await ask(world, server, "POST", TABS, held))[0] == 201
    status, going = await ask(world, server, "DELETE", f"{DEFINITIONS}/tabs.e.com")
    assert status == 200
    assert going["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    await until(world, server, f"{TABS}/a", lambda status, _: status == 404)
    found = await until(
        world,
        server,
        f"{TABS}/held",
        lambda status, obj: status == 200 and "deletionTimestamp" in obj["metadata"],
    )
    assert (await ask(world, server, "POST", TABS, tab("late", n=1)))[0] == 403
    found["metadata"].pop("finalizers")
    assert (await ask(world, server, "PUT", f"{TABS}/held", found))[0] == 200
    await until(world, server, f"{DEFINITIONS}/tabs.e.com", lambda status, _: status == 404)
    await until(world, server, "/apis/e.com", lambda status, _: status == 404)


def test_an_operator_that_has_gone_does_not_hold_its_definition(tmp_path: Path) -> None:
    """Its webhook would be asked about deletes of its objects, and there is nobody to answer."""

    async def main(world: World) -> None:
        server = await world.start()
        await establish(world, server, definition(n={"type": "integer"}))
        assert (await ask(world, server, "POST", TABS, tab("a", n=1)))[0] == 201
        rule = {
            "apiGroups": ["e.com"],
            "apiVersions": ["*"],
            "operations": ["DELETE"],
            "resources": ["*"],
        }
        hook = {
            "name": "gone.e.com",
            "clientConfig": {"service": {"namespace": "default", "name": "gone"}},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        made = {"metadata": {"name": "gone"}, "webhooks": [hook]}
        assert (await ask(world, server, "POST", hooks, made))[0] == 201
        assert (await ask(world, server, "DELETE", f"{TABS}/a"))[0] == 500
        assert (await ask(world, server, "DELETE", f"{DEFINITIONS}/tabs.e.com"))[0] == 200
        await until(world, server, f"{DEFINITIONS}/tabs.e.com", lambda status, _: status == 404)

    run(tmp_path, main)


def test_a_definition_none_of_whose_versions_is_served_goes(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await world.start()
        await establish(world, server, definition(n={"type": "integer"}))
        assert (await ask(world, server, "POST", TABS, tab("a", n=1)))[0] == 201
        stored = await world.object(server, f"{DEFINITIONS}/tabs.e.com")
        stored["spec"]["versions"][0]["served"] = False
        status, answer = await ask(world, server, "PUT", f"{DEFINITIONS}/tabs.e.com", stored)
        assert status == 200, answer
        await until(world, server, TABS, lambda status, _: status == 404)
        assert (await ask(world, server, "DELETE", f"{DEFINITIONS}/tabs.e.com"))[0] == 200
        await until(world, server, f"{DEFINITIONS}/tabs.e.com", lambda status, _: status == 404)
        assert (await server.registry.store.get(b"/registry/e.com/tabs/default/a")).kv is None

    run(tmp_path, main)


def test_what_is_stored_is_served_by_the_next_server(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        first = await world.start()
        await establish(world, first, definition(a={"type": "string"}, b={"type": "string"}))
        assert (await ask(world, first, "POST", TABS, tab("a", a="1", b="2")))[0] == 201
        second = await world.start()
        assert (await world.object(second, f"{TABS}/a"))["spec"] == {"a": "1", "b": "2"}
        assert (await ask(world, second, "POST", TABS, tab("b", a="1")))[0] == 201
        assert (await world.object(first, f"{TABS}/b"))["spec"] == {"a": "1"}
        stored = await world.object(first, f"{DEFINITIONS}/tabs.e.com")
        schema = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["spec"]["properties"] = {"b": {"type": "string", "default": "new"}}
        assert (await ask(world, first, "PUT", f"{DEFINITIONS}/tabs.e.com", stored))[0] == 200
        for server in (first, second):
            for name, expected in (("a", {"b": "2"}), ("b", {"b": "new"})):
                await until(
                    world,
                    server,
                    f"{TABS}/{name}",
                    lambda _, obj, expected=expected: obj["spec"] == expected,  # type: ignore[misc]
                )

    run(tmp_path, main)


def test_what_only_a_version_knows_raises_the_generation(tmp_path: Path) -> None:
    """Though the stored version keeps nothing of it."""

    async def main(world: World) -> None:
        server = await world.start()
        made = definition(n={"type": "integer"})
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        loose = {"name": "v2", "served": True, "schema": {"openAPIV3Schema": anything}}
        made["spec"]["versions"].append({**loose, "storage": False})
        await establish(world, server, made)
        status, stored = await ask(world, server, "POST", TABS, tab("a", n=1))
        assert status == 201, stored
        path = f"{TABS}/a".replace("/v1/", "/v2/")
        for more, generation in (({"z": 1}, 2), ({}, 2)):
            _, seen = await ask(world, server, "GET", path)
            seen["spec"] |= more
            status, told = await ask(world, server, "PUT", path, seen)
            assert status == 200, told
            assert (told["spec"], told["metadata"]["generation"]) == ({"n": 1}, generation)

    run(tmp_path, main)


def test_a_root_that_keeps_unknown_fields_is_an_object_in_version_two(tmp_path: Path) -> None:
    """And no more: old clients complain of what they are told nothing of otherwise."""

    async def main(world: World) -> None:
        server = await world.start()
        made = definition(
            free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            null={"type": "string", "nullable": True},
        )
        (version,) = made["spec"]["versions"]
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] = ["free", "null"]
        loose = {
            "name": "v2",
            "served": True,
            "storage": False,
            "schema": {
                "openAPIV3Schema": {
                    "description": "anything",
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"spec": {"type": "object"}},
                }
            },
        }
        made["spec"]["versions"].append(loose)
        await establish(world, server, made)
        definitions = (await world.object(server, "/openapi/v2"))["definitions"]
        assert definitions["com.e.v2.Tab"] == {
            "type": "object",
            "x-kubernetes-group-version-kind": [{"group": "e.com", "kind": "Tab", "version": "v2"}],
        }
        assert definitions["com.e.v1.Tab"]["properties"]["spec"] == {
            "type": "object",
            "properties": {"free": {"x-kubernetes-preserve-unknown-fields": True}, "null": {}},
            "required": ["free"],
        }
        three = await world.object(server, "/openapi/v3/apis/e.com/v2")
        own = three["components"]["schemas"]["com.e.v2.Tab"]
        assert own["x-kubernetes-preserve-unknown-fields"] is True
        assert "spec" in own["properties"]

    run(tmp_path, main)
