"""Objects that must exist: created if missing, otherwise left alone.

keep = FixedObjects(loopback, NAMESPACES, namespaces())
await keep.keep()
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.server.loopback import Loopback

NAMESPACES: Final = GroupResource("", "namespaces")
PRIORITY_CLASSES: Final = GroupResource("scheduling.k8s.io", "priorityclasses")
SYSTEM_NAMESPACES: Final = ("kube-system", "kube-public", "default", "kube-node-lease")

_PRIORITIES: Final = (
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another"
        " node if necessary.",
    ),
)


class FixedObjects:
    """Objects of one resource that must exist."""

    def __init__(
        self, loopback: Loopback, resource: GroupResource, objects: Sequence[Object]
    ) -> None:
        """Take the objects; only their names matter if they exist."""
        self._loopback: Final = loopback
        self._resource: Final = resource
        self._objects: Final = objects

    async def keep(self) -> None:
        """Create what is missing; raises ApiError."""
        missing = [each for each in self._objects if not self._is_there(each)]
        if missing:
            await asyncio.gather(*(self._create(each) for each in missing))

    def _is_there(self, obj: Object) -> bool:
        metadata = obj["metadata"]
        found = self._loopback.get(self._resource, metadata.get("namespace", ""), metadata["name"])
        return found is not None

    async def _create(self, obj: Object) -> None:
        try:
            await self._loopback.create(self._resource, obj)
        except ApiError as error:
            if not error.is_conflict:
                raise


def namespaces() -> list[Object]:
    """Return the system's namespaces."""
    return [{"metadata": {"name": each}} for each in SYSTEM_NAMESPACES]


def priority_classes() -> list[Object]:
    """Return the system's priority classes."""
    found: list[dict[str, Any]] = []
    for name, value, description in _PRIORITIES:
        found.append({"metadata": {"name": name}, "value": value, "description": description})
    return found
