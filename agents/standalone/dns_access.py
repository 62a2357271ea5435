"""What DNS may: read the objects that names come from, and write the EndpointSlice of kube-dns.

system:coredns        as upstream's: ServiceAccount kube-system/coredns, so CoreDNS can take over
kvstack:dns           Role: the Service kube-dns and its slices ─► the user of DNS
kvstack:dns           ClusterRole: what `kvstack dns` reads ─► the same user

`kvstack up` needs no ClusterRole of its own: its DNS shares the informers of the process.
"""

from collections.abc import Mapping
from typing import Any, Final

from kvstack.apiserver.server.certs.cluster_files import DNS

USER: Final = DNS
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

OF_PROGRAM: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": USER},
        "rules": [
            {"apiGroups": [""], "resources": ["services", "namespaces", "nodes"], "verbs": _READS},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": _READS},
        ],
    },
    {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": USER},
        "roleRef": {"apiGroup": _API, "kind": "ClusterRole", "name": USER},
        "subjects": [{"apiGroup": _API, "kind": "User", "name": USER}],
    },
)
"""For `kvstack dns` as a program of its own, by default: it does not read pods."""
