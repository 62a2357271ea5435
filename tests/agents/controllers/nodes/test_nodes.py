"""Nodes: zones and their rates, health, taints, and what befalls pods."""

from typing import Any

from kvstack.agents.client.built_in import LEASES, NODES, PODS
from kvstack.agents.controllers.nodes.health import Health, with_unknown
from kvstack.agents.controllers.nodes.pod_garbage import PodGarbageCollector
from kvstack.agents.controllers.nodes.taint_eviction import TaintEviction
from kvstack.agents.controllers.nodes.ttl import TtlController
from kvstack.agents.controllers.nodes.zones import Change, State, Zone, Zones
from kvstack.agents.controllers.options import NodeLifecycleOptions
from kvstack.agents.reconcile.plan import Action, Again, Delete, Get, Patch, Record
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.plans import Answer, drive, refusal, view_of

NOW_S = 1_700_000_000.0


def node(name: str = "n1", **more: Any) -> Object:
    meta = {"name": name, "creationTimestamp": "2023-11-14T22:13:20Z", "resourceVersion": "1"}
    return {"metadata": meta, "spec": more.pop("spec", {}), **more}


def ready(status: str, heartbeat: str = "h1") -> Object:
    condition = {"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat}
    return {"conditions": [condition]}


def pod(name: str, **spec: Any) -> Object:
    meta = {
        "name": name,
        "namespace": "n",
        "uid": f"u-{name}",
        "creationTimestamp": "2023-11-14T22:13:20Z",
    }
    return {"metadata": meta, "spec": {"nodeName": "n1", **spec}, "status": {"phase": "Running"}}


# Zones.


def test_rate() -> None:
    """One at once, then one in ten seconds; none at rate 0."""
    zone = Zone(0.1)
    assert zone.take(100.0)
    assert not zone.take(100.0)
    assert zone.wait_s(100.0) == 10.0
    assert not zone.take(109.0)
    assert zone.take(110.0)
    zone.set_rate(0.0, 111.0)
    assert zone.wait_s(1000.0) is None
    assert not zone.take(1000.0)


def test_states() -> None:
    zones = Zones(NodeLifecycleOptions())
    zone = zones.of(node())
    for ready_nodes, state, rate in (
        ([True, True, False], State.NORMAL, 0.1),
        ([True, True, False, False, False], State.PARTIAL, 0.0),
        ([True] * 20, State.NORMAL, 0.1),
        ([True] * 20 + [False] * 40, State.PARTIAL, 0.01),
        ([True], State.NORMAL, 0.1),
    ):
        assert zones.judge({"": ready_nodes}, NOW_S) is Change.NONE
        assert (zone.state, zone.rate) == (state, rate)
    assert zones.judge({"": [False]}, NOW_S) is Change.ALL_LOST
    assert (zone.state, zone.rate) == (State.FULL, 0.0)
    assert zones.judge({"": [False]}, NOW_S) is Change.NONE
    assert zones.judge({"": [True]}, NOW_S) is Change.SOME_BACK
    assert (zone.state, zone.rate) == (State.NORMAL, 0.1)


# Health.


def test_silence() -> None:
    """Heartbeats and Leases both count; only that they change does."""
    health = Health(NodeLifecycleOptions(grace_period_s=50.0))
    lease = {"metadata": {"resourceVersion": "5"}, "spec": {"renewTime": "2023-01-01T00:00:01Z"}}
    one, other = node(status=ready("True")), node(status=ready("True", "h2"))
    assert not health.is_silent(one, None, 0.0)
    assert health.is_silent(one, None, 51.0)
    assert not health.is_silent(other, None, 51.0)
    assert not health.is_silent(other, lease, 100.0)
    assert health.lease_version("n1") == "5"
    assert not health.is_silent(other, lease, 150.0)
    assert health.is_silent(other, lease, 150.1)


def test_a_node_that_never_reported() -> None:
    """It has since its creation."""
    health = Health(NodeLifecycleOptions(startup_grace_period_s=60.0))
    assert not health.is_silent(node(), None, NOW_S + 60)
    assert health.is_silent(node(), None, NOW_S + 61)
    told = with_unknown(node(), NOW_S)
    assert {each["reason"] for each in told["status"]["conditions"]} == {"NodeStatusNeverUpdated"}
    assert len(told["status"]["conditions"]) == 4


# Pods.


def evictions(tolerations: list[Object], taints: list[Object]) -> tuple[TaintEviction, Any]:
    controller = TaintEviction()
    objects = {
        NODES: [node(spec={"taints": taints})],
        PODS: [pod("p", tolerations=tolerations)],
    }
    return controller, view_of(objects, controller.indexes)


TAINT = {"key": "k", "effect": "NoExecute"}


def answer(action: Action) -> Answer:
    return pod(action.name) if isinstance(action, Get) else {}


def test_what_does_not_tolerate_goes() -> None:
    controller, view = evictions([], [TAINT])
    asked, _ = drive(controller.reconcile("pod/n/p", view, NOW_S), answer)
    assert [type(each) for each in asked] == [Record, Get, Patch, Delete]
    assert asked[0].message == "Marking for deletion Pod n/p"  # type: ignore[union-attr]


def test_what_tolerates_for_a_time_goes_then() -> None:
    """The time is not begun anew, and ends with the taint."""
    tolerations = [{"key": "k", "operator": "Exists", "tolerationSeconds": 10}]
    controller, view = evictions(tolerations, [TAINT])
    assert drive(controller.reconcile("pod/n/p", view, NOW_S)) == ([], Again(10.0))
    assert drive(controller.reconcile("pod/n/p", view, NOW_S + 4)) == ([], Again(6.0))
    _, untainted = evictions(tolerations, [])
    [told], _ = drive(controller.reconcile("pod/n/p", untainted, NOW_S + 5))
    assert isinstance(told, Record)
    assert told.message == "Cancelling deletion of Pod n/p"
    assert drive(controller.reconcile("pod/n/p", view, NOW_S + 6)) == ([], Again(10.0))
    asked, _ = drive(controller.reconcile("pod/n/p", view, NOW_S + 16), answer)
    assert isinstance(asked[-1], Delete)


def test_what_tolerates_stays() -> None:
    controller, view = evictions([{"operator": "Exists"}], [TAINT])
    assert drive(controller.reconcile("pod/n/p", view, NOW_S)) == ([], None)


def test_pods_of_lost_nodes_go_when_it_is_sure() -> None:
    collector = PodGarbageCollector(0)
    view = view_of({NODES: [], PODS: [pod("p")]})
    assert drive(collector.reconcile("all", view, NOW_S)) == ([], Again(20.0, is_routine=True))
    assert drive(collector.reconcile("all", view, NOW_S + 39)) == ([], Again(20.0, is_routine=True))
    asked, _ = drive(collector.reconcile("all", view, NOW_S + 40), lambda action: node())
    assert [type(each) for each in asked] == [Get]

    def gone(action: Action) -> Answer:
        return refusal(404) if isinstance(action, Get) else {}

    asked, _ = drive(collector.reconcile("all", view, NOW_S + 60), gone)
    assert [type(each) for each in asked] == [Get, Patch, Delete]
    assert asked[2].grace_s == 0  # type: ignore[union-attr]


def test_surplus_pods_go_oldest_first() -> None:
    pods = [pod(name) for name in "abc"]
    for each, created in zip(pods, ("3", "1", "2"), strict=True):
        each["status"] = {"phase": "Succeeded"}
        each["metadata"]["creationTimestamp"] = f"2023-01-0{created}T00:00:00Z"
    pods[2]["status"]["reason"] = "Evicted"
    view = view_of({NODES: [node()], PODS: pods})
    asked, _ = drive(PodGarbageCollector(1).reconcile("all", view, NOW_S))
    assert [each.name for each in asked if isinstance(each, Delete)] == ["c", "b"]


def test_time_to_live_follows_the_size() -> None:
    controller = TtlController()
    nodes = [node(f"n{number}") for number in range(101)]
    view = view_of({NODES: nodes, LEASES: []})
    [watch] = controller.watches
    assert len(list(watch.keys(None, nodes[0], view))) == 101
    [patch], _ = drive(controller.reconcile("n0", view, NOW_S))
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"annotations": {"node.alpha.kubernetes.io/ttl": "15"}}}
    fewer = view_of({NODES: nodes[:90], LEASES: []})
    assert len(list(watch.keys(nodes[0], None, fewer))) == 0  # 90 is not few enough
    few = view_of({NODES: nodes[:89], LEASES: []})
    assert len(list(watch.keys(nodes[0], None, few))) == 89
