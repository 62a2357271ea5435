"""Who may read the files of the page: everybody, as they hold nothing of the cluster."""

from collections.abc import Mapping
from typing import Any, Final

ROOT: Final = "/ui"
NAME: Final = "kvstack:dashboard-files"
OBJECTS: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": NAME},
        "rules": [{"nonResourceURLs": [ROOT, f"{ROOT}/*"], "verbs": ["get"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": NAME,
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
            for group in ("system:authenticated", "system:unauthenticated")
        ],
    },
)
