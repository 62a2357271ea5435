"""Ownership after a create, update or patch: the writer owns what it changes.

    others   lose what was added, modified or removed
    writer   loses what was removed, gains what was added or modified

There are no conflicts, and the entry of a writer that changes nothing stays as it is, including its
time. The object itself can bring managers, which are stored except for what this write takes from
them; `[]` or `[{}]` clears all. An object without managers is not tracked until it is first applied
to.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.unchanged import keeps
from kvstack.apiserver.apply.comparison import compare
from kvstack.apiserver.apply.conflict import Conflicts
from kvstack.apiserver.apply.endpoint import ConversionError, Endpoint, Versioned, Versions
from kvstack.apiserver.apply.field_set import (
    FieldSet,
    difference,
    intersection,
    of_paths,
    union,
)
from kvstack.apiserver.apply.managed_fields import (
    Entry,
    Managed,
    ManagedFieldsError,
    Manager,
    Managers,
    cap_updaters,
    decode,
    encode,
    is_reset,
    updater,
)
from kvstack.apiserver.apply.ownership import fit_set
from kvstack.apiserver.apply.structure import ItemError
from kvstack.apiserver.apply.validation import mismatches, summary

STRIPPED: Final = of_paths(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    ("f:metadata", "f:name"),
    ("f:metadata", "f:namespace"),
    ("f:metadata", "f:creationTimestamp"),
    ("f:metadata", "f:selfLink"),
    ("f:metadata", "f:uid"),
    ("f:metadata", "f:clusterName"),
    ("f:metadata", "f:generation"),
    ("f:metadata", "f:managedFields"),
    ("f:metadata", "f:resourceVersion"),
)
"""Fields that a write never owns."""


class Change(NamedTuple):
    """The difference of two objects at one version, without what a write may not own."""

    changed: FieldSet
    """Added and modified fields."""
    removed: FieldSet


class Shift(NamedTuple):
    """The effect of a change on managers."""

    managers: Managers
    """Managers without the fields they lose; those without fields are left out."""
    conflicts: Conflicts
    """Fields whose values change, by their managers."""


class Changes:
    """The difference of two objects, at each version that a manager needs."""

    __slots__ = ("_endpoint", "_found", "_live", "_new")

    def __init__(self, endpoint: Endpoint, live: Versions, new: Versions) -> None:
        self._endpoint = endpoint
        self._live = live
        self._new = new
        self._found: dict[str, Change | None] = {}

    def at_version(self, api_version: str) -> Change | None:
        """Return the difference at a version; None: the kind has no such version.

        Raises ItemError and ConversionError.
        """
        if api_version not in self._found:
            self._found[api_version] = self._change(api_version)
        return self._found[api_version]

    def _change(self, api_version: str) -> Change | None:
        endpoint = self._endpoint
        live, new = self._live.at(api_version), self._new.at(api_version)
        if live is None or new is None:
            return None
        if endpoint.checks_versions and api_version != endpoint.api_version:
            _check_fit(live, "old")
            _check_fit(new, "new")
        found = compare(live.obj, new.obj, live.type, is_strict=endpoint.is_strict)
        changed = union(found.modified, found.added)
        return Change(endpoint.owned(changed), endpoint.owned(found.removed))


def _check_fit(versioned: Versioned, what: str) -> None:
    found = mismatches(versioned.obj, versioned.type, allows_duplicates=True)
    if found:
        raise ConversionError(f"failed to convert {what} object: {summary(found)}")


def on_create(endpoint: Endpoint, new: Object, manager: str, now: str) -> None:
    """Set managedFields of an object that is to be created.

    manager: the client's name for itself, or `name_from_user_agent`; now: RFC 3339 in seconds, UTC.
    """
    _set_entries(endpoint, None, new, manager, now)


@keeps(1)
def on_update(endpoint: Endpoint, live: Object, new: Object, manager: str, now: str) -> None:
    """Set managedFields of an object that is to replace a live one; both decoded, at one version.

    `live` is not changed, but its entries may be shared. Errors never fail the write: the entries
    are then those of the live object.
    """
    _set_entries(endpoint, live, new, manager, now)


def record_update(
    endpoint: Endpoint, live: Object, new: Object, managers: Managers, name: str, now: str
) -> Managers:
    """Return the managers after a change of an object by an updater.

    Raises ItemError and ConversionError.
    """
    writer = updater(name, endpoint.api_version, endpoint.subresource)
    before = Versions(endpoint, live)
    changes = Changes(endpoint, before, Versions(endpoint, new))
    after = shift_managers(changes, fit_managers(before, managers)).managers
    own = changes.at_version(endpoint.api_version)
    taken = difference(own.changed, STRIPPED) if own is not None else {}
    if taken:
        if writer in after:
            taken = union(after[writer].fields, taken)
        after[writer] = Managed(taken, endpoint.api_version, now)
    return cap_updaters(after)


def fit_managers(live: Versions, managers: Managers) -> Managers:
    """Return the managers with their sets adapted to the current types.

    Managers of versions that are not served are left out. Raises ConversionError.
    """
    fit: Managers = {}
    for manager, managed in managers.items():
        versioned = live.at(managed.api_version)
        if versioned is not None:
            fields = fit_set(managed.fields, versioned.type)
            is_fit = fields is managed.fields
            fit[manager] = managed if is_fit else managed._replace(fields=fields)
    return fit


def shift_managers(changes: Changes, managers: Managers, writer: Manager | None = None) -> Shift:
    """Return the effect of a change on all managers but the writer.

    Managers of versions that are not served are left out. Raises ItemError and ConversionError.
    """
    after: Managers = {}
    conflicts: Conflicts = {}
    for manager, managed in managers.items():
        if manager == writer:
            after[manager] = managed
            continue
        change = changes.at_version(managed.api_version)
        if change is None:
            continue
        rest = difference(managed.fields, change.changed)
        if rest is not managed.fields:
            conflicts[manager] = intersection(managed.fields, change.changed)
        rest = difference(rest, change.removed)
        if rest:
            after[manager] = managed if rest is managed.fields else managed._replace(fields=rest)
    return Shift(after, conflicts)


def _set_entries(endpoint: Endpoint, live: Object | None, new: Object, name: str, now: str) -> None:
    meta = new.setdefault("metadata", {})
    given: list[Entry] | None = meta.pop("managedFields", None)
    live_meta: Object = {} if live is None else live.get("metadata") or {}
    old: list[Entry] | None = live_meta.get("managedFields")
    managers = _managers(endpoint, given, old)
    if not managers and live_meta.get("uid"):
        return
    before = endpoint.zero if live is None else live
    try:
        if live is None and not managers:
            managers = _first(endpoint, new, name, now)
        else:
            managers = record_update(endpoint, before, new, managers, name, now)
        entries = encode(managers)
    except (ItemError, ConversionError, RecursionError):
        entries = old or []
    if entries:
        meta["managedFields"] = entries


def _first(endpoint: Endpoint, new: Object, name: str, now: str) -> Managers:
    """Return the managers of an object without any; raises ItemError."""
    taken = difference(endpoint.owned(endpoint.created(new)), STRIPPED)
    writer = updater(name, endpoint.api_version, endpoint.subresource)
    return {writer: Managed(taken, endpoint.api_version, now)} if taken else {}


def _managers(endpoint: Endpoint, given: list[Entry] | None, old: list[Entry] | None) -> Managers:
    """Return the managers before a write: those of the new object, else of the live one."""
    if given is not None and not endpoint.subresource:
        if is_reset(given):
            return {}
        managers = _readable(given, old or ())
        if managers:
            return managers
    return _readable(old, old) if old else {}


def _readable(entries: Sequence[Entry], trusted: Sequence[Entry]) -> Managers:
    """Return the managers of entries; none if they are invalid."""
    try:
        return decode(entries, trusted)
    except ManagedFieldsError:
        return {}
