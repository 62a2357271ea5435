"""StorageVersionMigrations: requests to rewrite the stored objects of a resource."""

from typing import Any, Final

from kvstack.apimachinery.objects import field_checks
from kvstack.apimachinery.objects.core.conditions import is_true
from kvstack.apimachinery.objects.field_errors import FieldError, invalid, required
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE, check_dns1035_label, check_dns_subdomain
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.status_metadata import (
    begin_without_status,
    keep_all_but_status,
    keep_status,
)
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status

RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

_SPEC: Final = "io.k8s.api.storagemigration.v1.StorageVersionMigrationSpec"
_RESOURCE: Final = "spec.resource.resource"
_GROUP: Final = "spec.resource.group"
_VERSION: Final = "status.resourceVersion"
_CONDITIONS: Final = "status.conditions"


def _default(obj: Object) -> None:
    obj.setdefault("spec", {}).setdefault("resource", {})
    obj.setdefault("status", {})


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    names = obj["spec"]["resource"]
    resource, group = names.get("resource", ""), names.get("group", "")
    if not resource:
        errors.append(required(_RESOURCE, "resource is required to be set"))
    elif wrong := check_dns1035_label(resource):
        errors.append(invalid(_RESOURCE, resource, ",".join(wrong)))
    if group and (wrong := check_dns_subdomain(group)):
        errors.append(invalid(_GROUP, group, ",".join(wrong)))
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = _validate(new, context)
    if not same(new["spec"], old["spec"], _SPEC):
        errors.append(invalid("spec", internal_value(new["spec"], _SPEC), IMMUTABLE))
    return errors


def _validate_status(new: Object, old: Object, _context: Context) -> list[FieldError]:
    status, conditions = new["status"], new["status"].get("conditions") or []
    version, before = (each["status"].get("resourceVersion", "") for each in (new, old))
    errors: list[FieldError] = []
    problem = _version_problem(version)
    if problem:
        errors.append(invalid(_VERSION, version, problem))
    errors += field_checks.conditions(_CONDITIONS, conditions)
    if before and before != version:
        errors.append(invalid(_VERSION, version, IMMUTABLE))
    stored_conditions = status.get("conditions")
    if _is_true(new, SUCCEEDED) and _is_true(new, FAILED):
        detail = "Both success and failed conditions cannot be true at the same time"
        errors.append(invalid(_CONDITIONS, stored_conditions, detail))
    for kind, word in ((SUCCEEDED, "Success"), (FAILED, "Failed")):
        if _is_true(old, kind) and not _is_true(new, kind):
            detail = f"{word} condition cannot be set to false once it is true"
            errors.append(invalid(_CONDITIONS, stored_conditions, detail))
    return errors


def _version_problem(version: str) -> str:
    """Return the error of a resource version, empty if it is valid or absent."""
    if not version or (version.isascii() and version.isdigit() and version[0] != "0"):
        return ""
    return f"resource version is not well formed: {version}"


def _is_true(obj: Object, kind: str) -> bool:
    return is_true(obj["status"].get("conditions"), kind)


def _cells(obj: Object, _now: float) -> list[Any]:
    names, state = obj["spec"]["resource"], "Unknown"
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in {
            RUNNING,
            SUCCEEDED,
            FAILED,
        }:
            state = condition["type"]
    resource = GroupResource(names.get("group", ""), names.get("resource", ""))
    return [obj["metadata"]["name"], str(resource), state]


MIGRATIONS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=begin_without_status,
        prepare_update=keep_status,
        validate=_validate,
        validate_update=_validate_update,
        allows_unconditional_update=False,
        cells=_cells,
    ),
    prepare_update=keep_all_but_status,
    validate_update=_validate_status,
    reset_fields=(("metadata",), ("spec",)),
)
