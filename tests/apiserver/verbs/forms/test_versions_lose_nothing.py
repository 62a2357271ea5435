"""A write through one version leaves what only another version can say.

For every kind of the table that is served in several versions, and for custom resources: an object
is made through one version, and an annotation is written through another, by every form of write.
What is stored then differs by the annotation alone.
"""

import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.resource import Resource
from tests.apiserver.server.in_process import World, options, run
from tests.apiserver.support.hook_server import HookServer
from tests.apiserver.verbs.forms.version_samples import SAMPLES
from tests.support.waiting import answered

pytestmark = pytest.mark.slow


JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TOUCHED = "example.com/touched"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WAIT_S = 60.0


def _versions_of_kinds() -> dict[str, list[Resource]]:
    """Return the versions of each stored kind that has several, the hub's first."""
    found: dict[str, list[Resource]] = {}
    for row in load():
        if row.storage is not None:
            found.setdefault(row.storage.prefix, []).append(row)
    return {prefix: rows for prefix, rows in found.items() if len(rows) > 1}


KINDS = _versions_of_kinds()


def test_there_is_a_sample_of_every_kind_with_several_versions() -> None:
    assert set(SAMPLES) == set(KINDS)


@dataclass(frozen=True, slots=True)
class Version:
    """A resource at one version."""

    api_version: str
    kind: str
    resource: str
    is_namespaced: bool
    subresources: tuple[str, ...]

    @classmethod
    def of(cls, row: Resource) -> "Version":
        return cls(
            row.group_version, row.kind.kind, row.name, row.is_namespaced, tuple(row.subresources)
        )

    @property
    def path(self) -> str:
        root = "/api" if "/" not in self.api_version else "/apis"
        space = "/namespaces/default" if self.is_namespaced else ""
        return f"{root}/{self.api_version}{space}/{self.resource}"


class Client:
    """Asks the server of a test over one connection."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def ask(
        self, method: str, path: str, body: Any = None, media_type: str = JSON, accept: str = JSON
    ) -> tuple[int, Any]:
        headers = {
            "Content-Type": media_type,
            "Authorization": "Bearer admin-token",
            "Accept": accept,
        }
        async with self._session.request(
            method, self._base + path, json=body, headers=headers
        ) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text.startswith("{") else text

    async def good(
        self, method: str, path: str, body: Any = None, media_type: str = JSON, accept: str = JSON
    ) -> Any:
        status, answer = await self.ask(method, path, body, media_type, accept)
        assert status in (200, 201), f"{method} {path}: {answer}"
        return answer


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[Client]:
    given = options(world.directory, runtime_config={"api/all": "true"})
    server = await world.start(given)
    connector = aiohttp.TCPConnector(ssl=world.context())
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Client(session, f"https://127.0.0.1:{server.port}")


Write = Callable[[Client, Version, str], Awaitable[Any]]


def _annotations(obj: Object) -> dict[str, str]:
    annotations: dict[str, str] = obj["metadata"].setdefault("annotations", {})
    return annotations


async def _put(client: Client, version: Version, path: str) -> None:
    obj = await client.good("GET", path)
    _annotations(obj)[TOUCHED] = "yes"
    await client.good("PUT", path, obj)


async def _json_patch(client: Client, version: Version, path: str) -> None:
    # The annotations are there, or a patch could not add one to them.
    add = {"op": "add", "path": "/metadata/annotations/example.com~1touched", "value": "yes"}
    await client.good("PATCH", path, [add], JSON_PATCH)


def _patch(media_type: str) -> Write:
    async def write(client: Client, version: Version, path: str) -> None:
        await client.good(
            "PATCH", path, {"metadata": {"annotations": {TOUCHED: "yes"}}}, media_type
        )

    return write


async def _apply(client: Client, version: Version, path: str) -> None:
    body = {
        "apiVersion": version.api_version,
        "kind": version.kind,
        "metadata": {"annotations": {TOUCHED: "yes"}},
    }
    await client.good("PATCH", f"{path}?fieldManager=other", body, APPLY)


WRITES: dict[str, Write] = {
    "put": _put,
    "json": _json_patch,
    "merge": _patch(MERGE),
    "strategic": _patch(STRATEGIC),
    "apply": _apply,
}


def _compared(obj: Object) -> Object:
    """Return what has to be the same: without the annotation, and what every write changes."""
    metadata = dict(obj["metadata"])
    for name in ("resourceVersion", "managedFields", "generation", "uid", "name"):
        metadata.pop(name, None)
    metadata["annotations"] = {
        name: text for name, text in metadata["annotations"].items() if name != TOUCHED
    }
    return {**obj, "metadata": metadata}


async def _check(
    client: Client, hub: Version, maker: Version, writer: Version, form: str, below: str, name: str
) -> None:
    """Make an object through one version, write through another, compare in the hub's."""
    sample, status = SAMPLES[hub.resource]
    head = {"apiVersion": hub.api_version, "kind": hub.kind}
    metadata = {"name": name, "annotations": {"kept": "text"}, "labels": {"a": "b"}}
    await client.good("POST", hub.path, {**head, "metadata": metadata, **sample})
    place = f"{hub.path}/{name}"
    if status:
        current = await client.good("GET", place)
        await client.good("PUT", f"{place}/status", {**current, "status": status})
    if maker != hub:  # who made it managed it in another version
        made = await client.good("GET", f"{maker.path}/{name}")
        await client.good("DELETE", place)
        fresh = {**made, "metadata": metadata | {"annotations": _annotations(made)}}
        await client.good("POST", maker.path, fresh)
        if status:
            await client.good("PUT", f"{maker.path}/{name}/status", made | {"metadata": metadata})
    before = await client.good("GET", place)
    path = f"{writer.path}/{name}" + (f"/{below}" if below else "")
    await WRITES[form](client, writer, path)
    after = await client.good("GET", place)
    case = (maker.api_version, writer.api_version, form, below)
    assert _compared(after) == _compared(before), case
    for field, value in sample.items():
        assert set(value) <= set(after[field]) if isinstance(value, dict) else True, case
    if not below:
        assert after["metadata"]["annotations"][TOUCHED] == "yes", case
    await client.ask("DELETE", place)


@pytest.mark.parametrize("prefix", sorted(KINDS))
def test_every_write_leaves_what_it_does_not_name(prefix: str, tmp_path: Path) -> None:
    versions = [Version.of(row) for row in KINDS[prefix]]
    storage = KINDS[prefix][0].storage
    assert storage is not None
    stored = f"{storage.group}/{storage.version}" if storage.group else storage.version
    hub = next(each for each in versions if each.api_version == stored)

    async def main(world: World) -> None:
        async with serving(world) as client:
            number = itertools.count()
            for maker, writer in itertools.permutations(versions, 2):
                for below in ("", *(each for each in writer.subresources if each == "status")):
                    for form in WRITES:
                        name = f"x{next(number)}"
                        await _check(client, hub, maker, writer, form, below, name)

    run(tmp_path, main)


# Custom resources.


def _definition(conversion: Object) -> Object:
    """Return a definition with two versions that have the same fields, status and scale."""
    text = {"type": "string"}
    number = {"type": "integer"}
    spec = {
        "type": "object",
        "properties": {"size": number, "color": text, "parts": {"type": "array", "items": text}},
    }
    root = {
        "type": "object",
        "properties": {
            "spec": spec,
            "status": {"type": "object", "properties": {"size": number, "phase": text}},
        },
    }
    version = {
        "served": True,
        "schema": {"openAPIV3Schema": root},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
        },
    }
    return {
        "metadata": {"name": "boxes.c.com"},
        "spec": {
            "group": "c.com",
            "scope": "Namespaced",
            "names": {"plural": "boxes", "kind": "Box"},
            "versions": [
                {**version, "name": "v1", "storage": True},
                {**version, "name": "v2", "storage": False},
            ],
            "conversion": conversion,
        },
    }


def _renamed(review: Object) -> Object:
    request = review["request"]
    wanted = request["desiredAPIVersion"]
    made = [{**each, "apiVersion": wanted} for each in request["objects"]]
    response = {"uid": request["uid"], "convertedObjects": made, "result": {"status": "Success"}}
    return {"status": 200, "json": {**review, "request": None, "response": response}}


async def _scale_put(client: Client, version: Version, path: str) -> None:
    scale = await client.good("GET", path)
    await client.good("PUT", path, scale)


async def _scale_merge(client: Client, version: Version, path: str) -> None:
    await client.good("PATCH", path, {"spec": {"replicas": 3}}, MERGE)


async def _served(client: Client, path: str) -> None:
    async def is_served() -> bool:
        return (await client.ask("GET", path))[0] == 200

    await answered(is_served, within_s=WAIT_S)


@pytest.mark.parametrize("strategy", ["None", "Webhook"])
def test_every_write_of_a_custom_resource_leaves_what_it_does_not_name(
    strategy: str, tmp_path: Path
) -> None:
    versions = [
        Version(f"c.com/{name}", "Box", "boxes", True, ("status", "scale")) for name in ("v1", "v2")
    ]
    hub = versions[0]
    spec, status = {"size": 3, "color": "red", "parts": ["a", "b"]}, {"size": 2, "phase": "p"}
    forms: list[tuple[str, Write]] = [
        (below, WRITES[form])
        for below in ("", "status")
        for form in ("put", "json", "merge", "apply")
    ]
    forms += [("scale", _scale_put), ("scale", _scale_merge)]

    async def main(world: World, hooks: HookServer) -> None:
        client_config = {"url": hooks.url + "/rename", "caBundle": hooks.ca}
        conversion: Object = {"strategy": strategy}
        if strategy == "Webhook":
            conversion["webhook"] = {
                "clientConfig": client_config,
                "conversionReviewVersions": ["v1"],
            }
        async with serving(world) as client:
            await client.good("POST", DEFINITIONS, _definition(conversion))
            for version in versions:
                await _served(client, version.path)
            for number, ((maker, writer), (below, write)) in enumerate(
                itertools.product(itertools.permutations(versions, 2), forms)
            ):
                name = f"x{number}"
                metadata = {"name": name, "annotations": {"kept": "text"}}
                head = {"apiVersion": maker.api_version, "kind": "Box", "metadata": metadata}
                made = await client.good("POST", maker.path, {**head, "spec": spec})
                await client.good("PUT", f"{maker.path}/{name}/status", {**made, "status": status})
                before = await client.good("GET", f"{hub.path}/{name}")
                assert (before["spec"], before["status"]) == (spec, status)
                await write(
                    client, writer, f"{writer.path}/{name}" + (f"/{below}" if below else "")
                )
                after = await client.good("GET", f"{hub.path}/{name}")
                assert _compared(after) == _compared(before), (maker, writer, below)

    with HookServer() as hooks:
        hooks.answers["/rename"] = _renamed
        run(tmp_path, lambda world: main(world, hooks))


# What the issue tells of autoscalers.


def test_an_annotation_through_v1_leaves_metrics_and_behavior(tmp_path: Path) -> None:
    v2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    v1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    sample, _ = SAMPLES["horizontalpodautoscalers"]
    external = [each for each in sample["spec"]["metrics"] if each["type"] == "External"]

    async def main(world: World) -> None:
        async with serving(world) as client:
            for name, spec in (
                ("all", sample["spec"]),
                ("external", {**sample["spec"], "metrics": external}),
            ):
                await client.good("POST", v2, {"metadata": {"name": name}, "spec": spec})
                shown = await client.good("GET", f"{v1}/{name}")
                assert {each.rpartition("/")[2] for each in shown["metadata"]["annotations"]} == {
                    "metrics",
                    "behavior",
                }
                body = {"metadata": {"annotations": {"a": "b"}}}
                for _ in range(2):
                    await client.good("PATCH", f"{v1}/{name}", body, MERGE)
                kept = await client.good("GET", f"{v2}/{name}")
                assert kept["spec"] == spec
                assert kept["metadata"]["annotations"] == {"a": "b"}

    run(tmp_path, main)


def test_a_row_of_a_table_shows_its_object_whole(tmp_path: Path) -> None:
    v1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    sample, _ = SAMPLES["horizontalpodautoscalers"]

    async def main(world: World) -> None:
        async with serving(world) as client:
            body = {"metadata": {"name": "x"}, "spec": sample["spec"]}
            await client.good("POST", v1.replace("v1", "v2"), body)
            plain = await client.good("GET", f"{v1}/x")
            table = await client.good(
                "GET",
                f"{v1}?includeObject=Object",
                accept="application/json;as=Table;g=meta.k8s.io;v=v1",
            )
            [row] = table["rows"]
            assert row["object"] == plain
            assert row["cells"][0] == "x"

    run(tmp_path, main)
