"""The subresource `scale` of custom resources over HTTP, beside what kube-apiserver answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.server.assembly import ApiServer
from tests.apiserver.apiextensions.serving.test_conversion import DEFINITIONS, ask, until
from tests.apiserver.server.in_process import World, run

pytestmark = pytest.mark.slow


ODDS = "/apis/o.io/v1/namespaces/default/odds"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
MISSING = 'the spec replicas field ".spec.replicas" does not exist'


def definition() -> Object:
    number = {"type": "integer"}
    properties = {
        "spec": {"type": "object", "properties": {"replicas": number, "a": {"type": "string"}}},
        "status": {"type": "object", "properties": {"replicas": number}},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
            },
        },
    }
    return {
        "metadata": {"name": "odds.o.io"},
        "spec": {
            "group": "o.io",
            "scope": "Namespaced",
            "names": {"plural": "odds", "kind": "Odd"},
            "versions": [version],
        },
    }


async def prepared(world: World) -> ApiServer:
    """Return a server with the definition, and an object without replicas."""
    server = await world.start()
    status, answer = await ask(world, server, "POST", DEFINITIONS, definition())
    assert status == 201, answer
    await until(world, server, ODDS)
    made = {
        "apiVersion": "o.io/v1",
        "kind": "Odd",
        "metadata": {"name": "x"},
        "spec": {"a": "b"},
    }
    status, answer = await ask(world, server, "POST", ODDS, made)
    assert status == 201, answer
    return server


async def patched(world: World, server: ApiServer, body: Any, media_type: str) -> tuple[int, Any]:
    status, answer = await world.ask(
        server,
        "PATCH",
        f"{ODDS}/x/scale",
        body=json.dumps(body).encode(),
        token="admin-token",
        media_type=media_type,
    )
    return status, json.loads(answer)


def test_a_scale_without_replicas_can_be_written_and_not_read(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await prepared(world)
        status, answer = await ask(world, server, "GET", f"{ODDS}/x/scale")
        assert (status, answer["reason"]) == (500, "InternalError")
        assert answer["message"] == f"Internal error occurred: {MISSING}"
        assert answer["details"] == {"causes": [{"message": MISSING}]}

        status, answer = await patched(world, server, {"metadata": {}}, MERGE)
        assert (status, answer["reason"], answer["message"]) == (
            400,
            "BadRequest",
            'the spec replicas field ".spec.replicas" cannot be empty',
        )
        status, answer = await patched(world, server, {"spec": {"replicas": 3}}, MERGE)
        assert (status, answer.get("spec")) == (200, {"replicas": 3}), answer
        _, found = await ask(world, server, "GET", f"{ODDS}/x")
        assert found["spec"] == {"a": "b", "replicas": 3}
        status, answer = await ask(world, server, "GET", f"{ODDS}/x/scale")
        assert (status, answer["spec"]) == (200, {"replicas": 3})

    run(tmp_path, main)


@pytest.mark.parametrize("replicas", [4, 0])
def test_a_scale_is_put_where_there_was_none(replicas: int, tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await prepared(world)
        scale = {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": "x", "namespace": "default"},
            "spec": {"replicas": replicas},
        }
        status, answer = await ask(world, server, "PUT", f"{ODDS}/x/scale", scale)
        assert status == 200, answer
        _, found = await ask(world, server, "GET", f"{ODDS}/x")
        assert found["spec"] == {"a": "b", "replicas": replicas}

    run(tmp_path, main)


def test_too_few_replicas_are_an_error_of_the_object(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await prepared(world)
        bodies: list[tuple[Any, str]] = [
            ({"spec": {"replicas": -1}}, MERGE),
            ([{"op": "add", "path": "/spec/replicas", "value": -1}], JSON_PATCH),
        ]
        for body, media_type in bodies:
            status, answer = await patched(world, server, body, media_type)
            assert status == 422, answer
            assert answer["message"] == (
                'Odd.o.io "x" is invalid: spec.replicas: Invalid value: -1: should be a'
                " non-negative integer"
            )
            assert answer["details"]["kind"] == "Odd"
        scale = {"metadata": {"name": "x", "namespace": "default"}, "spec": {"replicas": -1}}
        status, answer = await ask(world, server, "PUT", f"{ODDS}/x/scale", scale)
        assert (status, answer["details"]["kind"]) == (422, "Odd")

    run(tmp_path, main)
