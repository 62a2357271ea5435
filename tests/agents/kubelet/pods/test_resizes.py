"""What a resize changes, what starts anew for it, and what a node has no room for."""

from typing import Any

import pytest

from kvstack.agents.kubelet.pods.admission import resize_refusal
from kvstack.agents.kubelet.pods.resizes import (
    Note,
    Resize,
    changed,
    conditions_of,
    is_same,
    resources_of,
    restarts,
    with_resources,
)
from kvstack.agents.scheduler.snapshot.pod_resources import requests_of
from kvstack.apimachinery.objects.json_object import Object

NODE = {"status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "110"}}}


def requests(cpu: str, memory: str = "64Mi") -> Object:
    return {"requests": {"cpu": cpu, "memory": memory}}


def pod(resources: Object, **status: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": resources}
    return {
        "metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {"containers": [container, {"name": "other", "image": "i"}]},
        "status": {"phase": "Running", **status},
    }


def test_amounts_are_compared_as_amounts() -> None:
    assert changed(requests("100m"), requests("0.1")) == []
    assert changed(requests("100m"), requests("200m", "65Mi")) == ["cpu", "memory"]
    assert changed({}, {"limits": {"cpu": "1"}}) == ["cpu"]
    assert changed({}, {"limits": {"nvidia.com/gpu": "1"}}) == []
    assert is_same({"c": requests("1")}, {"c": requests("1000m"), "gone": {}})


def test_a_pod_with_what_it_was_given() -> None:
    given = pod(requests("100m"))
    assert with_resources(given, None) is given
    assert with_resources(given, resources_of(given)) is given
    found = with_resources(given, {"c": requests("50m")})
    assert resources_of(found) == {"c": requests("50m"), "other": {}}
    assert resources_of(given)["c"] == requests("100m"), "the pod itself is as it was"


@pytest.mark.parametrize(
    ("policies", "before", "is_so"),
    [
        ({}, requests("1", "1Mi"), False),
        ({"cpu": "RestartContainer"}, requests("1"), True),
        ({"cpu": "RestartContainer"}, requests("100m", "1Mi"), False),
        ({"memory": "RestartContainer", "cpu": "NotRequired"}, requests("1"), False),
        ({"memory": "RestartContainer"}, requests("100m", "1Mi"), True),
    ],
)
def test_what_starts_anew(policies: dict[str, str], before: Object, *, is_so: bool) -> None:
    given = [{"resourceName": name, "restartPolicy": each} for name, each in policies.items()]
    container = {"name": "c", "resources": requests("100m"), "resizePolicy": given}
    assert restarts(container, before) is is_so


def test_conditions_are_those_that_hold() -> None:
    assert conditions_of(Resize()) == []
    both = Resize(pending=Note("Deferred", "later"), progress=Note())
    assert conditions_of(both) == [
        ("PodResizePending", ("Deferred", "later")),
        ("PodResizeInProgress", ("", "")),
    ]


def test_what_a_node_has_no_room_for() -> None:
    other = pod(requests("1500m"))
    assert resize_refusal(pod(requests("500m")), NODE, [other]) is None
    assert resize_refusal(pod(requests("501m")), NODE, [other]) == (
        "Deferred",
        "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000",
    )
    assert resize_refusal(pod(requests("2001m")), NODE, []) == (
        "Infeasible",
        "Node didn't have enough capacity: cpu, requested: 2001, capacity: 2000",
    )
    ended = pod(requests("1500m")) | {"status": {"phase": "Succeeded"}}
    assert resize_refusal(pod(requests("2")), NODE, [ended]) is None
    static = pod(requests("1"))
    static["metadata"]["annotations"] = {"kubernetes.io/config.source": "file"}
    found = resize_refusal(static, NODE, [])
    assert found == ("Infeasible", "In-place resize of static-pods is not supported")


@pytest.mark.parametrize(("reason", "cpu"), [("", 3000), ("Deferred", 3000), ("Infeasible", 200)])
def test_the_scheduler_counts_what_may_still_be_given(reason: str, cpu: int) -> None:
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    own = {"name": "c", "allocatedResources": {"cpu": "100m"}, "resources": requests("200m")}
    asks = pod(requests("3"), containerStatuses=[own], conditions=conditions if reason else [])
    assert requests_of(asks, placed=True)["cpu"] == cpu
    assert requests_of(asks)["cpu"] == 3000
