"""ResourceSlices: devices of a driver, or their shared counters, as a part of a pool."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_checks import immutable
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    index,
    invalid,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import name_is_dns_subdomain
from kvstack.apimachinery.objects.text.go_text import JsonText, quote
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.devices.conversion import SLICE
from kvstack.apiserver.kinds.devices.declared import DECLARED, TYPES
from kvstack.apiserver.kinds.devices.names import check_driver_name, check_pool_name
from kvstack.apiserver.kinds.devices.parts import check_items
from kvstack.apiserver.kinds.devices.slice_devices import (
    check_counters,
    check_device,
    drop_disabled_fields,
)
from kvstack.apiserver.kinds.generation import raise_generation
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.pods.node_selectors import check_node_selector
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.strategy import Context, Strategy

_SLICE: Final = f"{TYPES}.ResourceSlice"
_SPEC: Final = f"{TYPES}.ResourceSliceSpec"
_TERMS: Final = "io.k8s.api.core.v1.NodeSelectorTerm"
_DEVICES_MAX: Final = 128
_COMPLEX_DEVICES_MAX: Final = 64
_COUNTER_SETS_MAX: Final = 8
_NODE_FIELDS: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_NOT_SET: Final = (None, "", False)
_ONE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)


def _default(obj: Object) -> None:
    obj.setdefault("spec", {})


def _prepare_create(obj: Object, context: Context) -> None:
    obj["metadata"]["generation"] = 1
    _add_times(obj, context)
    drop_disabled_fields(obj["spec"], None)


def _prepare_update(new: Object, old: Object, context: Context) -> None:
    _add_times(new, context)
    raise_generation(new, old, _SPEC)
    drop_disabled_fields(new["spec"], old["spec"])


def _add_times(obj: Object, context: Context) -> None:
    """Set the times of new device taints."""
    for device in obj["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            if taint.get("timeAdded") is None:
                taint["timeAdded"] = context.now


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    return DECLARED.merge(_errors(obj["spec"], None), obj, None, _SLICE)


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    return DECLARED.merge(_errors(new["spec"], old["spec"]), new, old, _SLICE)


def _errors(spec: Object, old: Object | None) -> list[FieldError]:
    errors: Errors = []
    driver, pool = spec.get("driver", ""), spec.get("pool") or {}
    check_driver_name(driver, "spec.driver", errors)
    _check_pool(pool, "spec.pool", errors)
    if old is not None:
        before = (old.get("pool") or {}).get("name", "")
        errors += immutable("spec.pool.name", pool.get("name", ""), before)
        errors += immutable("spec.driver", driver, old.get("driver", ""))
        node = spec.get("nodeName")
        shown = None if node is None else JsonText(node)
        errors += immutable("spec.nodeName", shown, old.get("nodeName"))
    _check_node_selection(spec, errors)
    devices, counters = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and counters is not None:
        detail = "only one of `sharedCounters` or `devices` is allowed"
        errors.append(invalid("spec", "", detail))
    _check_devices(spec, old, errors)
    _check_counter_sets(counters or [], errors)
    return errors


def _check_pool(pool: Object, path: str, errors: Errors) -> None:
    check_pool_name(pool.get("name", ""), child(path, "name"), errors)
    count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    if count <= 0:
        errors.append(
            invalid(child(path, "resourceSliceCount"), count, "must be greater than zero")
        )
    if generation < 0:
        detail = "must be greater than or equal to zero"
        errors.append(invalid(child(path, "generation"), generation, detail))


def _check_node_selection(spec: Object, errors: Errors) -> None:
    """Check the node selection."""
    node, selector = spec.get("nodeName"), spec.get("nodeSelector")
    if node:
        add_invalid(errors, "spec.nodeName", node, name_is_dns_subdomain(node, False))
    elif node is not None:
        detail = "must be either unset or set to a non-empty string"
        errors.append(invalid("spec.nodeName", node, detail))
    if selector is not None:
        check_node_selector(selector, "spec.nodeSelector", errors)
        terms = selector.get("nodeSelectorTerms")
        if len(terms or ()) != 1:
            path, detail = (
                "spec.nodeSelector.nodeSelectorTerms",
                "must have exactly one node selector term",
            )
            errors.append(invalid(path, internal_value(terms, _TERMS), detail))
    for name in _NODE_FIELDS[2:]:
        if spec.get(name) is False:
            detail = "must be either unset or set to true"
            errors.append(invalid(child("spec", name), False, detail))
    given = [f"`{name}`" for name in _NODE_FIELDS if spec.get(name) not in _NOT_SET]
    if not given:
        errors.append(required("spec", _ONE_PLACE))
    elif len(given) > 1:
        detail = f"{_ONE_PLACE}, but multiple fields are set"
        errors.append(invalid("spec", f"{{{', '.join(given)}}}", detail))


def _check_devices(spec: Object, old: Object | None, errors: Errors) -> None:
    devices, path = spec.get("devices") or [], "spec.devices"
    is_complex = any(each.get("taints") or each.get("consumesCounters") for each in devices)
    before: dict[str, Object] = {}
    for device in reversed((old or {}).get("devices") or []):
        before[device.get("name", "")] = device
    is_per_device = bool(spec.get("perDeviceNodeSelection"))

    def check(device: Object, at: str) -> None:
        stored = before.get(device.get("name", ""))
        check_device(device, stored, at, errors, is_per_device=is_per_device)

    maximum = _COMPLEX_DEVICES_MAX if is_complex else _DEVICES_MAX
    if check_items(devices, maximum, path, errors, check, covered=False):
        names = [device.get("name", "") for device in devices]
        errors.extend(
            duplicate(index(path, position), name)
            for position, name in enumerate(names)
            if name in names[:position]
        )


def _check_counter_sets(sets: list[Object], errors: Errors) -> None:
    path = "spec.sharedCounters"

    def check(counters: Object, at: str) -> None:
        check_counters(counters, "name", at, errors)

    if check_items(sets, _COUNTER_SETS_MAX, path, errors, check):
        names = [each.get("name", "") for each in sets]
        errors.extend(
            duplicate(index(path, position), name)._replace(covered=True)
            for position, name in enumerate(names)
            if name in names[:position]
        )


def _warnings(obj: Object, _context: Context) -> list[str]:
    driver = obj["spec"].get("driver", "")
    if driver == driver.lower():
        return []
    return [
        f"spec.driver: driver names should be lowercase; {quote(driver)} contains uppercase"
        " characters"
    ]


def _update_warnings(new: Object, _old: Object, context: Context) -> list[str]:
    return _warnings(new, context)


def _selectable(obj: Object) -> dict[str, str]:
    spec = obj["spec"]
    return {
        "spec.nodeName": spec.get("nodeName") or "",
        "spec.driver": spec.get("driver", ""),
        "spec.pool.name": (spec.get("pool") or {}).get("name", ""),
    }


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [
        metadata["name"],
        *_selectable(obj).values(),
        age(metadata.get("creationTimestamp"), now),
    ]


SLICES: Final = Strategy(
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    warnings=_warnings,
    update_warnings=_update_warnings,
    has_generation=True,
    selectable=_selectable,
    cells=_cells,
    conversions={"v1beta1": SLICE},
)
