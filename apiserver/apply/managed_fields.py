"""The entries of metadata.managedFields, and the sets of their managers.

    {"manager": "web", "operation": "Apply", "apiVersion": "apps/v1", "time": "2026-…",
     "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}, "subresource": "scale"}

Entries are identified by their `Manager`: appliers by name and subresource, updaters by the version
as well. Entries of a live object, which this module wrote, are trusted: their sets are used
unchanged. Those of a client are parsed, which makes their sets canonical.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.text.go_text import go_json, quote
from kvstack.apiserver.apply.field_set import FieldsError, FieldSet, read, union

Entry = dict[str, Any]

APPLY: Final = "Apply"
UPDATE: Final = "Update"
ANCIENT: Final = "ancient-changes"
UPDATERS_MAX: Final = 10
MANAGER_BYTES_MAX: Final = 128
_FIELDS_V1: Final = "FieldsV1"

INVALID_AFTER_ADMISSION: Final = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an"
    " outdated mutating admission controller; please fix your requests: "
)


class ManagedFieldsError(ValueError):
    """Entries cannot be parsed; the text says why."""


class Manager(NamedTuple):
    """The identity of an entry."""

    name: str
    operation: str
    api_version: str
    """Empty for an applier: it has one entry, whichever version it used last."""
    subresource: str


class Managed(NamedTuple):
    """The fields of one manager."""

    fields: FieldSet
    api_version: str
    """The version of the set."""
    time: str = ""
    """When the set last changed, RFC 3339 in seconds; possibly empty."""


Managers = dict[Manager, Managed]


def applier(name: str, subresource: str) -> Manager:
    """Return the manager of an apply."""
    return Manager(name or "unknown", APPLY, "", subresource)


def updater(name: str, api_version: str, subresource: str) -> Manager:
    """Return the manager of any other write."""
    return Manager(name or "unknown", UPDATE, api_version, subresource)


def name_from_user_agent(user_agent: str) -> str:
    """Return the default manager: the program of the User-Agent, without unprintable characters."""
    name, size = "", 0
    for character in user_agent.partition("/")[0]:
        if character.isprintable():
            size += len(character.encode("utf-8", "surrogatepass"))
            if size > MANAGER_BYTES_MAX:
                break
            name += character
    return name


def decode(entries: Sequence[Entry], trusted: Sequence[Entry] = ()) -> Managers:
    """Return the managers of entries; trusted: entries whose sets are known to be canonical.

    Of entries of the same manager the last one counts. Raises ManagedFieldsError.
    """
    managers: Managers = {}
    for index, entry in enumerate(entries):
        operation = entry.get("operation", "")
        api_version = entry.get("apiVersion", "")
        if operation not in (APPLY, UPDATE):
            raise ManagedFieldsError("operation must be `Apply` or `Update`")
        if not api_version:
            raise ManagedFieldsError("apiVersion must not be empty")
        if entry.get("fieldsType") != _FIELDS_V1:
            raise ManagedFieldsError(_wrong_type(entry.get("fieldsType") or "", index))
        fields = entry.get("fieldsV1")
        if fields is None:
            fields = {}
        elif entry not in trusted:
            fields = _read(entry, fields)
        manager = Manager(
            entry.get("manager", ""),
            operation,
            api_version if operation == UPDATE else "",
            entry.get("subresource", ""),
        )
        managers[manager] = Managed(fields, api_version, entry.get("time") or "")
    return managers


def encode(managers: Managers) -> list[Entry]:
    """Return the entries of managers, in order: appliers first, then by time, name and version."""
    ordered = sorted(managers.items(), key=_order)
    return [_entry(manager, managed) for manager, managed in ordered]


def is_reset(entries: Sequence[Entry] | None) -> bool:
    """Return whether a client clears all managers: with no entry or an empty one."""
    if entries is None:
        return False
    return not entries or (len(entries) == 1 and not any(entries[0].values()))


def cap_updaters(managers: Managers) -> Managers:
    """Return the managers with the oldest updaters merged if there are more than ten.

    Those of one version become one manager, `ancient-changes`, with the latest time.
    """
    updaters = [manager for manager in managers if manager.operation == UPDATE]
    excess = len(updaters) - UPDATERS_MAX
    if excess <= 0:
        return managers
    capped = dict(managers)
    firsts: dict[str, Manager] = {}
    for manager in sorted(updaters, key=lambda each: (capped[each].time, identity(each))):
        if excess <= 0:
            break
        version = manager.api_version
        ancient = updater(ANCIENT, version, "")
        first = firsts.setdefault(version, manager)
        if manager in (first, ancient):
            continue
        oldest = capped[ancient] if ancient in capped else capped.pop(first)
        managed = capped.pop(manager)
        capped[ancient] = Managed(union(managed.fields, oldest.fields), version, managed.time)
        excess -= 1
    return capped


def identity(manager: Manager) -> str:
    """Return the text that managers are sorted by in the absence of times."""
    members = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "subresource": manager.subresource,
    }
    return go_json({name: value for name, value in members.items() if value})


def entries_after_admission(
    before: list[Entry] | None, after: list[Entry] | None
) -> tuple[list[Entry] | None, str]:
    """Return the entries to keep after mutating admission, and a warning, empty if they are valid.

    Invalid entries are replaced by those from before.
    """
    try:
        decode(after or (), before or ())
    except ManagedFieldsError as error:
        return before, f"{INVALID_AFTER_ADMISSION}{error}"
    return after, ""


def keep_times(live: Mapping[str, Any], new: Mapping[str, Any]) -> list[Entry] | None:
    """Return the entries to store: those of the live object if only their times have changed.

    So a write that changes nothing else makes no new revision. The objects are compared in their
    stored form, and neither is changed.
    """
    new_meta, live_meta = new["metadata"], live["metadata"]
    entries: list[Entry] | None = new_meta.get("managedFields")
    old: list[Entry] = live_meta.get("managedFields") or []
    if not entries or len(entries) != len(old) or entries == old:
        return entries
    if [_timeless(each) for each in entries] != [_timeless(each) for each in old]:
        return entries
    if _without_entries(new) != _without_entries(live):
        return entries
    return old


def _read(entry: Entry, fields: object) -> FieldSet:
    try:
        return read(fields)
    except FieldsError as error:
        raise ManagedFieldsError(
            f"error decoding versioned set from {go_json(entry)}: error decoding set: {error}"
        ) from error


def _wrong_type(fields_type: str, index: int) -> str:
    if not fields_type:
        return f"missing fieldsType in managed fields entry {index}"
    return f"invalid fieldsType {quote(fields_type)} in managed fields entry {index}"


def _order(item: tuple[Manager, Managed]) -> tuple[str, ...]:
    manager, managed = item
    return (
        manager.operation,
        managed.time,
        manager.name,
        managed.api_version,
        manager.subresource,
    )


def _entry(manager: Manager, managed: Managed) -> Entry:
    entry: Entry = {"manager": manager.name} if manager.name else {}
    entry["operation"] = manager.operation
    entry["apiVersion"] = managed.api_version
    if managed.time:
        entry["time"] = managed.time
    entry["fieldsType"] = _FIELDS_V1
    entry["fieldsV1"] = managed.fields
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def _timeless(entry: Entry) -> Entry:
    return {name: value for name, value in entry.items() if name != "time"}


def _without_entries(obj: Mapping[str, Any]) -> dict[str, Any]:
    meta = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": meta}
