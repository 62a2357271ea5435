"""Workloads to be changed by tests."""

from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from tests.apiserver.kinds.hooks import patched

TEMPLATE: Final[Object] = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "a:1"}]},
}
WORKLOAD: Final[Object] = {
    "metadata": {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
    "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": TEMPLATE},
}
"""A Deployment, ReplicaSet, StatefulSet or DaemonSet."""
JOB: Final[Object] = {
    "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
    "spec": {
        "template": {
            "spec": {"containers": [{"name": "c", "image": "a:1"}], "restartPolicy": "Never"}
        }
    },
}


def workload(
    spec: Object | None = None, metadata: Object | None = None, status: Object | None = None
) -> Object:
    """Return a workload with other members."""
    changed = patched(WORKLOAD, {"spec": spec or {}, "metadata": metadata or {}})
    if status is not None:
        changed["status"] = status
    return changed


def job(
    spec: Object | None = None, metadata: Object | None = None, status: Object | None = None
) -> Object:
    """Return a Job with other members."""
    changed = patched(JOB, {"spec": spec or {}, "metadata": metadata or {}})
    if status is not None:
        changed["status"] = status
    return changed
