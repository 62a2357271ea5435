"""The objects of contents, by resource, by name and by uid."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.clusters.contents import Contents
from kvstack.clusters.kinds import Kinds

PODS: Final = GroupResource("", "pods")
ACCOUNTS: Final = GroupResource("", "serviceaccounts")
SERVICES: Final = GroupResource("", "services")
EVENTS: Final = GroupResource("", "events")
CLAIMS: Final = GroupResource("", "persistentvolumeclaims")
CLASSES: Final = GroupResource("storage.k8s.io", "storageclasses")
SLICES: Final = GroupResource("discovery.k8s.io", "endpointslices")
INGRESSES: Final = GroupResource("networking.k8s.io", "ingresses")
NAMESPACES: Final = GroupResource("", "namespaces")
JOBS: Final = GroupResource("batch", "jobs")


class IdentifiedObject(NamedTuple):
    """An object, and what it is."""

    resource: GroupResource
    kind: str
    path: str
    obj: Object
    is_custom: bool

    @property
    def name(self) -> str:
        """The kind and the path, as people write them."""
        return f"{self.kind.lower()} {self.path}"


class Objects:
    """All objects of contents that can be read."""

    def __init__(self, contents: Contents) -> None:
        """Read them."""
        kinds = Kinds.of(contents.rows)
        self._all: Final[dict[tuple[GroupResource, str], IdentifiedObject]] = {}
        self.by_uid: Final[dict[str, IdentifiedObject]] = {}
        for key_of, obj in kinds.objects(contents.rows):
            is_custom = key_of.rows[0].is_custom
            known = IdentifiedObject(key_of.resource, key_of.kind, key_of.path, obj, is_custom)
            self._all[key_of.resource, key_of.path] = known
            uid = obj["metadata"].get("uid")
            if uid:
                self.by_uid[uid] = known

    def __iter__(self) -> Iterator[IdentifiedObject]:
        """Iterate over all."""
        return iter(self._all.values())

    def of(self, resource: GroupResource) -> Iterator[IdentifiedObject]:
        """Yield those of a resource."""
        return (each for (found, _), each in self._all.items() if found == resource)

    def get(self, resource: GroupResource, path: str) -> IdentifiedObject | None:
        """Return one; None: there is none."""
        return self._all.get((resource, path))


def images_of(pod: Mapping[str, Any]) -> Iterable[str]:
    """Return the images of a pod's containers."""
    spec = pod.get("spec") or {}
    for member in ("initContainers", "containers"):
        for each in spec.get(member) or ():
            if each.get("image"):
                yield each["image"]
