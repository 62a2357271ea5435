"""ResourceClaims: devices that pods share, allocated by the scheduler."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, child, index, invalid
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.devices.claim_access import binding_errors, device_errors
from kvstack.apiserver.kinds.devices.claim_specs import (
    admin_errors,
    admin_request_errors,
    claim_spec_errors,
    default_claim_spec,
    drop_disabled_fields,
    names_of,
    printed_spec,
)
from kvstack.apiserver.kinds.devices.claim_statuses import (
    check_status,
    drop_deallocated_devices,
    drop_disabled_status_fields,
)
from kvstack.apiserver.kinds.devices.conversion import CLAIM
from kvstack.apiserver.kinds.devices.declared import DECLARED, TYPES
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.status_metadata import keep_metadata
from kvstack.apiserver.kinds.strategy import NO_TABLE, Context, Strategy, with_status

_CLAIM: Final = f"{TYPES}.ResourceClaim"
_RESULTS: Final = "status.allocation.devices.results"


def _default(obj: Object) -> None:
    obj.setdefault("status", {})
    default_claim_spec(obj.setdefault("spec", {}))
    for result in _results(obj):
        for toleration in result.get("tolerations") or ():
            if not toleration.get("operator"):
                toleration["operator"] = "Equal"


def _results(obj: Object) -> list[Object]:
    allocation = (obj.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


def _prepare_create(obj: Object, _context: Context) -> None:
    obj["status"] = {}
    drop_disabled_fields(obj["spec"], None)


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    new["status"] = old["status"]
    drop_disabled_fields(new["spec"], old["spec"])


def _prepare_status(new: Object, old: Object, _context: Context) -> None:
    new["spec"] = old["spec"]
    keep_metadata(new, old)
    drop_disabled_status_fields(new["status"], old["status"])
    drop_deallocated_devices(new["status"], old["status"])


def _validate(obj: Object, context: Context) -> list[FieldError]:
    spec = obj["spec"]
    errors = admin_request_errors(spec, context) + claim_spec_errors(spec, "spec", context)
    return DECLARED.merge(errors, obj, None, _CLAIM)


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    if not same(new["spec"], old["spec"], f"{TYPES}.ResourceClaimSpec"):
        error = invalid("spec", printed_spec(new["spec"]), IMMUTABLE)
        errors.append(error._replace(covered=True))
    return DECLARED.merge(errors, new, old, _CLAIM)


def _validate_status(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    if not any(each.get("adminAccess") for each in _results(old)):
        for position, result in enumerate(_results(new)):
            if result.get("adminAccess"):
                errors += admin_errors(child(index(_RESULTS, position), "adminAccess"), context)
                break
    errors += binding_errors(new["status"], old["status"], context)
    if new["status"].get("allocation") is not None:
        errors += device_errors(new["status"], old["status"], context)
    is_deleted = new["metadata"].get("deletionTimestamp") is not None
    names = names_of(new["spec"])
    check_status(new["status"], old["status"], names, errors, is_deleted=is_deleted)
    return DECLARED.merge(errors, new, old, _CLAIM)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, status = obj["metadata"], obj.get("status") or {}
    is_deleted = metadata.get("deletionTimestamp") is not None
    states = ["deleted"] if is_deleted else []
    if status.get("allocation") is not None:
        states += ["allocated", *(["reserved"] if status.get("reservedFor") else [])]
    elif not is_deleted:
        states.append("pending")
    return [metadata["name"], ",".join(states), age(metadata.get("creationTimestamp"), now)]


CLAIMS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        cells=_cells,
        conversions={"v1beta1": CLAIM},
    ),
    prepare_update=_prepare_status,
    validate_update=_validate_status,
    reset_fields=(("metadata",), ("spec",)),
    table=NO_TABLE,
)
