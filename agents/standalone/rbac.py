"""Roles and bindings of `kvstack up` beside those that every cluster has.

    kubeadm:cluster-admins       the group of admin.conf ─► ClusterRole cluster-admin
    kvstack:store-monitoring     health and metrics of the store ─► the group system:monitoring

They are created where they are missing, and may then be changed. Unlike the group system:masters,
kubeadm:cluster-admins has the rights that its binding gives.
"""

from collections.abc import Mapping
from typing import Any, Final

from kvstack.agents.standalone.pages.store import MONITORED_PATHS
from kvstack.apimachinery.attributes import CLUSTER_ADMINS

_API: Final = "rbac.authorization.k8s.io"
_MONITORS: Final = "kvstack:store-monitoring"


def cluster_role_binding(name: str, role: str, group: str) -> dict[str, Any]:
    """Return a binding of a group to a ClusterRole."""
    return {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _API, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _API, "kind": "Group", "name": group}],
    }


ADMINISTRATORS: Final = cluster_role_binding(CLUSTER_ADMINS, "cluster-admin", CLUSTER_ADMINS)
OBJECTS: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _MONITORS},
        "rules": [{"nonResourceURLs": list(MONITORED_PATHS), "verbs": ["get"]}],
    },
    cluster_role_binding(_MONITORS, _MONITORS, "system:monitoring"),
    ADMINISTRATORS,
)
