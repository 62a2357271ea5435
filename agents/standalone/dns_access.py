"""What DNS may: read the objects that names come from, and write the EndpointSlice of kube-dns.

system:coredns        as upstream's: ServiceAccount kube-system/coredns, so CoreDNS can take over
kvstack:dns           the Service kube-dns and its slices ─► the user of `kvstack up`'s own DNS
"""

from collections.abc import Mapping
from typing import Any, Final

USER: Final = "kvstack:dns"
_READER: Final = "system:coredns"
_API: Final = "rbac.authorization.k8s.io"
_READS: Final = ["list", "watch"]
_NAMESPACE: Final = "kube-system"

OBJECTS: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _READER},
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["endpoints", "services", "pods", "namespaces"],
                "verbs": _READS,
            },
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": _READS},
        ],
    },
    {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _READER},
        "roleRef": {"apiGroup": _API, "kind": "ClusterRole", "name": _READER},
        "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": _NAMESPACE}],
    },
    {
        "apiVersion": f"{_API}/v1",
        "kind": "Role",
        "metadata": {"name": USER, "namespace": _NAMESPACE},
        "rules": [
            {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "create"]},
            {
                "apiGroups": ["discovery.k8s.io"],
                "resources": ["endpointslices"],
                "verbs": ["create", "update", "delete"],
            },
        ],
    },
    {
        "apiVersion": f"{_API}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": USER, "namespace": _NAMESPACE},
        "roleRef": {"apiGroup": _API, "kind": "Role", "name": USER},
        "subjects": [{"apiGroup": _API, "kind": "User", "name": USER}],
    },
)
