"""Ranges of pod addresses for nodes."""

from ipaddress import ip_network
from typing import Any

import pytest

from kvstack.agents.client.built_in import NODES
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.controllers.nodes.ranges import (
    Blocks,
    NodeRangeController,
    RangesExhaustedError,
)
from kvstack.agents.controllers.options import NodeRanges
from kvstack.agents.reconcile.plan import Patch, Record
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.plans import Answer, drive, refusal, view_of


def controller(
    *clusters: str, masks: tuple[int, ...], services: tuple[str, ...] = ()
) -> NodeRangeController:
    return NodeRangeController(
        NodeRanges(tuple(map(ip_network, clusters)), masks, tuple(map(ip_network, services)))
    )


def node(name: str, *ranges: str) -> Object:
    spec: Object = {"podCIDR": ranges[0], "podCIDRs": list(ranges)} if ranges else {}
    return {"metadata": {"name": name, "uid": f"uid of {name}"}, "spec": spec}


class Cluster:
    """Nodes as the controller sees them."""

    def __init__(self, controller: NodeRangeController) -> None:
        self.controller = controller
        self.nodes: dict[str, Object] = {}

    def put(self, made: Object) -> list[str]:
        """Add or change a node; return its ranges, given now if it had none."""
        name = made["metadata"]["name"]
        old, self.nodes[name] = self.nodes.get(name), made
        self.changed(old, made)
        asked = self.run(name)
        if not asked:
            return list(made["spec"]["podCIDRs"])
        [patch] = asked
        assert isinstance(patch, Patch)
        body: Any = patch.body
        self.nodes[name] = {**made, "spec": body["spec"]}
        self.changed(made, self.nodes[name])
        return list(body["spec"]["podCIDRs"])

    def drop(self, name: str) -> None:
        """Delete a node."""
        self.changed(self.nodes.pop(name), None)

    def changed(self, old: Object | None, new: Object | None) -> list[Any]:
        [watch] = self.controller.watches
        return list(watch.keys(old, new, self.view))

    def run(self, name: str, answer: Answer = None) -> list[Any]:
        plan = self.controller.reconcile(name, self.view, 0.0)
        return drive(plan, lambda _action: answer or {})[0]

    @property
    def view(self) -> Any:
        return view_of({NODES: self.nodes.values()})


def test_nodes_get_the_next_range_of_each_family() -> None:
    cluster = Cluster(controller("10.1.0.0/16", "fd00:1::/56", masks=(24, 64)))
    assert cluster.put(node("a")) == ["10.1.0.0/24", "fd00:1::/64"]
    assert cluster.put(node("b")) == ["10.1.1.0/24", "fd00:1:0:1::/64"]
    cluster.drop("b")
    assert cluster.put(node("c"))[0] == "10.1.2.0/24"


def test_what_is_taken_is_not_given() -> None:
    cluster = Cluster(
        controller("10.1.0.0/21", masks=(24,), services=("10.1.0.0/23", "10.96.0.0/12"))
    )
    cluster.put(node("old", "10.1.3.0/25"))
    cluster.put(node("huge", "10.1.4.0/23"))
    assert cluster.put(node("a")) == ["10.1.2.0/24"]
    assert cluster.put(node("b")) == ["10.1.6.0/24"]
    assert cluster.put(node("c")) == ["10.1.7.0/24"]
    with pytest.raises(RangesExhaustedError):
        cluster.put(node("d"))
    cluster.drop("old")
    assert cluster.put(node("e")) == ["10.1.3.0/24"]


def test_a_node_without_range_is_reported() -> None:
    cluster = Cluster(controller("10.1.0.0/24", masks=(24,)))
    cluster.put(node("a"))
    cluster.nodes["b"] = node("b")
    asked: list[Any] = []

    def answer(action: Any) -> Answer:
        asked.append(action)
        return {}

    with pytest.raises(RangesExhaustedError):
        drive(cluster.controller.reconcile("b", cluster.view, 0.0), answer)
    assert asked == [
        Record(
            cluster.nodes["b"],
            "Normal",
            "CIDRNotAvailable",
            "Node b status is now: CIDRNotAvailable",
        )
    ]


def test_a_refused_range_is_given_back_and_an_uncertain_one_is_kept() -> None:
    cluster = Cluster(controller("10.1.0.0/16", masks=(24,)))
    cluster.nodes = {"a": node("a"), "b": node("b")}
    with pytest.raises(Exception, match="refused"):
        cluster.run("a", refusal(409))
    with pytest.raises(UnreachableError):
        cluster.run("a", UnreachableError("no answer"))
    assert cluster.run("b")[0].body["spec"]["podCIDR"] == "10.1.2.0/24"
    assert cluster.run("a")[0].body["spec"]["podCIDR"] == "10.1.1.0/24"
    assert cluster.run("a", refusal(404))[0].body["metadata"] == {"uid": "uid of a"}


def test_parts_of_another_family_are_nobodys_affair() -> None:
    blocks = Blocks(ip_network("10.0.0.0/30"), 32)
    blocks.occupy(ip_network("fd00::/64"))
    blocks.occupy(ip_network("192.0.2.0/24"))
    assert [blocks.take_next() for _ in range(4)] == [f"10.0.0.{host}/32" for host in range(4)]
    assert blocks.is_full
