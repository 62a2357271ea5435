"""The hooks of a kind: what happens to its objects that the table of kinds cannot say.

    decode → default → [admission] → prepare_create → validate → warnings → store
    decode → default → [admission] → prepare_update → validate_update → update_warnings → store

One `Strategy` describes one resource in its storage version, and each of its subresources that is
written (`status`, `scale`, …) has one of its own. Everything here is pure: time, chance and
settings come in the `Context`. Objects are plain dicts that were decoded by their type (zero values
that Go would omit are absent); `prepare_*` and `default` change the given object in place,
validators only look. Metadata that all kinds share is handled by the verbs, not here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError
from kvstack.apimachinery.objects.unchanged import keeps
from kvstack.apiserver.kinds.access import NO_ACCESS, Access
from kvstack.apiserver.kinds.expressions import NO_EXPRESSIONS, Expressions

Obj = dict[str, Any]
"""An object as JSON has it."""


@dataclass(slots=True)
class Context:
    """What a hook may know of the request and the server; made by the verb."""

    now: str
    """The time of the request, RFC 3339 in seconds, UTC."""
    namespace: str = ""
    api_version: str = "v1"
    """Group and version of the request, as `apiVersion` has them; it need not be the stored one."""
    user: str = ""
    user_uid: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What else is known of the user."""
    verb: str = "update"
    """What the user does, as authorization names it."""
    is_dry_run: bool = False
    allow_privileged: bool = True
    new_uid: Callable[[], str] = field(default=lambda: "")
    """Returns a fresh random UID."""
    access: Access = NO_ACCESS
    """Knows what else the user may do; nothing, if it is not given."""
    expressions: Expressions = NO_EXPRESSIONS
    """Knows whether expressions in CEL compile; none does, if it is not given."""
    warnings: list[str] = field(default_factory=list)
    """What preparation has to tell the client; it is told before what `warnings` returns."""


def _nothing(*_objects: object) -> None:
    return None


def _no_errors(*_objects: object) -> list[FieldError]:
    return []


def _no_warnings(*_objects: object) -> list[str]:
    return []


@dataclass(slots=True, kw_only=True)
class Conversion:
    """How a served version that is not the stored one is turned into that and back.

    request   decode → default → to_stored    (no defaults of the stored version)
    answer    to_served → encode

    Neither changes what it is given, since that may be stored or compared with later. What is
    returned may share parts with it.
    """

    to_stored: Callable[[Obj], Obj]
    """Return the object in the stored version; the given one stays as it is."""
    to_served: Callable[[Obj], Obj]
    """Return a stored object in this version; the given one stays as it is."""
    default: Callable[[Obj], None] = _nothing
    """Fill in the defaults of this version."""

    def __post_init__(self) -> None:
        """Have the rule checked while tests run."""
        self.to_stored = keeps(0)(self.to_stored)
        self.to_served = keeps(0)(self.to_served)


@dataclass(slots=True, kw_only=True)
class Scaling:
    """How the subresource `scale` of a resource reads and writes its objects."""

    path: tuple[str, ...]
    """Of the replicas that are wanted."""
    scale_of: Callable[[Obj], Obj]
    """Return the Scale of an object; raises ApiError."""
    set_replicas: Callable[[Obj, Obj], None]
    """(object, Scale): take over the replicas; raises ApiError."""
    read: Callable[[Obj], Obj] | None = None
    """Return the Scale that a GET answers; raises ApiError. None: `scale_of` does."""
    before: Callable[[Obj], Obj] | None = None
    """Return the Scale that a change begins with; raises ApiError. None: `scale_of` does."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Deletion:
    """How the objects of a resource are deleted; what is not given does nothing."""

    grace_period: Callable[[Obj, int | None], int] | None = None
    """(object, seconds that the request asks for, if it does): return the seconds until a deleted
    object is removed, 0: at once. None: all are removed at once."""
    mark: Callable[[Obj, str], None] | None = None
    """(object, now): mark an object that something has to be done for before it goes; None: only
    finalizers hold it."""
    sets_finalizers: bool = True
    """Whether a delete looks at the propagation policy and adds or removes finalizers for it."""
    refusal: Callable[[str], str] | None = None
    """(name): return why an object of that name is never deleted by its name; empty: it may be."""
    orphans_by_default: bool = False
    """Whether a delete that names no policy orphans dependents."""
    orphans_warning: str = ""
    """What is told to who deletes so; empty: nothing."""
    returns_object: bool = False
    """Whether a delete answers the object's last state, although its API promises a Status."""
    allows_unread: bool = True
    """Whether an object that cannot be read can be deleted all the same."""


@dataclass(slots=True, frozen=True, kw_only=True)
class TableFormat:
    """What Tables of a resource have besides the cells."""

    is_served: bool = True
    """Whether objects can be had as Tables."""
    conditions: Callable[[Obj], list[Obj]] | None = None
    """Return the conditions of the row of an object in a Table."""
    adjust_list: Callable[[Sequence[Obj], Sequence[list[Any]]], None] | None = None
    """(objects, their cells) of a whole list: change what depends on the other objects."""
    order: Callable[[Obj], Any] | None = None
    """Return what the rows of a whole list are sorted by in a Table; None: as they are listed."""
    hidden_annotations: frozenset[str] = frozenset()
    """What stands for fields of the internal version: it is neither in rows of Tables nor where
    metadata is given alone."""


DELETION: Final = Deletion()
TABLE: Final = TableFormat()
NO_TABLE: Final = TableFormat(is_served=False)


@dataclass(slots=True, kw_only=True)
class Strategy:
    """The hooks of one resource or subresource; what is not given does nothing."""

    default: Callable[[Obj], None] = _nothing
    """Fill in defaults after decoding, also of what is read from the store."""
    default_times: Callable[[Obj, str], None] = _nothing
    """(object of a request in any version, now): fill in times that default to that of the request.
    Unlike times that are set in preparation they are the writer's, who owns their fields."""
    prepare_create: Callable[[Obj, Context], None] = _nothing
    """Drop what clients may not set, set what the server sets; the generation included."""
    prepare_update: Callable[[Obj, Obj, Context], None] = _nothing
    """(new, old): copy back what this endpoint may not change; raise the generation if it must."""
    validate: Callable[[Obj, Context], list[FieldError]] = _no_errors
    """Return all errors of a new object, without those of its metadata that all kinds share."""
    validate_update: Callable[[Obj, Obj, Context], list[FieldError]] = _no_errors
    """(new, old): return all errors of the new object and of the change."""
    warnings: Callable[[Obj, Context], list[str]] = _no_warnings
    update_warnings: Callable[[Obj, Obj, Context], list[str]] = _no_warnings
    check_name: Callable[[str, bool], list[str]] | None = None
    """(name, whether it is only a prefix): return what is wrong; None: a DNS subdomain."""
    checks_metadata_last: bool = False
    """Whether the metadata of a new object is only looked at when nothing else is wrong."""
    allows_any_finalizer: bool = False
    """Whether finalizers without a domain need not be among the standard ones."""
    allows_create_on_update: bool = False
    """Whether PUT makes an object that is not there."""
    allows_unconditional_update: bool = True
    """Whether PUT without a resourceVersion overwrites."""
    has_generation: bool = False
    """Whether a new object has generation 1 (setting a deletionTimestamp then raises it)."""
    asks_for_more: "Callable[[Obj, Obj], bool] | None" = None
    """(new, old), both in a version that is not the stored one: whether the change is one there, so
    that the generation is raised even if the stored version keeps nothing of it."""
    deletion: Deletion = DELETION
    expires: bool = False
    """Whether objects go by themselves after the time of `--event-ttl`."""
    reset_fields: Sequence[tuple[str, ...]] = ()
    """Paths that a write to this endpoint never owns."""
    owned_fields: Sequence[tuple[str, ...]] = ()
    """Paths below which alone a write to this endpoint owns fields, `*` for the items of a list;
    none: everywhere but in `reset_fields`."""
    selectable: Callable[[Obj], dict[str, str]] | None = None
    """Return the fields that a field selector may name, besides those of metadata."""
    cells: Callable[[Obj, float], list[Any]] | None = None
    """(object, now in seconds): return the cells of its row in a Table, in column order."""
    table: TableFormat = TABLE
    is_completed_when_read: bool = False
    """Whether upstream stores new objects without something that reading adds, so that their first
    update is written even if it changes nothing."""
    tells_metadata_twice: bool = False
    """Whether errors about the metadata of a changed object are told twice."""
    tells_repeated: bool = False
    """Whether an error that validation of a new object finds again is told again."""
    scaling: "Scaling | None" = None
    """How its Scale is made; None: as that of the built-in workloads."""
    conversions: Mapping[str, Conversion] = field(default_factory=dict)
    """Of the served versions that are not the stored one, by version (`v1`)."""
    subresources: Mapping[str, "Strategy"] = field(default_factory=dict)


def with_status(
    main: Strategy,
    *,
    prepare_update: Callable[[Obj, Obj, Context], None],
    validate_update: Callable[[Obj, Obj, Context], list[FieldError]] = _no_errors,
    update_warnings: Callable[[Obj, Obj, Context], list[str]] = _no_warnings,
    reset_fields: Sequence[tuple[str, ...]] = (("spec",),),
    table: TableFormat | None = None,
) -> Strategy:
    """Return the hooks of a resource with those of its subresource `status`.

    Who writes the resource never owns its status, who writes the status not `reset_fields`.
    Defaults, cells, the format of Tables if there is no other, and whether a resourceVersion is
    needed are the resource's.
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
