"""Writes are remembered until views show them, also those whose keys nobody asks for again."""

from kvstack.agents.client.built_in import PODS
from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.reconcile.own_writes import OwnWrites
from kvstack.agents.reconcile.plan import Delete
from kvstack.apimachinery.objects.json_object import Object
from tests.support.clocks import HandClock


def pod(name: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default", "uid": name}}


class Deletions:
    """Pods that are deleted, each for a key of its own, as the garbage collector does."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.pods = ObjectStore()
        self.writes = OwnWrites(lambda _: self.pods, self.clock)

    def delete(self, name: str, *, shows: bool = True) -> None:
        self.pods.set(pod(name))
        self.writes.note(f"delete/{name}", Delete(PODS, "default", name), {})
        if shows:
            self.pods.remove(f"default/{name}")


def test_keys_that_nobody_asks_for_again_are_forgotten() -> None:
    world = Deletions()
    for number in range(1000):
        world.delete(f"p{number}")
        assert len(world.writes) <= 3


def test_what_is_not_seen_stays_and_keeps_no_other() -> None:
    world = Deletions()
    for number in range(5):
        world.delete(f"slow{number}", shows=False)
    for number in range(1000):
        world.delete(f"p{number}")
        assert len(world.writes) <= 5 + 10
    assert not world.writes.are_seen("delete/slow3")
    world.clock.now += 301
    for number in range(20):
        world.delete(f"q{number}")
    assert len(world.writes) <= 3
    assert world.writes.are_seen("delete/slow3")
