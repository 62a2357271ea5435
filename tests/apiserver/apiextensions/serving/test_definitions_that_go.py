"""Definitions while their objects are held by finalizers, and what a dry run shows of them."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.server.assembly import ApiServer
from tests.apiserver.apiextensions.serving.test_conversion import DEFINITIONS, WAIT_S, ask, until
from tests.apiserver.apiextensions.serving.test_custom_scales import MERGE, ODDS, prepared
from tests.apiserver.server.in_process import World, run
from tests.support.waiting import answered

pytestmark = pytest.mark.slow

PATH = f"{DEFINITIONS}/odds.o.io"


async def reached(world: World, server: ApiServer, reason: str) -> Any:
    """Return the condition Terminating of the definition once it has a reason."""

    async def read() -> Any:
        _, found = await ask(world, server, "GET", PATH)
        for each in found["status"]["conditions"]:
            if each["type"] == "Terminating" and each["reason"] == reason:
                return each
        return None

    return await answered(read, within_s=WAIT_S)


def test_a_definition_held_by_an_object_says_that_it_is_being_emptied(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await prepared(world)
        held = {"metadata": {"finalizers": ["example.com/held"]}}
        await ask(world, server, "PATCH", f"{ODDS}/x", held, media_type=MERGE)
        status, answer = await ask(world, server, "DELETE", PATH)
        assert status == 200, answer
        condition = await reached(world, server, "InstanceDeletionInProgress")
        assert (condition["status"], condition["message"]) == (
            "True",
            "CustomResource deletion is in progress",
        )
        freed = {"metadata": {"finalizers": None}}
        await ask(world, server, "PATCH", f"{ODDS}/x", freed, media_type=MERGE)

        async def is_gone() -> bool:
            return (await ask(world, server, "GET", PATH))[0] == 404

        await answered(is_gone, within_s=WAIT_S)

    run(tmp_path, main)


def test_a_dry_run_shows_the_generation_that_a_change_would_give(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await prepared(world)
        _, current = await ask(world, server, "GET", PATH)
        _, same = await ask(world, server, "PUT", f"{PATH}?dryRun=All", current)
        assert same["metadata"]["generation"] == 1
        current["spec"]["names"]["shortNames"] = ["od"]
        _, changed = await ask(world, server, "PUT", f"{PATH}?dryRun=All", current)
        assert changed["metadata"]["generation"] == 2
        _, found = await ask(world, server, "GET", PATH)
        assert found["metadata"]["generation"] == 1

    run(tmp_path, main)


def test_deleted_definition_is_freed(tmp_path: Path) -> None:
    """Clusters that test operators create and delete definitions all day."""

    async def main(world: World) -> None:
        server = await prepared(world)
        watched = f"{ODDS}?watch=1&timeoutSeconds=1&resourceVersion=0"
        status, _ = await ask(world, server, "GET", watched)
        assert status == 200
        await ask(world, server, "GET", f"{ODDS}?limit=1")
        collection = server.registry.find(GroupResource("o.io", "odds"))
        assert collection is not None
        left = weakref.ref(collection)
        collection = None
        await ask(world, server, "DELETE", PATH)
        await until(world, server, PATH, 404)

        async def is_freed() -> bool:
            gc.collect()
            return left() is None

        await answered(is_freed, within_s=WAIT_S)

    run(tmp_path, main)
