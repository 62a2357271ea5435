"""The rights of the local-path provisioner, a service account in kube-system."""

from collections.abc import Mapping
from typing import Any, Final

ACCOUNT: Final = "local-path-provisioner"
_NAMESPACE: Final = "kube-system"
_NAME: Final = "kvstack:local-path-provisioner"
_API: Final = "rbac.authorization.k8s.io"


def _rule(group: str, resources: list[str], *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


OBJECTS: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _NAME},
        "rules": [
            _rule("", ["persistentvolumes"], "get", "create", "update", "delete"),
            _rule("", ["persistentvolumeclaims"], "get", "update"),
            _rule("", ["persistentvolumeclaims/status"], "update"),
            _rule("storage.k8s.io", ["storageclasses"], "create"),
            _rule("", ["events"], "create", "patch"),
        ],
    },
    {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _NAME},
        "roleRef": {"apiGroup": _API, "kind": "ClusterRole", "name": _NAME},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": _NAMESPACE}],
    },
)
