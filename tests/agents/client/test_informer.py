"""What handlers of an informer hear: of changes, of a new whole after a break, of replacements."""

from typing import Any

import pytest

from kvstack.agents.client.api import Event
from kvstack.agents.client.built_in import CONFIG_MAPS
from kvstack.agents.client.informer import Informer
from kvstack.apimachinery.objects.json_object import Object
from tests.apiserver.support.virtual_time import run
from tests.sim.stack.timing import SimClock
from tests.support.list_log import ListLog


def obj(name: str, version: int, uid: str = "") -> Object:
    meta = {"name": name, "namespace": "default", "uid": uid or name}
    return {"metadata": {**meta, "resourceVersion": str(version), "managedFields": [{}]}}


def short(found: Object | None) -> str:
    return (
        ""
        if found is None
        else f"{found['metadata']['name']}{found['metadata']['resourceVersion']}"
    )


class Heard:
    """An informer with objects a1 and b2, and what a handler hears from then on."""

    def __init__(self) -> None:
        self.log = ListLog()
        self.informer = Informer(None, CONFIG_MAPS, SimClock(), lambda: 0.5, self.log)  # type: ignore[arg-type]
        self.informer.replace([obj("a", 1), obj("b", 2)], "2")
        self.changes: list[tuple[str, str]] = []
        self.informer.on_change(self._hear)

    def _hear(self, old: Object | None, new: Object | None) -> None:
        self.changes.append((short(old), short(new)))

    def since_the_beginning(self) -> list[tuple[str, str]]:
        assert self.changes[:2] == [("", "a1"), ("", "b2")]
        return self.changes[2:]


def hear(*steps: Any) -> Heard:
    """Give an informer lists (the whole) and events."""

    async def body() -> Heard:
        heard = Heard()
        for step in steps:
            if isinstance(step, list):
                heard.informer.replace(step, "9")
            else:
                heard.informer.apply([step])
        return heard

    return run(body())


@pytest.mark.parametrize(
    ("steps", "changes"),
    [
        ([Event("ADDED", obj("c", 3))], [("", "c3")]),
        ([Event("MODIFIED", obj("a", 3))], [("a1", "a3")]),
        ([Event("DELETED", obj("a", 3))], [("a3", "")]),
        ([Event("DELETED", obj("c", 3))], []),
        ([Event("BOOKMARK", {"metadata": {"resourceVersion": "7"}})], []),
        # The same once more is no change.
        ([Event("MODIFIED", obj("a", 1))], []),
        # Deleted and made again meanwhile: two changes.
        ([Event("MODIFIED", obj("a", 3, "other"))], [("a1", ""), ("", "a3")]),
        # After a break: what is new, what is another, and what is gone, as last known.
        ([[obj("a", 1), obj("b", 4), obj("c", 5)]], [("b2", "b4"), ("", "c5")]),
        ([[obj("b", 2)]], [("a1", "")]),
        ([[obj("a", 5, "other")]], [("a1", ""), ("", "a5"), ("b2", "")]),
        ([[]], [("a1", ""), ("b2", "")]),
    ],
)
def test_what_is_heard(steps: list[Any], changes: list[tuple[str, str]]) -> None:
    assert hear(*steps).since_the_beginning() == changes


@pytest.mark.parametrize(
    ("step", "version"),
    [
        (Event("MODIFIED", obj("a", 3)), "3"),
        (Event("DELETED", obj("a", 4)), "4"),
        (Event("BOOKMARK", {"metadata": {"resourceVersion": "7"}}), "7"),
        ([], "9"),
    ],
)
def test_how_far_the_store_is(step: Any, version: str) -> None:
    assert hear(step).informer.store.resource_version == version


def test_managed_fields_are_left_out() -> None:
    store = hear(Event("ADDED", obj("c", 3))).informer.store
    assert not any("managedFields" in each["metadata"] for each in store)


def test_a_handler_that_fails_does_not_keep_others_from_hearing() -> None:
    async def body() -> None:
        heard = Heard()

        def broken(old: Object | None, new: Object | None) -> None:
            raise ValueError("a bug")

        heard.informer.on_change(broken)
        after: list[str] = []
        heard.informer.on_change(lambda old, new: after.append(short(new)))
        heard.informer.apply([Event("ADDED", obj("c", 3))])
        assert heard.since_the_beginning() == [("", "c3")]
        assert after == ["a1", "b2", "c3"]
        assert heard.log.of("error")

    run(body())


def test_a_handler_that_left_hears_no_more() -> None:
    async def body() -> None:
        heard = Heard()
        heard.informer.forget(heard._hear)
        heard.informer.apply([Event("ADDED", obj("c", 3))])
        assert heard.since_the_beginning() == []

    run(body())
