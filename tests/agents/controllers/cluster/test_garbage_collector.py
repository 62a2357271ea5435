"""What the garbage collector asks of the server."""

from typing import TYPE_CHECKING, Any

import pytest

from kvstack.agents.client.built_in import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, EVENTS
from kvstack.agents.client.discovery import Discovery, ServedResource
from kvstack.agents.controllers.cluster.garbage.collector import GarbageCollector
from kvstack.agents.reconcile.plan import (
    Action,
    Again,
    Delete,
    Discover,
    Enqueue,
    Follow,
    Get,
    Later,
    Patch,
    Retry,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from tests.agents.controllers.cluster.test_garbage_graph import reference, thing
from tests.agents.support.plans import Answer, drive, refusal, view_of

if TYPE_CHECKING:
    from kvstack.apimachinery.objects.status import ApiError


ALL = frozenset(("delete", "list", "watch"))
VIEW = view_of({CUSTOM_RESOURCE_DEFINITIONS: ()})


class World:
    """A collector and what the server has."""

    def __init__(
        self, *objects: Object, unread_kinds: frozenset[tuple[str, str]] = frozenset()
    ) -> None:
        self.collector = GarbageCollector(unread_kinds)
        served = [ServedResource(resource, ALL, True) for resource in (CONFIG_MAPS, EVENTS)]
        self.found = Discovery(served)
        self.objects = {each["metadata"]["name"]: each for each in objects}
        self.refusals: dict[type, ApiError] = {}
        asked, again = drive(self.collector.reconcile("discovery", VIEW, 0.0), self.answer)
        assert again == Again(30.0, is_routine=True, rests_s=600.0)
        follow = asked[1]
        assert isinstance(follow, Follow)
        assert follow.resources == {CONFIG_MAPS}  # Events are nobody's property
        self.keys = follow.keys
        for each in objects:
            list(self.keys(CONFIG_MAPS, None, each, VIEW))

    def answer(self, action: Action) -> Answer:
        if isinstance(action, Discover):
            return {"found": self.found}
        if type(action) in self.refusals:
            return self.refusals.pop(type(action))
        if isinstance(action, Get):
            return self.objects.get(action.name, refusal(404))
        return {}

    def look_at(self, key: str) -> tuple[list[Action], Again | Retry | None]:
        asked, again = drive(self.collector.reconcile(key, VIEW, 0.0), self.answer)
        return [each for each in asked if not isinstance(each, Get)], again


def stored(name: str, *owners: str, **meta: Any) -> Object:
    return thing(name, *owners, resourceVersion="7", **meta)


def deletion(name: str, propagation: str = "Background", version: str = "7") -> Delete:
    return Delete(
        CONFIG_MAPS,
        "n",
        name,
        uid=f"u-{name}",
        resource_version=version,
        propagation=propagation,
    )


def test_without_owners_it_stays() -> None:
    assert World(stored("a")).look_at("delete/u-a") == ([], None)


def test_with_a_living_owner_it_stays() -> None:
    assert World(stored("a"), stored("b", "a")).look_at("delete/u-b") == ([], None)


def test_without_a_living_owner_it_goes() -> None:
    """The uid of the owner counts, not its name."""
    world = World(stored("b", "a"))
    world.objects["a"] = stored("a", uid="another")
    assert world.look_at("delete/u-b") == ([deletion("b")], None)


def test_an_owner_of_a_kind_that_was_not_copied_is_not_taken_as_gone() -> None:
    unread = frozenset((("", "configmaps"),))
    assert World(stored("b", "a"), unread_kinds=unread).look_at("delete/u-b") == ([], None)


@pytest.mark.parametrize(
    ("finalizer", "propagation"), [("orphan", "Orphan"), ("foregroundDeletion", "Foreground")]
)
def test_finalizers_say_how_it_goes(finalizer: str, propagation: str) -> None:
    world = World(stored("b", "a", finalizers=[finalizer]))
    assert world.look_at("delete/u-b") == ([deletion("b", propagation)], None)


def test_lost_references_are_dropped() -> None:
    """One living owner keeps it."""
    world = World(stored("a"), stored("b", "a", "gone"))
    [patch], _ = world.look_at("delete/u-b")
    assert isinstance(patch, Patch)
    assert patch.media_type == STRATEGIC_MERGE_PATCH
    assert patch.body == {
        "metadata": {"ownerReferences": [{"$patch": "delete", "uid": "u-gone"}], "uid": "u-b"}
    }


def test_where_strategic_patches_are_not_known() -> None:
    world = World(stored("a"), stored("b", "a", "gone"))
    world.refusals[Patch] = refusal(415)
    asked, _ = world.look_at("delete/u-b")
    patch = asked[1]
    assert isinstance(patch, Patch)
    assert patch.media_type == MERGE_PATCH
    assert patch.body == {"metadata": {"resourceVersion": "7", "ownerReferences": [reference("a")]}}


def test_a_change_of_others_does_not_save_it() -> None:
    """A conflict that owners have no part in is no reason to wait."""
    world = World(stored("b", "a"))
    plan = world.collector.reconcile("delete/u-b", VIEW, 0.0)
    reads = 0

    def answer(action: Action) -> Answer:
        nonlocal reads
        if isinstance(action, Get) and action.name == "b":
            reads += 1
            return stored("b", "a") if reads == 1 else thing("b", "a", resourceVersion="8")
        if isinstance(action, Delete) and action.resource_version:
            return refusal(409)
        return world.answer(action)

    asked, _ = drive(plan, answer)
    assert [each for each in asked if isinstance(each, Delete)] == [
        deletion("b"),
        deletion("b", version=""),
    ]


def test_foreground_waits_for_those_that_block() -> None:
    going = stored("a", deletionTimestamp="t", finalizers=["foregroundDeletion"])
    child = stored("b")
    child["metadata"]["ownerReferences"] = [reference("a", blockOwnerDeletion=True)]
    world = World(going, child)
    assert world.look_at("delete/u-a") == ([Enqueue(("delete/u-b",))], None)
    assert world.look_at("delete/u-b") == ([deletion("b")], None)
    list(world.keys(CONFIG_MAPS, child, None, VIEW))
    [patch], _ = world.look_at("delete/u-a")
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"resourceVersion": "7", "finalizers": []}}


def test_a_dependent_with_dependents_goes_in_the_foreground_too() -> None:
    going = stored("a", deletionTimestamp="t", finalizers=["foregroundDeletion"])
    world = World(going, stored("b", "a"), stored("c", "b"))
    assert world.look_at("delete/u-b") == ([deletion("b", "Foreground")], None)


def test_orphaning() -> None:
    """First dependents are released, then the owner is."""
    going = stored("a", deletionTimestamp="t", finalizers=["orphan", "mine"])
    world = World(going, stored("b", "a"))
    [first, second], _ = world.look_at("orphan/u-a")
    assert isinstance(first, Patch)
    assert first.name == "b"
    assert isinstance(second, Patch)
    assert second.body == {"metadata": {"resourceVersion": "7", "finalizers": ["mine"]}}


def test_unknown_kinds_are_tried_again() -> None:
    child = stored("b")
    child["metadata"]["ownerReferences"] = [{**reference("a"), "kind": "Unknown"}]
    asked, again = World(child).look_at("delete/u-b")
    assert asked == []
    assert isinstance(again, Retry)


def test_groups_that_do_not_answer_are_not_gone() -> None:
    world = World()
    world.found = Discovery([], {"v1": "stale"})
    asked, _ = drive(world.collector.reconcile("discovery", VIEW, 0.0), world.answer)
    follow = asked[1]
    assert isinstance(follow, Follow)
    assert follow.resources == {CONFIG_MAPS}


def test_dependents_that_wait_for_each_other_are_let_go() -> None:
    """b is to be deleted after c, which waits for b: b stops holding its owners."""
    going = stored("a", deletionTimestamp="t", finalizers=["foregroundDeletion"])
    child = stored("b")
    child["metadata"]["ownerReferences"] = [reference("a", blockOwnerDeletion=True)]
    grandchild = stored("c", "b", deletionTimestamp="t", finalizers=["foregroundDeletion"])
    world = World(going, child, grandchild)
    asked, _ = world.look_at("delete/u-b")
    patch, delete = asked
    assert isinstance(patch, Patch)
    assert patch.body == {
        "metadata": {
            "ownerReferences": [reference("a", blockOwnerDeletion=False)],
            "uid": "u-b",
        }
    }
    assert delete == deletion("b", "Foreground")


def test_what_is_of_the_cluster_and_claims_an_owner_in_a_namespace_stays() -> None:
    lost = stored("b", "a")
    del lost["metadata"]["namespace"]
    assert World(lost).look_at("delete/u-b") == ([], None)


def test_a_finalizer_is_taken_off_although_others_write_too() -> None:
    going = stored("a", deletionTimestamp="t", finalizers=["foregroundDeletion"])
    world = World(going)
    world.refusals[Patch] = refusal(409)
    asked, _ = world.look_at("delete/u-a")
    assert [type(each) for each in asked] == [Patch, Patch]


def test_a_definition_that_changes_has_the_server_asked_anew() -> None:
    [watch] = GarbageCollector().watches
    assert watch.resource == CUSTOM_RESOURCE_DEFINITIONS
    assert list(watch.keys(None, {"metadata": {"name": "x"}}, VIEW)) == [Later("discovery", 1.0)]
