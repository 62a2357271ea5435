"""DeviceTaintRules: taints that an administrator sets on devices."""

from typing import Any, Final

from kvstack.apimachinery.objects import field_checks
from kvstack.apimachinery.objects.field_errors import FieldError, child, too_many
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_label
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.devices.declared import DECLARED, TYPES
from kvstack.apiserver.kinds.devices.names import check_driver_name, check_pool_name
from kvstack.apiserver.kinds.devices.parts import check_taint
from kvstack.apiserver.kinds.generation import raise_generation
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.status_metadata import keep_all_but_status
from kvstack.apiserver.kinds.strategy import NO_TABLE, Context, Strategy, with_status

_RULE: Final = f"{TYPES}.DeviceTaintRule"
_SPEC: Final = f"{TYPES}.DeviceTaintRuleSpec"
_CONDITIONS: Final = "status.conditions"
_CONDITIONS_MAX: Final = 8


def _default(obj: Object) -> None:
    obj.setdefault("spec", {}).setdefault("taint", {})
    obj.setdefault("status", {})


def _default_times(obj: Object, now: str) -> None:
    taint = obj["spec"]["taint"]
    if taint.get("timeAdded") is None:
        taint["timeAdded"] = now


def _prepare_create(obj: Object, _context: Context) -> None:
    obj["status"] = {}
    obj["metadata"]["generation"] = 1


def _prepare_update(new: Object, old: Object, context: Context) -> None:
    new["status"] = old["status"]
    taint, before = new["spec"]["taint"], old["spec"]["taint"]
    is_other = taint.get("effect") != before.get("effect")
    if is_other and taint["timeAdded"] == before.get("timeAdded"):
        taint["timeAdded"] = context.now
    raise_generation(new, old, _SPEC)


def _errors(spec: Object, old: Object | None) -> list[FieldError]:
    errors: Errors = []
    selector, path = spec.get("deviceSelector") or {}, "spec.deviceSelector"
    driver, pool, device = (selector.get(name) for name in ("driver", "pool", "device"))
    if driver is not None:
        check_driver_name(driver, child(path, "driver"), errors)
    if pool is not None:
        check_pool_name(pool, child(path, "pool"), errors)
    if device is not None:
        add_invalid(errors, child(path, "device"), device, check_dns_label(device))
    taint = spec["taint"]
    is_other = old is None or old["taint"].get("effect") != taint.get("effect")
    check_taint(taint, "spec.taint", errors, checks_effect=is_other)
    return errors


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    return DECLARED.merge(_errors(obj["spec"], None), obj, None, _RULE)


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    return DECLARED.merge(_errors(new["spec"], old["spec"]), new, old, _RULE)


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    conditions = new["status"].get("conditions") or []
    errors = field_checks.conditions(_CONDITIONS, conditions)
    if len(conditions) > _CONDITIONS_MAX:
        errors.append(too_many(_CONDITIONS, len(conditions), _CONDITIONS_MAX))
    return errors


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, taint = obj["metadata"], obj["spec"]["taint"]
    added = taint.get("timeAdded")
    return [
        metadata["name"],
        taint.get("key", ""),
        taint.get("value", ""),
        taint.get("effect", ""),
        "" if added is None else age(added, now),
        age(metadata.get("creationTimestamp"), now),
    ]


TAINT_RULES: Final = with_status(
    Strategy(
        default=_default,
        default_times=_default_times,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        allows_unconditional_update=False,
        has_generation=True,
        cells=_cells,
    ),
    prepare_update=keep_all_but_status,
    validate_update=_validate_status,
    reset_fields=(("metadata",), ("spec",)),
    table=NO_TABLE,
)
