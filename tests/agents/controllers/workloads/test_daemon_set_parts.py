"""On which nodes a DaemonSet's pods are, and which of them are replaced."""

import pytest

from kvstack.agents.controllers.workloads.daemon_sets.placement import (
    Placement,
    for_node,
    node_of,
    with_tolerations,
)
from kvstack.agents.controllers.workloads.daemon_sets.rollout import (
    Limits,
    Nodes,
    limits,
    replaced,
)
from kvstack.apimachinery.objects.json_object import Object


def _node(name: str = "n1", *taints: tuple[str, str], **labels: str) -> Object:
    listed = [{"key": key, "effect": effect} for key, effect in taints]
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": listed}}


def _required(*terms: Object) -> Object:
    required = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def _expression(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "node", "expected"),
    [
        ({}, _node(), (True, True)),
        ({"nodeName": "n2"}, _node(), (False, False)),
        ({"nodeSelector": {"a": "1"}}, _node(a="1"), (True, True)),
        ({"nodeSelector": {"a": "1"}}, _node(a="2"), (False, False)),
        (_required(_expression("a", "In", "1", "2")), _node(a="2"), (True, True)),
        (_required(_expression("a", "NotIn", "2")), _node(a="2"), (False, False)),
        (_required(_expression("a", "Gt", "5")), _node(a="7"), (True, True)),
        (_required(_expression("a", "DoesNotExist")), _node(), (True, True)),
        (_required({}), _node(), (False, False)),
        (
            _required(_expression("b", "Exists"), _expression("a", "Exists")),
            _node(a=""),
            (True, True),
        ),
        ({}, _node("n1", ("k", "NoSchedule")), (False, True)),
        ({}, _node("n1", ("k", "NoExecute")), (False, False)),
        ({}, _node("n1", ("k", "PreferNoSchedule")), (True, True)),
        ({}, _node("n1", ("node.kubernetes.io/not-ready", "NoExecute")), (True, True)),
        ({}, _node("n1", ("node.kubernetes.io/unschedulable", "NoSchedule")), (True, True)),
        ({}, _node("n1", ("node.kubernetes.io/network-unavailable", "NoSchedule")), (False, True)),
        (
            {"hostNetwork": True},
            _node("n1", ("node.kubernetes.io/network-unavailable", "NoSchedule")),
            (True, True),
        ),
        ({"tolerations": [{"operator": "Exists"}]}, _node("n1", ("k", "NoExecute")), (True, True)),
    ],
)
def test_where_pods_belong(spec: Object, node: Object, expected: tuple[bool, bool]) -> None:
    assert Placement({"spec": spec}).on(node) == expected


def test_tolerations_are_added_once() -> None:
    spec = with_tolerations(with_tolerations({"containers": []}))
    assert len(spec["tolerations"]) == 6


def test_a_pod_is_made_for_its_node() -> None:
    spec = for_node(_required(_expression("a", "Exists")), "n7")
    assert node_of({"spec": spec}) == "n7"
    assert node_of({"spec": {**spec, "nodeName": "n8"}}) == "n8"
    assert node_of({"spec": {}}) == ""


def _pod(uid: str, *, ready: bool = True) -> Object:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": {"uid": uid, "name": uid}, "status": {"conditions": conditions}}


def _nodes(pods: dict[str, list[Object]], *new: str, should_run: str | None = None) -> Nodes:
    running = pods.keys() if should_run is None else should_run.split()
    return Nodes(pods, frozenset(running), frozenset(new), 0, 1000.0)


def test_old_pods_go_as_many_as_may_be_missing() -> None:
    pods = {f"n{n}": [_pod(f"p{n}")] for n in range(4)}
    changes = replaced(_nodes(pods, "p0"), Limits(0, 2))
    assert [each["metadata"]["uid"] for each in changes.deletions] == ["p1", "p2"]
    # What is not available goes at once, and counts.
    pods["n3"] = [_pod("p3", ready=False)]
    changes = replaced(_nodes(pods, "p0"), Limits(0, 2))
    assert [each["metadata"]["uid"] for each in changes.deletions] == ["p3", "p1"]
    pods["n0"] = []
    changes = replaced(_nodes(pods), Limits(0, 1))
    assert [each["metadata"]["uid"] for each in changes.deletions] == ["p3"]


def test_new_pods_come_beside_the_old() -> None:
    pods = {f"n{n}": [_pod(f"p{n}")] for n in range(3)}
    changes = replaced(_nodes(pods), Limits(1, 0))
    assert (changes.deletions, changes.nodes) == ([], ["n0"])
    pods["n0"].append(_pod("new", ready=False))
    assert replaced(_nodes(pods, "new"), Limits(1, 0)) == ([], [])
    pods["n0"][1] = _pod("new")
    changes = replaced(_nodes(pods, "new"), Limits(1, 0))
    assert [each["metadata"]["uid"] for each in changes.deletions] == ["p0"]
    assert changes.nodes == ["n1"]


def test_a_misplaced_pod_stays_until_another_is_there() -> None:
    pods = {"n0": [_pod("p0")], "n1": []}
    assert replaced(_nodes(pods, should_run="n1"), Limits(1, 0)).deletions == []
    pods["n1"] = [_pod("new")]
    found = replaced(_nodes(pods, "new", should_run="n1"), Limits(1, 0))
    assert [each["metadata"]["uid"] for each in found.deletions] == ["p0"]


def test_limits_are_rounded_up() -> None:
    rolling = {"maxSurge": 0, "maxUnavailable": "30%"}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert limits({"spec": {"updateStrategy": strategy}}, 5) == (0, 2)
    rolling["maxUnavailable"] = 0
    assert limits({"spec": {"updateStrategy": strategy}}, 5) == (0, 1)
