"""Shared state of the checks of one pod spec.

    scope = SpecScope(spec, "spec", errors=errors, tolerances=Tolerances(), is_pod=True)

The checks of volumes, containers and the rest take the scope, check a part of the spec and add to
`scope.errors`. `volumes` is filled while volumes are checked and holds the valid ones, which mounts
may name.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvstack.apimachinery.objects.core.containers import CONTAINER_LISTS
from kvstack.apimachinery.objects.field_errors import child, index
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.pods.tolerances import Tolerances
from kvstack.apiserver.kinds.rules import Errors


@dataclass(slots=True)
class SpecScope:
    """One pod spec and its context."""

    spec: Object
    path: str
    """Path of the spec: `spec`, or `spec.template.spec` and the like."""
    errors: Errors
    tolerances: Tolerances
    is_pod: bool
    """Whether the spec is a pod's own; a template may lack what is defaulted in pods later."""
    allow_privileged: bool = False
    pod_name: str = ""
    """Name of the pod, if known; claims of ephemeral volumes are named after it."""
    is_mirror: bool = False
    """Whether it is a mirror pod."""
    volumes: dict[str, Object] = field(default_factory=dict)
    claims: set[str] = field(default_factory=set)
    """The names of `resourceClaims`."""
    _containers: list[tuple[Object, str]] | None = None

    @property
    def os(self) -> str:
        """Return the operating system in the spec, or ""."""
        os = self.spec.get("os")
        return os.get("name", "") if os else ""

    @property
    def uses_host_users(self) -> bool:
        """Return whether containers run in the host's user namespace."""
        return self.spec.get("hostUsers") is not False

    def containers(self) -> list[tuple[Object, str]]:
        """Return every container with its path."""
        if self._containers is None:
            self._containers = list(containers_with_paths(self.spec, self.path))
        return self._containers


def containers_with_paths(spec: Object, path: str) -> Iterator[tuple[Object, str]]:
    """Yield every container of a spec with its path: init, regular, ephemeral."""
    for name in CONTAINER_LISTS:
        items = spec.get(name)
        if items:
            list_path = child(path, name)
            for position, item in enumerate(items):
                yield item, index(list_path, position)
