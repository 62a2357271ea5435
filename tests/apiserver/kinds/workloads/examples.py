"""Workloads to be changed by tests."""

from typing import Any, Final

from tests.apiserver.kinds.hooks import patched

Obj = dict[str, Any]

TEMPLATE: Final[Obj] = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "a:1"}]},
}
WORKLOAD: Final[Obj] = {
    "metadata": {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
    "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": TEMPLATE},
}
"""A Deployment, ReplicaSet, StatefulSet or DaemonSet."""
JOB: Final[Obj] = {
    "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
    "spec": {
        "template": {
            "spec": {"containers": [{"name": "c", "image": "a:1"}], "restartPolicy": "Never"}
        }
    },
}


def workload(
    spec: Obj | None = None, metadata: Obj | None = None, status: Obj | None = None
) -> Obj:
    """Return a workload with other members."""
    changed = patched(WORKLOAD, {"spec": spec or {}, "metadata": metadata or {}})
    if status is not None:
        changed["status"] = status
    return changed


def job(spec: Obj | None = None, metadata: Obj | None = None, status: Obj | None = None) -> Obj:
    """Return a Job with other members."""
    changed = patched(JOB, {"spec": spec or {}, "metadata": metadata or {}})
    if status is not None:
        changed["status"] = status
    return changed
