"""Who may read resource usage: users who may view a namespace read it there."""

from collections.abc import Mapping
from typing import Any, Final

READERS: Final = "system:aggregated-metrics-reader"
_AGGREGATED: Final = "rbac.authorization.k8s.io/aggregate-to-"

OBJECTS: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": READERS,
            "labels": {f"{_AGGREGATED}{each}": "true" for each in ("view", "edit", "admin")},
        },
        "rules": [
            {
                "apiGroups": ["metrics.k8s.io"],
                "resources": ["pods", "nodes"],
                "verbs": ["get", "list", "watch"],
            },
            {
                "apiGroups": ["metrics.kvstack.io"],
                "resources": ["pods", "nodes"],
                "verbs": ["get"],
            },
        ],
    },
)
"""Made at start if they are missing."""
