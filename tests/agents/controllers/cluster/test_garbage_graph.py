"""The graph of owners: what a change makes worth a look."""

from typing import Any

from kvstack.agents.client.built_in import CONFIG_MAPS, NODES
from kvstack.agents.controllers.cluster.garbage.graph import (
    AbsentOwners,
    Graph,
    Identity,
)
from kvstack.agents.reconcile.plan import Later
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import FOREGROUND_FINALIZER, ORPHAN_FINALIZER


def thing(name: str, *owners: str, namespace: str = "n", **meta: Any) -> Object:
    references = [reference(owner) for owner in owners]
    found = {"name": name, "uid": f"u-{name}", "ownerReferences": references, **meta}
    if namespace:
        found["namespace"] = namespace
    return {"metadata": found}


def reference(name: str, **more: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"u-{name}", **more}


def identity(name: str, namespace: str = "n") -> Identity:
    return Identity("ConfigMap", "v1", namespace, name, f"u-{name}")


def added(graph: Graph, *objects: Object) -> list[object]:
    return [key for obj in objects for key in graph.take(CONFIG_MAPS, None, obj)]


def test_unknown_owner_is_asked_for() -> None:
    """An owner that no watch has shown is virtual, until it is seen."""
    graph = Graph()
    assert added(graph, thing("child", "owner")) == ["delete/u-owner"]
    assert graph.nodes["u-owner"].is_virtual
    assert added(graph, thing("owner")) == []
    assert not graph.nodes["u-owner"].is_virtual
    assert list(graph.nodes["u-owner"].dependents) == ["u-child"]


def test_deleted_owner() -> None:
    """Its dependents are looked at, and it is known to be absent."""
    graph = Graph()
    added(graph, thing("owner"), thing("child", "owner"))
    assert list(graph.take(CONFIG_MAPS, thing("owner"), None)) == ["delete/u-child"]
    assert identity("owner") in graph.absent
    assert "u-owner" not in graph.nodes


def test_deletion_in_the_foreground() -> None:
    """Dependents first; those that block are known."""
    graph = Graph()
    child = thing("child")
    child["metadata"]["ownerReferences"] = [reference("owner", blockOwnerDeletion=True)]
    added(graph, thing("owner"), child, thing("free", "owner"))
    going = thing("owner", deletionTimestamp="t", finalizers=[FOREGROUND_FINALIZER])
    keys = list(graph.take(CONFIG_MAPS, thing("owner"), going))
    assert keys == ["delete/u-child", "delete/u-free", "delete/u-owner"]
    owner = graph.nodes["u-owner"]
    assert owner.is_deleting_dependents
    assert [each.identity.name for each in owner.blocking_dependents()] == ["child"]
    # A blocking dependent that goes, or does not block any more, has the owner looked at.
    assert list(graph.take(CONFIG_MAPS, child, thing("child", "owner"))) == ["delete/u-owner"]
    assert list(graph.take(CONFIG_MAPS, child, None)) == ["delete/u-owner"]


def test_deletion_that_orphans() -> None:
    """It is told once."""
    graph = Graph()
    added(graph, thing("owner"))
    going = thing("owner", deletionTimestamp="t", finalizers=[ORPHAN_FINALIZER])
    assert list(graph.take(CONFIG_MAPS, thing("owner"), going)) == ["orphan/u-owner"]
    assert list(graph.take(CONFIG_MAPS, going, going)) == []


def test_owner_in_another_namespace() -> None:
    """There is none: the dependent is looked at, and the reference complained of."""
    graph = Graph()
    added(graph, thing("owner", namespace="other"))
    keys = added(graph, thing("child", "owner"))
    assert keys == ["complaint/u-child/u-owner", "delete/u-child"]


def test_owner_of_the_cluster() -> None:
    """What is virtual has the namespace of its dependent, until it is seen to have none."""
    graph = Graph()
    node = {"metadata": {"name": "n1", "uid": "u-n1"}}
    child = thing("child")
    child["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u-n1"}
    ]
    added(graph, child)
    assert graph.nodes["u-n1"].identity.namespace == "n"
    list(graph.take(NODES, None, node))
    assert graph.nodes["u-n1"].identity == Identity("Node", "v1", "", "n1", "u-n1")


def test_absent_virtual_owner() -> None:
    """All dependents that claim it are looked at; it is gone from the graph."""
    graph = Graph()
    added(graph, thing("child", "owner"))
    assert list(graph.take_absence(identity("owner"))) == ["delete/u-child"]
    assert "u-owner" not in graph.nodes


def test_dependents_that_disagree() -> None:
    """What is absent under one name may be there under the other: that is asked for next."""
    graph = Graph()
    other = thing("other")
    other["metadata"]["ownerReferences"] = [{**reference("owner"), "name": "renamed"}]
    added(graph, thing("child", "owner"))
    assert added(graph, other) == ["delete/u-other"]
    keys = list(graph.take_absence(identity("owner")))
    assert keys[0] == "delete/u-child"
    assert isinstance(keys[1], Later)
    assert keys[1].key == "delete/u-owner"
    assert graph.nodes["u-owner"].identity.name == "renamed"


def test_absence_of_what_was_seen() -> None:
    """A real object that is absent is removed, one of another identity stays."""
    graph = Graph()
    added(graph, thing("owner"), thing("child", "owner"))
    assert list(graph.take_absence(identity("owner", "elsewhere"))) == []
    assert "u-owner" in graph.nodes
    assert list(graph.take_absence(identity("owner"))) == ["delete/u-child"]
    assert "u-owner" not in graph.nodes


def test_absent_owners_are_forgotten() -> None:
    """The one that was not asked for longest goes first."""
    absent = AbsentOwners()
    for number in range(500):
        absent.add(identity(str(number)))
    assert identity("0") in absent
    absent.add(identity("new"))
    assert identity("0") in absent
    assert identity("1") not in absent
