"""Custom resources that name no kind or version, or others than are served there."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.server.assembly import ApiServer
from tests.apiserver.apiextensions.serving.test_conversion import DEFINITIONS, ask, until
from tests.apiserver.apiextensions.serving.test_custom_scales import (
    JSON_PATCH,
    MERGE,
    ODDS,
    definition,
)
from tests.apiserver.server.in_process import World, run

pytestmark = pytest.mark.slow


NO_VERSION = "the API version in the data () does not match the expected API version (o.io/v1)"


async def prepared(world: World, given: Object | None = None) -> ApiServer:
    server = await world.start()
    status, answer = await ask(world, server, "POST", DEFINITIONS, given or definition())
    assert status == 201, answer
    await until(world, server, ODDS)
    made = odd("x")
    status, answer = await ask(world, server, "POST", ODDS, made)
    assert status == 201, answer
    return server


def odd(name: str, **changes: Any) -> Object:
    found = {
        "apiVersion": "o.io/v1",
        "kind": "Odd",
        "metadata": {"name": name},
        "spec": {"a": "b"},
        **changes,
    }
    return {name: value for name, value in found.items() if value is not None}


def text(obj: Object) -> str:
    return json.dumps(obj)


def missing(obj: Object) -> str:
    return (
        "the object provided is unrecognized (must be of type Odd): Object 'Kind' is missing in"
        f" '{text(obj)}' ({text(obj)[:30]} ...)"
    )


FOO = 'Foo.o.io "{}" is invalid: kind: Invalid value: "Foo": must be Odd'


def other_version(given: str) -> str:
    return NO_VERSION.replace("()", f"({given})")


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"kind": None}, 400, ""),
        ({"kind": None, "apiVersion": None}, 400, ""),
        ({"apiVersion": None}, 400, NO_VERSION),
        ({"apiVersion": "o.io/v2"}, 400, other_version("o.io/v2")),
        ({"apiVersion": "p.io/v1"}, 400, other_version("p.io/v1")),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, 400, other_version("v1")),
        ({"kind": "Foo"}, 422, FOO),
    ],
)
def test_bodies(changes: Object, code: int, message: str, tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await prepared(world)
        new = odd("y", **changes)
        status, answer = await ask(world, server, "POST", ODDS, new)
        assert (status, answer["message"]) == (code, message.format("y") or missing(new))
        if code == 422:
            assert answer["details"] == {
                "name": "y",
                "group": "o.io",
                "kind": "Foo",
                "causes": [
                    {
                        "reason": "FieldValueInvalid",
                        "message": 'Invalid value: "Foo": must be Odd',
                        "field": "kind",
                    }
                ],
            }
        _, found = await ask(world, server, "GET", f"{ODDS}/x")
        put = {**found, **changes}
        put = {name: value for name, value in put.items() if value is not None}
        status, answer = await ask(world, server, "PUT", f"{ODDS}/x", put)
        assert (status, answer["message"]) == (code, message.format("x") or missing(put))
        assert (await ask(world, server, "GET", f"{ODDS}/x"))[1] == found

    run(tmp_path, main)


def test_the_kind_of_a_status_is_that_of_the_object(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await prepared(world)
        _, found = await ask(world, server, "GET", f"{ODDS}/x")
        put = {**found, "kind": "Foo", "status": {"replicas": 3}}
        status, answer = await ask(world, server, "PUT", f"{ODDS}/x/status", put)
        assert (status, answer["kind"], answer["status"]) == (200, "Odd", {"replicas": 3})
        status, answer = await ask(
            world, server, "PUT", f"{ODDS}/x/status", {**put, "apiVersion": "o.io/v2"}
        )
        assert (status, answer["message"]) == (400, other_version("o.io/v2"))

    run(tmp_path, main)


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ({"kind": "Foo"}, 422, FOO.format("x")),
        (
            {"apiVersion": "o.io/v2"},
            422,
            'Odd.o.io "x" is invalid: apiVersion: Invalid value: "o.io/v2": must be o.io/v1',
        ),
        (
            {"apiVersion": "p.io/v1", "kind": "Foo"},
            422,
            'Foo.p.io "x" is invalid: [kind: Invalid value: "Foo": must be Odd, apiVersion: Invalid'
            ' value: "p.io/v1": must be o.io/v1]',
        ),
        (
            {"apiVersion": None},
            500,
            "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion"
            " field'",
        ),
    ],
)
@pytest.mark.parametrize("media_type", [MERGE, JSON_PATCH])
def test_patches(patch: Object, code: int, message: str, media_type: str, tmp_path: Path) -> None:
    body: Any = patch
    if media_type == JSON_PATCH:
        body = [
            {"op": "remove", "path": f"/{name}"}
            if value is None
            else {"op": "replace", "path": f"/{name}", "value": value}
            for name, value in patch.items()
        ]

    async def main(world: World) -> None:
        server = await prepared(world)
        status, answer = await ask(world, server, "PATCH", f"{ODDS}/x", body, media_type=media_type)
        assert (status, answer["message"]) == (code, message)

    run(tmp_path, main)


def test_a_patch_that_takes_the_kind_away(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await prepared(world)
        status, answer = await ask(
            world, server, "PATCH", f"{ODDS}/x", {"kind": None}, media_type=MERGE
        )
        assert status == 422
        [cause] = answer["details"]["causes"]
        assert cause["field"] == "patch"
        assert cause["message"].startswith('Invalid value: "{\\"apiVersion\\":\\"o.io/v1\\",')
        assert ': Object \'Kind\' is missing in \'{"apiVersion":"o.io/v1",' in cause["message"]

    run(tmp_path, main)


def test_rules_are_not_checked_where_there_is_no_name(tmp_path: Path) -> None:
    given = definition()
    [version] = given["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"] = [{"rule": "self.a != 'c'"}]

    async def main(world: World) -> None:
        server = await prepared(world, given)
        status, answer = await ask(
            world, server, "POST", ODDS, odd("", metadata={}, spec={"a": "c"})
        )
        assert status == 422
        assert [each["field"] for each in answer["details"]["causes"]] == [
            "metadata.name",
            "<nil>",
        ]
        assert answer["message"] == (
            'Odd.o.io "" is invalid: [metadata.name: Required value: name or generateName is'
            " required, <nil>: Invalid value: null: some validation rules were not checked because"
            " the object was invalid; correct the existing errors to complete validation]"
        )

    run(tmp_path, main)
