"""Admission requests.

Objects share parts with what is stored, so a plugin changes in place only the top level of
`request.object`; it copies deeper parts first:

    spec = request.own("spec")
    spec["tolerations"] = [*(spec.get("tolerations") or ()), added]

Members may be in any order; they are sorted by type before the object is stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.types import Type

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"
CONNECT: Final = "CONNECT"


class VersionedResource(NamedTuple):
    """A resource in one served version, and the kind of its objects."""

    group: str
    version: str
    resource: str
    kind: Kind


class Versions(Protocol):
    """The versions of the written resource, for plugins that see objects in another."""

    @property
    def served(self) -> Sequence[VersionedResource]:
        """All versions, that of the request first."""
        ...

    def type_of(self, versioned: VersionedResource) -> Type:
        """Return the type of the objects in a version."""
        ...

    async def show(self, obj: Object, versioned: VersionedResource) -> Object:
        """Return an object in a version; the argument is not changed. Raises ApiError."""
        ...

    async def take(self, obj: Object, versioned: VersionedResource) -> Object:
        """Return a plain object of a version as plugins see it: decoded, with defaults.

        Raises ApiError.
        """
        ...


@dataclass(slots=True)
class AdmissionRequest:
    """One write (or connection) of one object."""

    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    user: User
    resource: GroupResource
    kind: Kind
    """Kind of `object`."""
    version: str = "v1"
    """Version of the resource in the request."""
    subresource: str = ""
    namespace: str = ""
    """Namespace of the URL; that of a Namespace is its own name."""
    name: str = ""
    """Name of the URL, or of the object; empty if it is still to be generated."""
    object: Object | None = None
    """The object in the storage version with all defaults, its top level owned by the request; or
    options of a connection, or the body of a subresource. None: a delete."""
    old: Object | None = None
    """The stored object; never changed. None: a create."""
    options: Object = field(default_factory=dict)
    """CreateOptions, UpdateOptions, PatchOptions or DeleteOptions."""
    is_dry_run: bool = False
    warnings: list[str] = field(default_factory=list)
    """Warnings for the client."""
    annotations: dict[str, str] = field(default_factory=dict)
    """Audit annotations."""
    is_detailed: bool = False
    """Whether the audit records objects, and so annotations that contain parts of them."""
    versions: Versions | None = None
    """Versions of the resource; None: outside of a request."""
    is_second_round: bool = False
    """Whether plugins are called again, because others changed the object after them."""
    wants_second_round: bool = False
    """Set by plugins that changed the object and require a second round."""
    kept: dict[str, Any] = field(default_factory=dict)
    """State that plugins keep for the second round, by plugin name."""

    @property
    def new(self) -> Object:
        """The object, which must exist."""
        assert self.object is not None
        return self.object

    def own(self, member: str) -> Object:
        """Return a copy of a member, made if it is absent, whose top level may be changed."""
        owned: Object = dict(self.new.get(member) or {})
        self.new[member] = owned
        return owned

    @property
    def shown_name(self) -> str:
        """The name in refusals."""
        if self.name:
            return self.name
        metadata = (self.object or {}).get("metadata") or {}
        name: str = metadata.get("name") or metadata.get("generateName") or "Unknown"
        return name

    def forbidden(self, message: str) -> status.ApiError:
        """Return the 403 of a plugin."""
        return status.forbidden(self.resource, self.shown_name, message)
