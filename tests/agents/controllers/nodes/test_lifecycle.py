"""The life of a node, as its controller sees it: silence, taints, pods, labels, events."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from kvstack.agents.client.built_in import LEASES, NODES, PODS
from kvstack.agents.controllers.nodes.lifecycle import NodeLifecycle
from kvstack.agents.controllers.nodes.pod_garbage import PodGarbageCollector
from kvstack.agents.controllers.options import NodeLifecycleOptions
from kvstack.agents.reconcile.plan import Action, Again, Delete, Get, Patch, Record, Update
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from tests.agents.support.plans import Answer, drive, refusal, view_of

NOW_S = 1_700_000_000.0
MADE = "2023-11-14T22:13:20Z"
"""At NOW_S."""
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def node(
    status: str | None = "True", name: str = "n1", taints: list[Object] | None = None, **spec: Any
) -> Object:
    meta = {"name": name, "uid": f"u-{name}", "creationTimestamp": MADE, "resourceVersion": "1"}
    rows = [] if status is None else [condition("Ready", status)]
    given = {**spec, **({"taints": taints} if taints else {})}
    return {"metadata": meta, "spec": given, "status": {"conditions": rows}}


def condition(type_: str, status: str) -> Object:
    times = {"lastHeartbeatTime": "h1", "lastTransitionTime": "t1"}
    return {"type": type_, "status": status, "reason": "KubeletReady", "message": "", **times}


def pod(status: str = "True", **meta: Any) -> Object:
    own = {"name": "p", "namespace": "n", "uid": "u-p", **meta}
    ready = {"type": "Ready", "status": status}
    return {"metadata": own, "spec": {"nodeName": "n1"}, "status": {"conditions": [ready]}}


def taint(key: str, effect: str = "NoExecute") -> Object:
    return {"key": key, "effect": effect}


def lease(version: str = "5", **spec: Any) -> Object:
    meta = {"name": "n1", "namespace": "kube-node-lease", "resourceVersion": version}
    return {"metadata": meta, "spec": {"renewTime": "2023-11-14T22:13:20.000000Z", **spec}}


def view(nodes: list[Object], pods: list[Object] | None = None, leases: Any = ()) -> Any:
    objects = {NODES: nodes, PODS: pods or [], LEASES: leases}
    return view_of(objects, NodeLifecycle.indexes)


def answered(live_lease: Answer) -> Callable[[Action], Answer]:
    def answer(action: Action) -> Answer:
        if isinstance(action, Get):
            return live_lease
        return action.obj if isinstance(action, Update) else {}

    return answer


GONE = answered(refusal(404))


class World:
    """One controller, which looks at nodes from time to time."""

    def __init__(self, options: NodeLifecycleOptions | None = None) -> None:
        self.controller = NodeLifecycle(options or NodeLifecycleOptions())
        self.rests_s = 0.0

    def monitor(
        self,
        after_s: float,
        nodes: list[Object],
        pods: list[Object] | None = None,
        leases: Any = (),
        answer: Callable[[Action], Answer] = GONE,
    ) -> list[Action]:
        plan = self.controller.reconcile("monitor", view(nodes, pods, leases), NOW_S + after_s)
        asked, after = drive(plan, answer)
        assert isinstance(after, Again)
        assert (after.after_s, after.is_routine) == (5.0, True)
        self.rests_s = after.rests_s
        return asked

    def taint(self, after_s: float, nodes: list[Object]) -> tuple[list[Action], Any]:
        return drive(self.controller.reconcile("taint", view(nodes), NOW_S + after_s), GONE)


def events(asked: list[Action]) -> list[tuple[str, str, str]]:
    return [(each.type, each.reason, each.message) for each in asked if isinstance(each, Record)]


def statuses(asked: list[Action], resource: Any) -> list[Object]:
    return [
        each.obj["status"]
        for each in asked
        if isinstance(each, Update) and each.resource == resource and each.subresource == "status"
    ]


def taints(asked: list[Action]) -> list[list[tuple[str, str]]]:
    """Return the lists of taints that are patched."""
    bodies = [each.body for each in asked if isinstance(each, Patch)]
    return [
        [(row["key"], row["effect"]) for row in body["spec"]["taints"] or ()]
        for body in bodies
        if isinstance(body, dict) and "spec" in body
    ]


# Silence.


def test_nodes_that_come_and_go_are_reported() -> None:
    world = World()
    asked = world.monitor(0, [node()])
    text = "Node n1 event: Registered Node n1 in Controller"
    assert events(asked) == [("Normal", "RegisteredNode", text)]
    [told] = [each for each in asked if isinstance(each, Record)]
    assert told.about["metadata"] == {"name": "n1", "uid": "u-n1"}
    assert events(world.monitor(5, [node()])) == []
    text = "Node n1 event: Removing Node n1 from Controller"
    assert events(world.monitor(10, [])) == [("Normal", "RemovingNode", text)]


def test_a_silent_node_becomes_unknown_with_its_pods_unready() -> None:
    world = World()
    others = [node(name=f"other{number}") for number in range(3)]
    world.monitor(0, [node(), *others])
    heard = [{**each, "metadata": {**each["metadata"]}} for each in others]
    for each in heard:
        each["status"] = {"conditions": [{**condition("Ready", "True"), "lastHeartbeatTime": "h2"}]}
    assert statuses(world.monitor(50, [node(), *heard], [pod()]), NODES) == []
    asked = world.monitor(51, [node(), *heard], [pod()])
    [status] = statuses(asked, NODES)
    assert [(each["type"], each["status"], each["reason"]) for each in status["conditions"]] == [
        ("Ready", "Unknown", "NodeStatusUnknown"),
        ("MemoryPressure", "Unknown", "NodeStatusNeverUpdated"),
        ("DiskPressure", "Unknown", "NodeStatusNeverUpdated"),
        ("PIDPressure", "Unknown", "NodeStatusNeverUpdated"),
    ]
    assert status["conditions"][0]["message"] == "Kubelet stopped posting node status."
    assert events(asked) == [
        ("Normal", "NodeNotReady", "Node n1 status is now: NodeNotReady"),
        ("Warning", "NodeNotReady", "Node is not ready"),
    ]
    [unready] = statuses(asked, PODS)
    assert unready["conditions"][0]["status"] == "False"


def test_a_lease_that_the_watch_did_not_show_saves_a_node() -> None:
    """The server's Lease has another version than the one last counted."""
    world = World()
    world.monitor(0, [node()], leases=[lease()])
    newer = answered(lease("6"))
    assert statuses(world.monitor(60, [node()], leases=[lease()], answer=newer), NODES) == []
    same = answered(lease())
    assert len(statuses(world.monitor(65, [node()], leases=[lease()], answer=same), NODES)) == 1


def test_an_error_decides_nothing() -> None:
    world = World()
    world.monitor(0, [node()])
    asked = world.monitor(60, [node()], answer=lambda _: refusal(500))
    assert [type(each) for each in asked] == [Get]


def test_a_node_that_never_reported_has_a_minute_since_its_creation() -> None:
    world = World()
    assert statuses(world.monitor(60, [node(None)]), NODES) == []
    [status] = statuses(world.monitor(61, [node(None)]), NODES)
    assert {each["message"] for each in status["conditions"]} == {
        "Kubelet never posted node status."
    }


def test_pods_that_could_not_be_reported_are_reported_later() -> None:
    world = World()
    world.monitor(0, [node()])

    def answer(action: Action) -> Answer:
        if isinstance(action, Update) and action.resource == PODS:
            return refusal(500)
        return GONE(action)

    world.monitor(60, [node()], [pod()], answer=answer)
    assert len(statuses(world.monitor(65, [node("Unknown")], [pod()]), PODS)) == 1
    assert statuses(world.monitor(70, [node("Unknown")], [pod()]), PODS) == []


def test_a_pod_that_comes_to_a_node_that_is_not_ready_is_unready() -> None:
    world = World()
    for status, count in (("True", 0), ("Unknown", 1), ("False", 1)):
        nodes = [node(status)]
        world.monitor(0, nodes)
        plan = world.controller.reconcile("pod/n/p", view(nodes, [pod()]), NOW_S)
        assert len(statuses(drive(plan, GONE)[0], PODS)) == count
        plan = world.controller.reconcile("pod/n/p", view(nodes, [pod("False")]), NOW_S)
        assert statuses(drive(plan, GONE)[0], PODS) == []


# NoExecute.


def test_taints_come_at_a_rate_and_swap_at_once() -> None:
    world = World()
    lost = [node("Unknown", "a"), node("Unknown", "b")]
    fine = [node(name=f"other{number}") for number in range(3)]
    world.monitor(0, [*lost, *fine])
    asked, after = world.taint(0, [*lost, *fine])
    assert taints(asked) == [[(UNREACHABLE, "NoExecute")]]
    assert after == Again(10.0)
    asked, after = world.taint(9, [*lost, *fine])
    assert taints(asked) == []
    asked, _ = world.taint(10, [*lost, *fine])
    assert taints(asked) == [[(UNREACHABLE, "NoExecute")]]
    swapped = node("False", "a", [taint(UNREACHABLE)])
    assert taints(world.monitor(15, [swapped, *fine])) == [[(NOT_READY, "NoExecute")]]
    back = node("True", "a", [taint(NOT_READY), taint("mine")])
    assert taints(world.monitor(20, [back, *fine])) == [[("mine", "NoExecute")]]


def test_a_node_that_came_back_is_not_tainted() -> None:
    world = World()
    fine = [node(name=f"other{number}") for number in range(3)]
    world.monitor(0, [node("Unknown", "a"), *fine])
    asked, after = world.taint(0, [node("True", "a"), *fine])
    assert (taints(asked), after) == ([], None)


def test_where_all_are_lost_taints_are_taken_back() -> None:
    """When some are back, all are given time to report."""
    world = World()
    tainted = node("Unknown", "a", [taint(UNREACHABLE)])
    world.monitor(0, [node(name="a")])
    assert taints(world.monitor(5, [tainted])) == [[]]
    asked, after = world.taint(5, [node("Unknown", "a")])
    assert (taints(asked), after) == ([], None)
    world.monitor(10, [node(name="a"), node("Unknown", "b")])
    assert statuses(world.monitor(60, [node(name="a"), node("Unknown", "b")]), NODES) == []


# NoSchedule, labels.


ROWS = [
    ([condition("Ready", "False")], {}, [NOT_READY]),
    ([condition("Ready", "Unknown")], {}, [UNREACHABLE]),
    ([condition("MemoryPressure", "True")], {}, ["node.kubernetes.io/memory-pressure"]),
    ([condition("DiskPressure", "True")], {}, ["node.kubernetes.io/disk-pressure"]),
    ([condition("PIDPressure", "True")], {}, ["node.kubernetes.io/pid-pressure"]),
    ([condition("NetworkUnavailable", "True")], {}, ["node.kubernetes.io/network-unavailable"]),
    ([], {"unschedulable": True}, ["node.kubernetes.io/unschedulable"]),
]


@pytest.mark.parametrize(("conditions", "spec", "keys"), ROWS)
def test_taints_follow_conditions(conditions: list[Object], spec: Object, keys: list[str]) -> None:
    given = {**node(**spec), "status": {"conditions": conditions}}
    asked, _ = drive(World().controller.reconcile("node/n1", view([given]), NOW_S))
    assert taints(asked) == [[(key, "NoSchedule") for key in keys]]
    [patch] = asked
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert all(row["timeAdded"] == MADE for row in patch.body["spec"]["taints"])


def test_taints_that_no_condition_asks_for_go_and_others_stay() -> None:
    rows = [taint(NOT_READY, "NoSchedule"), taint(NOT_READY), taint("mine", "NoSchedule")]
    given = node("True", taints=rows)
    asked, _ = drive(World().controller.reconcile("node/n1", view([given]), NOW_S))
    assert taints(asked) == [[(NOT_READY, "NoExecute"), ("mine", "NoSchedule")]]


def test_a_change_of_taints_that_meets_another_is_made_anew_five_times_at_most() -> None:
    given = node("False")

    def answer(action: Action) -> Answer:
        return given if isinstance(action, Get) else refusal(409)

    plan = World().controller.reconcile("node/n1", view([given]), NOW_S)
    tried = 0

    def counting(action: Action) -> Answer:
        nonlocal tried
        tried += isinstance(action, Patch)
        return answer(action)

    with pytest.raises(ApiError):
        drive(plan, counting)
    assert tried == 5


def test_older_labels_follow_newer_ones() -> None:
    given = node()
    given["metadata"]["labels"] = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "beta.kubernetes.io/arch": "amd64",
    }
    [patch], _ = drive(World().controller.reconcile("node/n1", view([given]), NOW_S))
    assert isinstance(patch, Patch)
    assert patch.body == {
        "metadata": {
            "labels": {"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64"}
        }
    }


# Pods of nodes that are out of service.


@pytest.mark.parametrize(
    ("status", "rows", "meta", "goes"),
    [
        ("False", [taint("node.kubernetes.io/out-of-service")], {"deletionTimestamp": "t"}, True),
        ("True", [taint("node.kubernetes.io/out-of-service")], {"deletionTimestamp": "t"}, False),
        ("False", [taint("other")], {"deletionTimestamp": "t"}, False),
        ("False", [taint("node.kubernetes.io/out-of-service")], {}, False),
    ],
)
def test_pods_of_nodes_out_of_service(
    status: str, rows: list[Object], meta: Object, *, goes: bool
) -> None:
    given = view_of({NODES: [node(status, taints=rows)], PODS: [pod(**meta)]})
    asked, _ = drive(PodGarbageCollector(0).reconcile("all", given, NOW_S))
    if not goes:
        assert asked == []
        return
    patch, delete = asked
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert patch.body["status"] == {"phase": "Failed"}
    assert isinstance(delete, Delete)
    assert (delete.grace_s, delete.uid) == (0, "u-p")


def test_a_pod_that_cannot_be_removed_does_not_save_the_others() -> None:
    meta = {"deletionTimestamp": "t"}
    pods = [pod(**meta, name=name) for name in "ab"]
    for each in pods:
        each["spec"] = {}
    given = view_of({NODES: [], PODS: pods})
    tried: list[str] = []

    def answer(action: Action) -> Answer:
        if isinstance(action, Patch):
            tried.append(action.name)
        return refusal(500)

    with pytest.raises(ApiError):
        drive(PodGarbageCollector(0).reconcile("all", given, NOW_S), answer)
    assert tried == ["a", "b"]


# Looks that would do nothing.


def test_how_long_looks_would_do_nothing() -> None:
    world = World()
    world.monitor(0, [node()])
    assert world.rests_s == 50.0
    world.monitor(20, [node()])
    assert world.rests_s == 30.0
    world.monitor(55, [node()])  # it is silent, and what is to be done may take several looks
    assert world.rests_s == 0.0
    alone = World()
    alone.monitor(0, [])
    assert alone.rests_s == math.inf


def test_a_lease_that_lasts_longer_is_trusted_if_that_is_asked_for() -> None:
    leases = [lease(leaseDurationSeconds=2400)]
    trusting = World(NodeLifecycleOptions(trusts_leases=True))
    trusting.monitor(0, [node()], leases=leases)
    assert trusting.rests_s == 2400.0
    assert statuses(trusting.monitor(2400, [node()], leases=leases), NODES) == []
    assert statuses(trusting.monitor(2401, [node()], leases=leases), NODES) != []
    other = World()
    other.monitor(0, [node()], leases=leases)
    assert other.rests_s == 50.0
    short = World(NodeLifecycleOptions(trusts_leases=True))
    short.monitor(0, [node()], leases=[lease(leaseDurationSeconds=40)])
    assert short.rests_s == 50.0
