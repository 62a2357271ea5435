"""What a plugin of admission is asked about.

Objects share parts with what is stored, so a plugin changes in place only the top level of
`request.object`; what is below it copies first:

    spec = request.own("spec")
    spec["tolerations"] = [*(spec.get("tolerations") or ()), added]

Members may end up in any order; who stores the object puts them in that of its type.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.types import Type

Obj = dict[str, Any]

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"
CONNECT: Final = "CONNECT"


class VersionedResource(NamedTuple):
    """A resource at one of the versions that are served, and the kind of the objects there."""

    group: str
    version: str
    resource: str
    kind: Kind


class Versions(Protocol):
    """The versions of the resource that is written, for those who see objects in another."""

    @property
    def served(self) -> Sequence[VersionedResource]:
        """All versions, that of the request first."""
        ...

    def type_of(self, versioned: VersionedResource) -> Type:
        """Return the type of the objects in a version."""
        ...

    async def show(self, obj: Obj, versioned: VersionedResource) -> Obj:
        """Return an object in a version; the given one stays as it is. Raises ApiError."""
        ...

    async def take(self, obj: Obj, versioned: VersionedResource) -> Obj:
        """Return a plain object of a version as plugins see it: decoded, with its defaults.

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
    """Of `object`."""
    version: str = "v1"
    """Of the resource, as the request names it."""
    subresource: str = ""
    namespace: str = ""
    """Of the URL; that of a Namespace is its own name."""
    name: str = ""
    """Of the URL, or of the object; empty if it is still to be generated."""
    object: Obj | None = None
    """As it is to be stored, in the stored version with all defaults, its top level the request's
    own. Options of a connection, the body of a subresource that has one; None: a delete."""
    old: Obj | None = None
    """As it is stored; never changed. None: a create."""
    options: Obj = field(default_factory=dict)
    """CreateOptions, UpdateOptions, PatchOptions or DeleteOptions."""
    is_dry_run: bool = False
    warnings: list[str] = field(default_factory=list)
    """What the client is to be told."""
    annotations: dict[str, str] = field(default_factory=dict)
    """For the audit log."""
    is_detailed: bool = False
    """Whether the audit log records objects, and so annotations that hold parts of them."""
    versions: Versions | None = None
    """Of the resource; None: plugins are asked outside of a request."""
    is_second_round: bool = False
    """Whether plugins are asked again, because others changed the object after them."""
    wants_second_round: bool = False
    """Set by who changed the object and wants others to look at it again."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What plugins remember for the second round, by their names."""

    @property
    def new(self) -> Obj:
        """The object, where there must be one."""
        assert self.object is not None
        return self.object

    def own(self, member: str) -> Obj:
        """Return a member of the object, made if it is absent, whose top level may be changed."""
        owned: Obj = dict(self.new.get(member) or {})
        self.new[member] = owned
        return owned

    @property
    def shown_name(self) -> str:
        """The name that refusals give."""
        if self.name:
            return self.name
        metadata = (self.object or {}).get("metadata") or {}
        name: str = metadata.get("name") or metadata.get("generateName") or "Unknown"
        return name

    def forbidden(self, message: str) -> status.ApiError:
        """Return the 403 of a plugin."""
        return status.forbidden(self.resource, self.shown_name, message)
