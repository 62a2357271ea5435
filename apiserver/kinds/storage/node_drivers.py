"""CSINodes: the CSI drivers of a node, and their volume limits.

Storage health of drivers (`status.storageHealth`) is off by default and dropped.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.field_checks import nonnegative
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    index,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    IMMUTABLE,
    check_condition_reason,
    check_label_key,
    length,
)
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.schema.load import enum_in_order, enum_values
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.pods.volumes import check_csi_driver_name
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.status_metadata import begin_without_status, keep_metadata
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status

_DRIVER: Final = "io.k8s.api.storage.v1.CSINodeDriver"
_NODE_ID_MAX: Final = 256
_HEALTH_MAX: Final = 16
_CONDITION: Final = "io.k8s.api.storage.v1.StorageHealthCondition"
_HEALTH_STATES: Final = enum_values(_CONDITION, "status")


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    new["status"] = old.get("status", {})


def _prepare_status(new: Object, old: Object, _context: Context) -> None:
    new["spec"] = old["spec"]
    keep_metadata(new, old)
    if not (old.get("status") or {}).get("storageHealth"):
        (new.get("status") or {}).pop("storageHealth", None)


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for position, driver in enumerate(obj.get("spec", {}).get("drivers") or ()):
        path = index("spec.drivers", position)
        name = driver.get("name", "")
        check_csi_driver_name(errors, child(path, "name"), name)
        _check_node_id(errors, child(path, "nodeID"), driver.get("nodeID", ""))
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None:
            errors.extend(nonnegative(child(path, "allocatable", "count"), count))
        if name in names:
            errors.append(duplicate(child(path, "name"), name))
        names.add(name)
        _check_topology_keys(errors, path, driver.get("topologyKeys") or [])
    return errors


def _check_node_id(errors: Errors, path: str, node_id: str) -> None:
    if not node_id:
        errors.append(required(path))
    if length(node_id) > _NODE_ID_MAX:
        errors.append(invalid(path, node_id, f"must be {_NODE_ID_MAX} characters or less"))


def _check_topology_keys(errors: Errors, path: str, keys: list[str]) -> None:
    seen: set[str] = set()
    for each in keys:
        if not each:
            errors.append(required(path))
        if each in seen:
            errors.append(duplicate(path, each))
        seen.add(each)
        add_invalid(errors, path, each, check_label_key(each))


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = _validate(new, context)
    drivers: list[Object] = new.get("spec", {}).get("drivers") or []
    for before in old.get("spec", {}).get("drivers") or ():
        for each in drivers:
            if each.get("name") == before.get("name"):
                fixed, fixed_before = _without_count(each), _without_count(before)
                if fixed != fixed_before:
                    shown = internal_value(fixed, _DRIVER)
                    errors.append(invalid("spec.drivers", shown, IMMUTABLE))
    return errors


def _without_count(driver: Object) -> Object:
    return {name: value or None for name, value in driver.items() if name != "allocatable"}


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for position, health in enumerate((new.get("status") or {}).get("storageHealth") or ()):
        path = index("status.storageHealth", position)
        name = health.get("name", "")
        if name in names:
            errors.append(duplicate(path, name))
        names.add(name)
        check_csi_driver_name(errors, child(path, "name"), name)
        conditions_path, conditions = (
            child(path, "healthConditions"),
            health.get("healthConditions") or (),
        )
        if len(conditions) > _HEALTH_MAX:
            errors.append(too_many(conditions_path, len(conditions), _HEALTH_MAX))
            continue
        for number, each in enumerate(conditions):
            _check_condition(errors, index(conditions_path, number), each)
    return errors


def _check_condition(errors: Errors, path: str, condition: Object) -> None:
    state, reason = condition.get("status", ""), condition.get("reason", "")
    if state not in _HEALTH_STATES:
        errors.append(not_supported(child(path, "status"), JsonText(state), _HEALTH_STATES))
    if not reason:
        errors.append(required(child(path, "reason")))
    else:
        add_invalid(errors, child(path, "reason"), reason, check_condition_reason(reason))
        if length(reason) > 256:
            errors.append(too_long(child(path, "reason"), 256))
    if length(condition.get("message", "")) > 1024:
        errors.append(too_long(child(path, "message"), 1024))
    for name, values in _HEALTH_CHOICES:
        value = condition.get(name)
        if value is not None and value not in values:
            errors.append(not_supported(child(path, name), JsonText(value), values))


_HEALTH_CHOICES: Final = (
    ("accessMode", enum_values(_CONDITION, "accessMode")),
    ("volumeMode", enum_in_order(_CONDITION, "volumeMode", "Filesystem", "Block")),
)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    count = len(obj.get("spec", {}).get("drivers") or ())
    return [metadata["name"], count, age(metadata.get("creationTimestamp"), now)]


CSI_NODES: Final = with_status(
    Strategy(
        prepare_create=begin_without_status,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        allows_unconditional_update=False,
        cells=_cells,
    ),
    prepare_update=_prepare_status,
    validate_update=_validate_status,
    reset_fields=(("metadata",), ("spec",)),
)
