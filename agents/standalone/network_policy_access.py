"""The rights of nodes to enforce policies: kvstack:network-policies ─► the group system:nodes.

A node of another machine reads with this what agents of upstream's networks read on every node. It
may be unbound, and the node then reports that it enforces nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

from kvstack.agents.standalone.rbac import cluster_role_binding

_ROLE: Final = "kvstack:network-policies"
_API: Final = "rbac.authorization.k8s.io"
_READS: Final = ["list", "watch"]

OBJECTS: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _ROLE},
        "rules": [
            {"apiGroups": [""], "resources": ["namespaces", "pods"], "verbs": _READS},
            {
                "apiGroups": ["networking.k8s.io"],
                "resources": ["networkpolicies"],
                "verbs": _READS,
            },
        ],
    },
    cluster_role_binding(_ROLE, _ROLE, "system:nodes"),
)
