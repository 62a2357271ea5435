"""Resources as a client names them, and their paths.

PODS.path("default", "web", "status")   → /api/v1/namespaces/default/pods/web/status
NODES.path("", "n1")                    → /api/v1/nodes/n1
PODS.path()                             → /api/v1/pods: those of all namespaces
"""

from typing import NamedTuple
from urllib.parse import quote

from typing_extensions import override


class ResourceType(NamedTuple):
    """One resource of one group and version."""

    group: str
    version: str
    name: str
    """Plural, as in paths."""
    kind: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of a collection, an object or a subresource."""
        parts = [f"/apis/{self.group}" if self.group else "/api", self.version]
        if namespace and self.is_namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.name)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    @override
    def __str__(self) -> str:
        """Return `name.group`, as messages have it."""
        return f"{self.name}.{self.group}" if self.group else self.name
