"""Who may read the files of the dashboard, and the role for the server's internal state.

    kvstack:dashboard-files       /ui: everybody, as the files hold nothing of the cluster
    kvstack:times                 /at: who has signed in; how far back the past goes, no objects
    kvstack:cluster-observer      /debug and the store's status: for those an administrator names

What the last one shows names users and objects of all namespaces, so it is not bound at
first; administrators have its rights anyway.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

ROOT: Final = "/ui"
FILES: Final = "kvstack:dashboard-files"
TIMES: Final = "kvstack:times"
OBSERVER: Final = "kvstack:cluster-observer"
_API: Final = "rbac.authorization.k8s.io"
_EVERYBODY: Final = ("system:authenticated", "system:unauthenticated")


def _role(name: str, *urls: str) -> Mapping[str, Any]:
    return {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"nonResourceURLs": list(urls), "verbs": ["get"]}],
    }


def _binding(name: str, groups: Sequence[str]) -> Mapping[str, Any]:
    return {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _API, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": _API, "kind": "Group", "name": each} for each in groups],
    }


OBJECTS: Final = (
    _role(FILES, ROOT, f"{ROOT}/*"),
    _binding(FILES, _EVERYBODY),
    _role(TIMES, "/at"),
    _binding(TIMES, _EVERYBODY[:1]),
    _role(OBSERVER, "/debug/*", "/etcd/ui/data"),
)
