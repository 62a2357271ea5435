"""The hooks of a kind: what the table of kinds cannot express.

    decode → default → [admission] → prepare_create → validate → warnings → store
    decode → default → [admission] → prepare_update → validate_update → update_warnings → store

One `Strategy` describes one resource in its storage version, and each writable subresource
(`status`, `scale`, …) has one of its own. Everything here is pure: time, randomness and settings
come in the `Context`. Objects are plain dicts that were decoded by their type (zero values that Go
would omit are absent); `prepare_*` and `default` change the given object in place, validators do
not. The verbs handle metadata that all kinds share.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.unchanged import keeps
from kvstack.apiserver.kinds.access import NO_ACCESS, Access
from kvstack.apiserver.kinds.expressions import NO_EXPRESSIONS, Expressions


@dataclass(slots=True)
class Context:
    """What a hook may know of the request and the server."""

    now: str
    """The time of the request, RFC 3339 in seconds, UTC."""
    namespace: str = ""
    api_version: str = "v1"
    """Group and version of the request, as in `apiVersion`; possibly not the storage version."""
    user: str = ""
    user_uid: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Extra attributes of the user."""
    verb: str = "update"
    """The verb, as in authorization."""
    is_dry_run: bool = False
    allow_privileged: bool = False
    """Whether pods may have privileged containers: a flag of the server, off by default."""
    new_uid: Callable[[], str] = field(default=lambda: "")
    """Returns a random UID."""
    access: Access = NO_ACCESS
    """Further permissions of the user; the default has none."""
    expressions: Expressions = NO_EXPRESSIONS
    """Compiles CEL expressions; the default compiles none."""
    warnings: list[str] = field(default_factory=list)
    """Warnings of preparation; they precede those that `warnings` returns."""


def _nothing(*_objects: object) -> None:
    return None


def _no_errors(*_objects: object) -> list[FieldError]:
    return []


def _no_warnings(*_objects: object) -> list[str]:
    return []


@dataclass(slots=True, kw_only=True)
class Conversion:
    """Conversion between the storage version and another served version.

    request   decode → default → to_stored    (no defaults of the storage version)
    answer    to_served → encode

    Arguments are not changed, since they may be stored or compared later. The result may share
    parts with them.
    """

    to_stored: Callable[[Object], Object]
    """Returns the object in the storage version; the argument is not changed."""
    to_served: Callable[[Object], Object]
    """Returns a stored object in this version; the argument is not changed."""
    default: Callable[[Object], None] = _nothing
    """Sets the defaults of this version."""

    def __post_init__(self) -> None:
        """Wrap the conversions with a check in tests."""
        self.to_stored = keeps(0)(self.to_stored)
        self.to_served = keeps(0)(self.to_served)


@dataclass(slots=True, kw_only=True)
class Scaling:
    """How the subresource `scale` of a resource reads and writes its objects."""

    path: tuple[str, ...]
    """Path of the desired replicas."""
    scale_of: Callable[[Object], Object]
    """Returns the Scale of an object; raises ApiError."""
    set_replicas: Callable[[Object, Object], None]
    """(object, Scale): sets the replicas; raises ApiError."""
    read: Callable[[Object], Object] | None = None
    """Returns the Scale for a GET; raises ApiError. None: `scale_of`."""
    before: Callable[[Object], Object] | None = None
    """Returns the Scale that a change starts with; raises ApiError. None: `scale_of`."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Deletion:
    """How the objects of a resource are deleted."""

    grace_period: Callable[[Object, int | None], int] | None = None
    """(object, seconds of the request, if given): returns the grace period in seconds, 0:
    immediate. None: all are removed immediately."""
    mark: Callable[[Object, str], None] | None = None
    """(object, now): marks an object that needs cleanup before its removal; None: only finalizers
    hold it."""
    sets_finalizers: bool = True
    """Whether the propagation policy adds or removes finalizers."""
    refusal: Callable[[str], str] | None = None
    """(name): returns why an object is never deleted by its name; empty: it may be."""
    orphans_by_default: bool = False
    """Whether a delete without a policy orphans dependents."""
    orphans_warning: str = ""
    """Warning for such a delete; empty: none."""
    returns_object: bool = False
    """Whether a delete answers the object's last state, although its API promises a Status."""
    allows_unread: bool = True
    """Whether unreadable objects can be deleted."""


@dataclass(slots=True, frozen=True, kw_only=True)
class TableFormat:
    """Properties of a resource's Tables besides the cells."""

    is_served: bool = True
    """Whether Tables are supported."""
    conditions: Callable[[Object], list[Object]] | None = None
    """Returns the conditions of an object's row."""
    adjust_list: Callable[[Sequence[Object], Sequence[list[Any]]], None] | None = None
    """(objects, their cells) of a whole list: changes what depends on other objects."""
    order: Callable[[Object], Any] | None = None
    """Returns the sort key of rows of a whole list; None: in list order."""
    hidden_annotations: frozenset[str] = frozenset()
    """Annotations that represent fields of the internal version: left out of Table rows and of
    metadata-only answers."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Peculiarities:
    """What clients see of upstream's implementation of single resources: no rule of the API."""

    checks_metadata_last: bool = False
    """Whether the metadata of a new object is only checked if nothing else is wrong."""
    reports_metadata_twice: bool = False
    """Whether errors about the metadata of a changed object are reported twice."""
    reports_repeated: bool = False
    """Whether duplicate errors of a new object are reported."""
    is_completed_when_read: bool = False
    """Whether new objects are stored without something that reading adds, so that their first
    update is written even if it changes nothing."""


NO_PECULIARITIES: Final = Peculiarities()
DELETION: Final = Deletion()
TABLE: Final = TableFormat()
NO_TABLE: Final = TableFormat(is_served=False)


@dataclass(slots=True, kw_only=True)
class Strategy:
    """The hooks of one resource or subresource; the defaults do nothing."""

    default: Callable[[Object], None] = _nothing
    """Sets defaults after decoding, also after reads from the store."""
    default_times: Callable[[Object, str], None] = _nothing
    """(object of a request in any version, now): sets times that default to the request's. Unlike
    times set in preparation they belong to the writer, who owns their fields."""
    prepare_create: Callable[[Object, Context], None] = _nothing
    """Drops what clients may not set, sets what the server sets, including the generation."""
    prepare_update: Callable[[Object, Object, Context], None] = _nothing
    """(new, old): restores what this endpoint may not change; increments the generation if
    necessary."""
    validate: Callable[[Object, Context], list[FieldError]] = _no_errors
    """Returns all errors of a new object, without those of its metadata that all kinds share."""
    validate_update: Callable[[Object, Object, Context], list[FieldError]] = _no_errors
    """(new, old): returns all errors of the new object and of the change."""
    warnings: Callable[[Object, Context], list[str]] = _no_warnings
    update_warnings: Callable[[Object, Object, Context], list[str]] = _no_warnings
    check_name: Callable[[str, bool], list[str]] | None = None
    """(name, whether it is only a prefix): returns the errors; None: a DNS subdomain."""
    allows_any_finalizer: bool = False
    """Whether finalizers without a domain need not be among the standard ones."""
    allows_create_on_update: bool = False
    """Whether PUT creates a missing object."""
    allows_unconditional_update: bool = True
    """Whether PUT without a resourceVersion overwrites."""
    has_generation: bool = False
    """Whether a new object has generation 1 (setting a deletionTimestamp then increments it)."""
    asks_for_more: "Callable[[Object, Object], bool] | None" = None
    """(new, old), both in a version that is not the storage version: whether they differ in that
    version, so that the generation is incremented even if the storage version loses the
    difference."""
    deletion: Deletion = DELETION
    expires: bool = False
    """Whether objects expire after `--event-ttl`."""
    reset_fields: Sequence[tuple[str, ...]] = ()
    """Paths that a write to this endpoint never owns."""
    owned_fields: Sequence[tuple[str, ...]] = ()
    """The only paths below which a write to this endpoint owns fields, `*` for the items of a list;
    empty: everywhere but in `reset_fields`."""
    selectable: Callable[[Object], dict[str, str]] | None = None
    """Returns the selectable fields, besides those of metadata."""
    cells: Callable[[Object, float], list[Any]] | None = None
    """(object, now in seconds): returns the cells of its Table row, in column order."""
    table: TableFormat = TABLE
    peculiarities: Peculiarities = NO_PECULIARITIES
    scaling: "Scaling | None" = None
    """How its Scale is made; None: as that of the built-in workloads."""
    conversions: Mapping[str, Conversion] = field(default_factory=dict)
    """Conversions of the served versions besides the storage version, by version (`v1`)."""
    subresources: Mapping[str, "Strategy"] = field(default_factory=dict)


def with_status(
    main: Strategy,
    *,
    prepare_update: Callable[[Object, Object, Context], None],
    validate_update: Callable[[Object, Object, Context], list[FieldError]] = _no_errors,
    update_warnings: Callable[[Object, Object, Context], list[str]] = _no_warnings,
    reset_fields: Sequence[tuple[str, ...]] = (("spec",),),
    table: TableFormat | None = None,
) -> Strategy:
    """Return the hooks of a resource, and those of its subresource `status`.

    Writers of the resource never own its status, writers of the status do not own `reset_fields`.
    The resource provides defaults, cells, the Table format by default, and whether a
    resourceVersion is required.
    """
    status = Strategy(
        default=main.default,
        prepare_update=prepare_update,
        validate_update=validate_update,
        update_warnings=update_warnings,
        allows_unconditional_update=main.allows_unconditional_update,
        reset_fields=reset_fields,
        cells=main.cells,
        table=table or main.table,
    )
    return replace(
        main,
        reset_fields=(("status",),),
        subresources={**main.subresources, "status": status},
    )
