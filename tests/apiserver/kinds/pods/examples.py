"""Pods to be changed by tests."""

from copy import deepcopy
from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.pods.strategy import PODS
from tests.apiserver.kinds.hooks import change_refusals, patched, refusals, warnings_of

POD: Final[Object] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
    "spec": {
        "containers": [{"name": "c", "image": "a:1"}],
        "serviceAccountName": "default",
        "serviceAccount": "default",
    },
}
"""The smallest pod."""


def pod_with(spec: Object, metadata: Object | None = None, status: Object | None = None) -> Object:
    """Return the smallest pod with other members."""
    pod = patched(POD, {"spec": spec, "metadata": metadata or {}})
    if status is not None:
        pod["status"] = deepcopy(status)
    return pod


def container_with(container: Object, **spec: Any) -> Object:
    """Return the smallest pod with other members of its container and of its spec."""
    return pod_with({"containers": [{"name": "c", "image": "a:1", **container}], **spec})


def refused(spec: Object, metadata: Object | None = None, **members: Any) -> list[str]:
    """Return the errors of making the smallest pod with other members."""
    return refusals(PODS, pod_with(spec, metadata), **members)


def refused_container(container: Object, **spec: Any) -> list[str]:
    """Return the errors of a container, without its path where they have it."""
    path = "spec.containers[0]."
    return [each.removeprefix(path) for each in refusals(PODS, container_with(container, **spec))]


def refused_change(new: Object, old: Object) -> list[str]:
    """Return the errors of an update of a pod."""
    return change_refusals(PODS, new, old)


def warned(spec: Object, metadata: Object | None = None) -> list[str]:
    """Return the warnings about the smallest pod with other members."""
    return warnings_of(PODS, pod_with(spec, metadata))
