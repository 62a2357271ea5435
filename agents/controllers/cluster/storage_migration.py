"""Storage version migration: all objects of a resource are written once more, unchanged.

    StorageVersionMigration ─► Running ─► status.resourceVersion: later writes are not old
        ─► every object up to there gets an empty patch ─► Succeeded, or Failed

Of several migrations of one resource the oldest runs. The definition of a custom resource has
the condition StorageMigrating, and loses the stored versions that are no longer used once a
migration has succeeded, unless the definition was changed meanwhile.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final

from kvstack.agents.client.built_in import CUSTOM_RESOURCE_DEFINITIONS, STORAGE_VERSION_MIGRATIONS
from kvstack.agents.client.discovery import Discovery
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.reconcile.plan import (
    BaseController,
    Get,
    Identity,
    ListLive,
    Outcome,
    Patch,
    Plan,
    Step,
    Update,
    View,
    Watch,
    discover,
    do,
)
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time, parse_time
from kvstack.apimachinery.schema.resource import APPLY_PATCH, MERGE_PATCH

_NAME: Final = "storage-version-migrator-controller"
_RUNNER: Final = "migration-runner-controller"
_RUNNING: Final = "Running"
_SUCCEEDED: Final = "Succeeded"
_FAILED: Final = "Failed"
_VERBS: Final = ("update", "patch", "list")
_UNKNOWN_S: Final = 60.0
"""How long a resource may be unknown: its definition may be new."""
_AT_ONCE: Final = 10
_TRANSIENT: Final = frozenset((429, 500, 503, 504))


class UnknownResourceError(Exception):
    """The resource of a migration is not served, or not yet."""


class StorageVersionMigrator(BaseController):
    """Carries out migrations."""

    workers = 1

    def __init__(self) -> None:
        """Look at all migrations."""
        self.identity: Identity = Identity(_NAME, _NAME, _NAME)
        self.watches: Sequence[Watch] = (Watch(STORAGE_VERSION_MIGRATIONS, _keys),)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one migration."""
        migration = view.get(STORAGE_VERSION_MIGRATIONS, key)
        if migration is None:
            return None
        if _is_over(migration):
            if _is(migration, _RUNNING):
                yield from _finish(migration, now_s)
            return None
        if not _is(migration, _RUNNING):
            if _is_next(migration, view):
                yield from _begin(migration, now_s)
            return None
        found = yield from discover()
        resource = _resource_of(migration, found)
        if resource is None:
            yield from _unknown(migration, now_s)
        elif not (migration.get("status") or {}).get("resourceVersion"):
            yield from _set_limit(migration, resource, found, now_s)
        else:
            yield from _migrate(migration, resource, now_s)
        return None


def _begin(migration: Object, now_s: float) -> Generator[Step, list[Outcome], None]:
    name = migration["metadata"]["name"]
    definition = yield from _definition(migration)
    if definition is not None:
        new_condition = ("True", "MigrationRunning", f"Migration {name} is running")
        yield from _tell_definition(definition, new_condition, now_s)
    message = _running_message()
    yield from _write(migration, [(_RUNNING, "True", "MigrationRunning", message)], now_s)


def _finish(migration: Object, now_s: float) -> Generator[Step, list[Outcome], None]:
    definition = yield from _definition(migration)
    if definition is not None:
        new_condition, stored = _end_of(definition, is_success=_is(migration, _SUCCEEDED))
        yield from _tell_definition(definition, new_condition, now_s, stored)
    row = (_RUNNING, "False", "MigrationCompleted", "Migration completed")
    yield from _write(migration, [row], now_s)


def _end_of(definition: Object, *, is_success: bool) -> tuple[tuple[str, str, str], list[str]]:
    """Return the condition of a definition, and which versions are stored (empty: as before)."""
    if not is_success:
        return ("False", "MigrationFailed", "The migration has failed"), []
    known = conditions.find((definition.get("status") or {}).get("conditions"), "StorageMigrating")
    generation = definition["metadata"].get("generation")
    if known is None or known.get("observedGeneration") != generation:
        text = "but the stored versions have not been updated due to a generation mismatch"
        return ("False", "MigrationSucceeded", f"The migration has succeeded {text}"), []
    stored = [each["name"] for each in definition["spec"]["versions"] if each.get("storage")]
    text = "and the stored versions have been updated"
    return ("False", "MigrationSucceeded", f"The migration has succeeded {text}"), stored


def _unknown(migration: Object, now_s: float) -> Generator[Step, list[Outcome], None]:
    created_s = parse_time(migration["metadata"]["creationTimestamp"]).seconds
    if now_s < created_s + _UNKNOWN_S:
        raise UnknownResourceError("resource does not exist in our rest mapper")
    yield from _fail(migration, "resource does not exist in discovery", now_s)


def _set_limit(
    migration: Object, resource: ResourceType, found: Discovery, now_s: float
) -> Generator[Step, list[Outcome], None]:
    """Record the revision up to which objects may be old."""
    if not found.verbs_of(resource).issuperset(_VERBS):
        shown = f"{resource.group}/{resource.version}, Resource={resource.name}"
        wanted = f"[{' '.join(_VERBS)}]"
        text = f'resource "{shown}" does not support discovery operations: {wanted}'
        yield from _fail(migration, text, now_s)
        return
    listed = yield from do(Get(resource, "", "", query=(("limit", "1"),)))
    version = listed["metadata"]["resourceVersion"]
    status = {**(migration.get("status") or {}), "resourceVersion": version}
    yield from do(Update(STORAGE_VERSION_MIGRATIONS, {**migration, "status": status}, "status"))


def _migrate(
    migration: Object, resource: ResourceType, now_s: float
) -> Generator[Step, list[Outcome], None]:
    """Rewrite all objects that may be old."""
    limit = int(migration["status"]["resourceVersion"])
    listed = yield from do(ListLive(resource, metadata_only=True))
    old = [each for each in listed["items"] if int(each["metadata"]["resourceVersion"]) <= limit]
    total, left = len(listed["items"]), len(old)
    for first in range(0, len(old), _AT_ONCE):
        outcomes = yield [_touch(resource, each) for each in old[first : first + _AT_ONCE]]
        for outcome in outcomes:
            error = outcome.error
            if error is not None and not (outcome.is_not_found or outcome.is_conflict):
                yield from _broken_off(migration, error, outcome.code, (left, total), now_s)
                return
            left -= 1
    rows = [
        (_RUNNING, "True", "MigrationRunning", _running_message(left, total)),
        (_SUCCEEDED, "True", "StorageVersionMigrationSucceeded", "Migration completed"),
    ]
    yield from _write(migration, rows, now_s)


def _touch(resource: ResourceType, obj: Object) -> Patch:
    """Return the patch that changes nothing of an object, if it is still as it was listed."""
    meta = obj["metadata"]
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"resourceVersion": meta["resourceVersion"]},
    }
    namespace = meta.get("namespace", "")
    return Patch(resource, namespace, meta["name"], body, MERGE_PATCH, field_manager=_NAME)


def _broken_off(
    migration: Object, error: Exception, code: int, counts: tuple[int, int], now_s: float
) -> Generator[Step, list[Outcome], None]:
    """Report an object that cannot be written; raises errors that may go away."""
    left, total = counts
    if code in _TRANSIENT or isinstance(error, UnreachableError):
        message = f"{_running_message(left, total)}; transient error: {error}"
        yield from _write(migration, [(_RUNNING, "True", "MigrationRunning", message)], now_s)
        raise error
    text = f"{left}/{total} not yet migrated. migration encountered unhandled error: {error}"
    rows = [
        (_RUNNING, "True", "MigrationRunning", _running_message(left, total)),
        (_FAILED, "True", "StorageVersionMigrationFailed", text),
    ]
    yield from _write(migration, rows, now_s)


def _fail(migration: Object, text: str, now_s: float) -> Generator[Step, list[Outcome], None]:
    row = (_FAILED, "True", "StorageVersionMigrationFailed", text)
    yield from _write(migration, [row], now_s)


def _write(
    migration: Object, rows: Iterable[tuple[str, str, str, str]], now_s: float
) -> Generator[Step, list[Outcome], None]:
    """Set conditions, each in its place."""
    status = migration.get("status") or {}
    updated = list(status.get("conditions") or ())
    for type_, value, reason, message in rows:
        new: Object = {
            **(conditions.find(updated, type_) or {}),
            "type": type_,
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": format_time(now_s),
        }
        updated = conditions.set_condition(updated, new)
    if updated != (status.get("conditions") or []):
        changed = {**migration, "status": {**status, "conditions": updated}}
        yield from do(Update(STORAGE_VERSION_MIGRATIONS, changed, "status"))


def _running_message(left: int = 0, total: int = 0) -> str:
    text = "The migration is running"
    if not total:
        return text
    if left:
        return f"{text}, {left}/{total} objects not yet migrated"
    return f"{text}, {total} objects verified migrated"


# Definitions of custom resources.


def _definition(migration: Object) -> Generator[Step, list[Outcome], Object | None]:
    """Return the definition of the migrated resource; None: it is not a custom one."""
    name = "{resource}.{group}".format(**_group_resource(migration))
    [found] = yield [Get(CUSTOM_RESOURCE_DEFINITIONS, "", name)]
    return None if found.is_not_found else found.result()


def _tell_definition(
    definition: Object,
    new_condition: tuple[str, str, str],
    now_s: float,
    stored: Sequence[str] = (),
) -> Generator[Step, list[Outcome], None]:
    value, reason, message = new_condition
    meta = definition["metadata"]
    condition = {
        "type": "StorageMigrating",
        "status": value,
        "lastTransitionTime": format_time(now_s),
        "reason": reason,
        "message": message,
        "observedGeneration": meta.get("generation", 0),
    }
    status: Object = {"conditions": [condition]}
    if stored:
        status["storedVersions"] = list(stored)
    resource = CUSTOM_RESOURCE_DEFINITIONS
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": meta["name"], "resourceVersion": meta["resourceVersion"]},
        "status": status,
    }
    patch = Patch(resource, "", meta["name"], body, APPLY_PATCH, "status", _RUNNER, force=True)
    yield from do(patch)


# What a migration is about.


def _group_resource(migration: Object) -> dict[str, str]:
    named = migration["spec"]["resource"]
    return {"group": named.get("group") or "", "resource": named.get("resource") or ""}


def _resource_of(migration: Object, found: Discovery) -> ResourceType | None:
    named = _group_resource(migration)
    for each in found.served:
        resource = each.resource
        if each.is_preferred and (resource.group, resource.name) == tuple(named.values()):
            return resource
    return None


def _is(migration: Object, type_: str) -> bool:
    return conditions.is_true((migration.get("status") or {}).get("conditions"), type_)


def _is_over(migration: Object) -> bool:
    return _is(migration, _SUCCEEDED) or _is(migration, _FAILED)


def _is_next(migration: Object, view: View) -> bool:
    """Whether no other migration of the resource runs or has waited for longer."""
    for other in view.list(STORAGE_VERSION_MIGRATIONS):
        if _group_resource(other) != _group_resource(migration):
            continue
        if _is(other, _RUNNING) or (not _is_over(other) and _age(other) < _age(migration)):
            return False
    return True


def _age(migration: Object) -> tuple[str, str]:
    meta = migration["metadata"]
    return meta["creationTimestamp"], meta["name"]


def _keys(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    """Give a migration, and those of its resource that may wait for it."""
    changed = _group_resource(new or old or {})
    for each in view.list(STORAGE_VERSION_MIGRATIONS):
        if _group_resource(each) == changed:
            yield key_of(each)
