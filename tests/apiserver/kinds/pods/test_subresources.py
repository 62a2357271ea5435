"""Ephemeral containers and resizes."""

from copy import deepcopy
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.pods.strategy import PODS
from tests.apiserver.kinds.hooks import change_refusals, changed
from tests.apiserver.kinds.pods.examples import container_with, pod_with

EPHEMERAL = PODS.subresources["ephemeralcontainers"]
RESIZE = PODS.subresources["resize"]
DEBUG = {
    "name": "d",
    "image": "a:1",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}


def test_only_ephemeral_containers_are_taken() -> None:
    """All else is the stored pod's, but the resourceVersion."""
    old = pod_with({"nodeName": "n"}, {"generation": 3}, {"phase": "Running"})
    new = pod_with(
        {"nodeName": "m", "ephemeralContainers": [DEBUG]},
        {"labels": {"a": "b"}, "resourceVersion": "7"},
        {"phase": "Failed"},
    )
    found = changed(EPHEMERAL, new, old)
    assert found["spec"]["nodeName"] == "n"
    assert [each["name"] for each in found["spec"]["ephemeralContainers"]] == ["d"]
    assert "labels" not in found["metadata"]
    assert (found["metadata"]["generation"], found["metadata"]["resourceVersion"]) == (4, "7")
    assert found["status"] == {"phase": "Running"}
    assert change_refusals(EPHEMERAL, new, old) == []


def test_ephemeral_containers_stay() -> None:
    """They are neither removed nor changed; others may come in any place."""
    old = pod_with({"ephemeralContainers": [DEBUG]})
    path = "spec.ephemeralContainers: Forbidden: existing ephemeral containers"
    assert change_refusals(EPHEMERAL, pod_with({}), old) == [f'{path} "d" may not be removed\n']
    other = {**DEBUG, "image": "b:1"}
    (error,) = change_refusals(EPHEMERAL, pod_with({"ephemeralContainers": [other]}), old)
    assert error.startswith(f'{path} "d" may not be changed\n@@ ')
    assert '-  "Image": "a:1",\n+  "Image": "b:1",\n' in error.replace('- "', '-  "').replace(
        '+ "', '+  "'
    )
    more = pod_with({"ephemeralContainers": [{**DEBUG, "name": "e"}, DEBUG]})
    assert change_refusals(EPHEMERAL, more, old) == []


def test_static_pods_take_no_part() -> None:
    """Their kubelet does not know of what is written here."""
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    old = pod_with({"nodeName": "n"}, mirror)
    new = pod_with({"nodeName": "n", "ephemeralContainers": [DEBUG]}, mirror)
    assert change_refusals(EPHEMERAL, new, old) == [
        ": Forbidden: static pods do not support ephemeral containers"
    ]
    assert change_refusals(RESIZE, new, old) == [": Forbidden: static pods cannot be resized"]


def sized(requests: Object, limits: Object | None = None, **spec: Any) -> Object:
    """Return a pod whose container has these resources."""
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    pod = container_with({"resources": resources}, **spec)
    pod["status"] = {"phase": "Running", "qosClass": "Burstable"}
    return pod


def test_only_resources_are_taken() -> None:
    """And the policies of resizes."""
    old = sized({"cpu": "1"}, nodeName="n")
    new = sized({"cpu": "2"}, nodeName="m")
    new["spec"]["containers"][0] |= {
        "image": "b:1",
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    }
    found = changed(RESIZE, new, old)
    (container,) = found["spec"]["containers"]
    assert found["spec"]["nodeName"] == "n"
    assert (container["image"], container["resources"]) == ("a:1", {"requests": {"cpu": "2"}})
    assert len(container["resizePolicy"]) == 1


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (sized({"cpu": "1"}), sized({"cpu": "2", "memory": "1Gi"}), []),
        (
            sized({"cpu": "1"}),
            sized({"memory": "1Gi"}),
            [
                "spec.containers[0].resources.requests: Forbidden: resource requests cannot be"
                " removed"
            ],
        ),
        (sized({"cpu": "1"}), sized({"cpu": "1"}, {"cpu": "2"}), []),
        (
            sized({"cpu": "1"}),
            sized({"cpu": "1", "ephemeral-storage": "1"}),
            ["spec: Forbidden: only cpu and memory resources are mutable"],
        ),
        (
            sized({"cpu": "1"}, os={"name": "windows"}),
            sized({"cpu": "2"}, os={"name": "windows"}),
            [": Forbidden: windows pods cannot be resized"],
        ),
    ],
)
def test_resizes(old: Object, new: Object, expected: list[str]) -> None:
    """Cpu and memory change, nothing is given back."""
    assert change_refusals(RESIZE, new, old) == expected


def test_class_of_service_stays() -> None:
    """A resize cannot make a pod Guaranteed."""
    old = sized({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"})
    new = sized({"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"})
    assert change_refusals(RESIZE, new, old) == [
        'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing'
    ]


def test_nodes_that_cannot_resize() -> None:
    """They do not tell what a running container has."""
    old = sized({"cpu": "1"})
    old["status"]["containerStatuses"] = [{"name": "c", "state": {"running": {}}}]
    new = sized({"cpu": "2"})
    assert change_refusals(RESIZE, new, old) == [
        "spec: Forbidden: Pod running on node without support for resize"
    ]
    old["status"]["containerStatuses"][0]["resources"] = {}
    assert change_refusals(RESIZE, new, old) == []


def test_containers_stay_in_their_order() -> None:
    """Neither other names nor other numbers of containers."""
    old = sized({"cpu": "1"})
    renamed, longer = deepcopy(old), deepcopy(old)
    renamed["spec"]["containers"][0]["name"] = "d"
    longer["spec"]["containers"].append({"name": "d", "image": "a:1"})
    assert change_refusals(RESIZE, renamed, old) == [
        "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"
    ]
    assert change_refusals(RESIZE, longer, old) == [
        "spec.containers: Forbidden: containers may not be added or removed on resize"
    ]


def with_pod_resources(requests: Object | None, container: Object) -> Object:
    """Return a pod with resources of its own."""
    pod = sized(container)
    if requests is not None:
        pod["spec"]["resources"] = {"requests": requests}
    return pod


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            with_pod_resources({"cpu": "2"}, {"cpu": "1"}),
            with_pod_resources({"cpu": "3"}, {"cpu": "1"}),
            [],
        ),
        (
            with_pod_resources({"cpu": "2"}, {"cpu": "1"}),
            with_pod_resources(None, {"cpu": "1"}),
            [],
        ),
        (
            with_pod_resources(None, {"cpu": "1"}),
            with_pod_resources({"cpu": "2"}, {"cpu": "1"}),
            [],
        ),
        (
            with_pod_resources({"cpu": "2"}, {"cpu": "1"}),
            with_pod_resources({"cpu": "2", "hugepages-2Mi": "2Mi"}, {"cpu": "1"}),
            [
                "spec.resources.limits: Required value:"
                " Limit must be set for non overcommitable resources",
                "spec: Forbidden: only cpu and memory resources are mutable at pod-level",
            ],
        ),
        (
            with_pod_resources({"cpu": "2", "memory": "2Gi"}, {"cpu": "1"}),
            with_pod_resources({"cpu": "2"}, {"cpu": "1"}),
            ["spec.resources.requests: Forbidden: pod-level resource requests cannot be removed"],
        ),
    ],
)
def test_resources_of_the_whole_pod(old: Object, new: Object, expected: list[str]) -> None:
    """They are resized as those of containers; left out they stay."""
    assert change_refusals(RESIZE, new, old) == expected


def test_init_containers() -> None:
    """Those that are no sidecars change too, unless a resize would restart them."""
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    first = {"name": "i", "image": "a:1", "resources": {"requests": {"cpu": "1"}}}
    more = {**first, "resources": {"requests": {"cpu": "2"}}}
    old, new = (
        sized({"cpu": "1"}, initContainers=[first]),
        sized({"cpu": "1"}, initContainers=[more]),
    )
    assert change_refusals(RESIZE, new, old) == []
    old["spec"]["initContainers"][0]["resizePolicy"] = policy
    new["spec"]["initContainers"][0]["resizePolicy"] = policy
    assert change_refusals(RESIZE, new, old) == [
        "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of"
        " RestartContainer cannot be resized"
    ]
    other = sized(
        {"cpu": "1"},
        initContainers=[
            {**first, "resources": {"requests": {"cpu": "1", "ephemeral-storage": "1"}}}
        ],
    )
    del old["spec"]["initContainers"][0]["resizePolicy"]
    assert change_refusals(RESIZE, other, old) == [
        "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar"
        " containers are mutable"
    ]
