"""Rights of machines that join, and of nodes that have joined, under kubeadm's names.

    anybody                  reads kube-public/cluster-info, which has nothing secret
    a bootstrap token        asks for a node's certificate, reads how the cluster is set up
    a node                   renews its certificate; reads nodes and Services, for routes and rules

On nodes of kubeadm the last is what the token of each kube-proxy pod may.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

USER: Final = "kvstack:joining"
"""The user that writes what joining machines read."""
JOINING: Final = "system:bootstrappers:kubeadm:default-node-token"
_NODES: Final = "system:nodes"
_API: Final = "rbac.authorization.k8s.io"
_SIGNING: Final = "system:certificates.k8s.io:certificatesigningrequests"
PUBLIC, SYSTEM = "kube-public", "kube-system"
CLUSTER_INFO, KUBELET_CONFIG, CLUSTER_CONFIG = "cluster-info", "kubelet-config", "kubeadm-config"
"""ConfigMaps."""


def _role(name: str, namespace: str, rules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": f"{_API}/v1", "kind": kind, "metadata": meta, "rules": list(rules)}


def _binding(
    name: str, namespace: str, role: tuple[str, str], subjects: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """Return a binding; role, subjects: kind and name."""
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": f"{_API}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": _API, "kind": role[0], "name": role[1]},
        "subjects": [{"apiGroup": _API, "kind": kind, "name": each} for kind, each in subjects],
    }


def _map(name: str, *verbs: str) -> dict[str, Any]:
    found = {"apiGroups": [""], "resources": ["configmaps"], "verbs": list(verbs)}
    return {**found, "resourceNames": [name]} if name else found


_JOINING: Final = ("Group", JOINING)
_BOTH: Final = (("Group", _NODES), _JOINING)
_OF_INFO: Final = "kubeadm:bootstrap-signer-clusterinfo"
_OF_KUBELETS: Final = "kubeadm:kubelet-config"
_OF_CLUSTER: Final = "kubeadm:nodes-kubeadm-config"
_OF_NODES: Final = "kubeadm:get-nodes"

OBJECTS: Final[tuple[Mapping[str, Any], ...]] = (
    _role(_OF_INFO, PUBLIC, [_map(CLUSTER_INFO, "get")]),
    _binding(_OF_INFO, PUBLIC, ("Role", _OF_INFO), [("User", "system:anonymous")]),
    _role(_OF_KUBELETS, SYSTEM, [_map(KUBELET_CONFIG, "get")]),
    _binding(_OF_KUBELETS, SYSTEM, ("Role", _OF_KUBELETS), _BOTH),
    _role(_OF_CLUSTER, SYSTEM, [_map(CLUSTER_CONFIG, "get")]),
    _binding(_OF_CLUSTER, SYSTEM, ("Role", _OF_CLUSTER), _BOTH),
    _role(_OF_NODES, "", [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]),
    _binding(_OF_NODES, "", ("ClusterRole", _OF_NODES), [_JOINING]),
    _binding(
        "kubeadm:kubelet-bootstrap", "", ("ClusterRole", "system:node-bootstrapper"), [_JOINING]
    ),
    _binding(
        "kubeadm:node-autoapprove-bootstrap",
        "",
        ("ClusterRole", f"{_SIGNING}:nodeclient"),
        [_JOINING],
    ),
    _binding(
        "kubeadm:node-autoapprove-certificate-rotation",
        "",
        ("ClusterRole", f"{_SIGNING}:selfnodeclient"),
        [("Group", _NODES)],
    ),
    _binding(
        "kvstack:node-network", "", ("ClusterRole", "system:node-proxier"), [("Group", _NODES)]
    ),
    *(
        each
        for namespace, names in (
            (PUBLIC, [CLUSTER_INFO]),
            (SYSTEM, [KUBELET_CONFIG, CLUSTER_CONFIG]),
        )
        for each in (
            _role(
                USER,
                namespace,
                [_map("", "create"), *(_map(name, "get", "update") for name in names)],
            ),
            _binding(USER, namespace, ("Role", USER), [("User", USER)]),
        )
    ),
)
