"""Roles and bindings of `kvstack up` beside those that every cluster has.

    kubeadm:cluster-admins       the group of admin.conf ─► ClusterRole cluster-admin
    kvstack:kubelet-clients      API servers towards kubelets ─► system:kubelet-api-admin
    kvstack:store-monitoring     health and metrics of the store ─► the group system:monitoring

They are created where they are missing, and may then be changed. Unlike the group system:masters,
kubeadm:cluster-admins has the rights that its binding gives.
"""

from collections.abc import Mapping
from typing import Any, Final

from kvstack.agents.standalone.pages.store import MONITORED_PATHS
from kvstack.apimachinery.attributes import CLUSTER_ADMINS
from kvstack.apiserver.server.certs.pki import KUBELET_CLIENT

_API: Final = "rbac.authorization.k8s.io"
_MONITORS: Final = "kvstack:store-monitoring"


def cluster_role_binding(
    name: str, role: str, subject: str, *, kind: str = "Group"
) -> dict[str, Any]:
    """Return a binding of a group, or of another kind of subject, to a ClusterRole."""
    return {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _API, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _API, "kind": kind, "name": subject}],
    }


KUBELET_CLIENTS: Final = cluster_role_binding(
    "kvstack:kubelet-clients", "system:kubelet-api-admin", KUBELET_CLIENT.name, kind="User"
)
ADMINISTRATORS: Final = cluster_role_binding(CLUSTER_ADMINS, "cluster-admin", CLUSTER_ADMINS)
OBJECTS: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _MONITORS},
        "rules": [{"nonResourceURLs": list(MONITORED_PATHS), "verbs": ["get"]}],
    },
    cluster_role_binding(_MONITORS, _MONITORS, "system:monitoring"),
    KUBELET_CLIENTS,
    ADMINISTRATORS,
)
