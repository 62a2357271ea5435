"""Devices of ResourceSlices: attributes, capacity, taints."""

import re
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    key,
    required,
    too_long,
    too_many,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_label, length, name_is_dns_subdomain
from kvstack.apiserver.kinds.devices.capacities import check_policy
from kvstack.apiserver.kinds.devices.names import check_qualified_name
from kvstack.apiserver.kinds.devices.parts import check_bindings, check_items, check_taint
from kvstack.apiserver.kinds.pods.node_selectors import check_node_selector
from kvstack.apiserver.kinds.rules import Errors, add_invalid

_ENTRIES_MAX: Final = 32
_VALUES_MAX: Final = 48
_TAINTS_MAX: Final = 16
_CONSUMED_MAX: Final = 2
_COUNTERS_MAX: Final = 32
_TEXT_MAX: Final = 64
_KEY_SHOWN_MAX: Final = 63 + 1 + 32
_NUMBER: Final = r"(?:0|[1-9]\d*)"
_PRE_RELEASE: Final = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD: Final = "[0-9a-zA-Z-]+"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRE_RELEASE}(?:\.{_PRE_RELEASE})*)?"
    rf"(?:\+{_BUILD}(?:\.{_BUILD})*)?",
    re.ASCII,
)
_LISTS: Final = ("bools", "ints", "strings", "versions")
_NODE_FIELDS: Final = ("nodeName", "nodeSelector", "allNodes")
_NOT_SET: Final = (None, "", False)
_ONE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when"
    " `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)


def drop_disabled_fields(spec: Object, old: Object | None) -> None:
    """Drop fields of disabled features, unless the stored slice has some."""
    before = old or {}
    for name in ("partitionTypeAttribute", "skipNodeOperations"):
        if not before.get(name):
            spec.pop(name, None)
    devices, old_devices = spec.get("devices") or (), before.get("devices") or ()
    if not any(each.get("nodeAllocatableResources") for each in old_devices):
        for device in devices:
            device.pop("nodeAllocatableResources", None)
    if not any(name in each for each in _attributes(old_devices) for name in _LISTS):
        for attribute in _attributes(devices):
            for name in _LISTS:
                attribute.pop(name, None)
    if not any(each.get("compatibilityGroups") for each in _consumptions(old_devices)):
        for consumption in _consumptions(devices):
            consumption.pop("compatibilityGroups", None)


def _attributes(devices: Any) -> list[Object]:  # noqa: ANN401 — devices
    return [each for device in devices for each in (device.get("attributes") or {}).values()]


def _consumptions(devices: Any) -> list[Object]:  # noqa: ANN401 — devices
    return [each for device in devices for each in device.get("consumesCounters") or ()]


def check_device(
    device: Object, old: Object | None, path: str, errors: Errors, *, is_per_device: bool
) -> None:
    """Check a device; parts that the stored device of the same name has may be skipped.

    is_per_device: whether each device of the slice has its own node selection.
    """
    name = device.get("name", "")
    add_invalid(errors, child(path, "name"), name, check_dns_label(name))
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    _check_counts(attributes, capacity, path, errors)
    for key_name, attribute in attributes.items():
        where = child(path, "attributes")
        check_qualified_name(key_name, where, errors)
        _check_attribute(attribute, key(where, _shortened(key_name, _KEY_SHOWN_MAX)), errors)
    if old is None or (old.get("capacity") or {}) != capacity:
        _check_capacity(device, capacity, child(path, "capacity"), errors)
    taints = device.get("taints") or []
    if old is None or (old.get("taints") or []) != taints:

        def check(taint: Object, at: str) -> None:
            check_taint(taint, at, errors)

        check_items(taints, _TAINTS_MAX, child(path, "taints"), errors, check, covered=False)
    _check_consumed(device.get("consumesCounters") or [], child(path, "consumesCounters"), errors)
    _check_node_selection(device, path, errors, is_per_device=is_per_device)
    check_bindings(device, path, errors)


def _check_counts(attributes: Object, capacity: Object, path: str, errors: Errors) -> None:
    entries = len(attributes) + len(capacity)
    if entries > _ENTRIES_MAX:
        detail = f"the total number of attributes and capacities must not exceed {_ENTRIES_MAX}"
        errors.append(invalid(path, entries, detail))
    values = sum(
        sum(len(each.get(name) or ()) for name in _LISTS) or 1 for each in attributes.values()
    )
    if values > _VALUES_MAX:
        detail = f"the total number of attribute values must not exceed {_VALUES_MAX}"
        errors.append(invalid(path, values, detail))


def _check_attribute(attribute: Object, path: str, errors: Errors) -> None:
    """Check the texts of an attribute; the type declares that it has one value."""
    text, version = attribute.get("string"), attribute.get("version")
    if text is not None:
        _check_length(text, child(path, "string"), errors)
    if version is not None:
        _check_version(version, child(path, "version"), errors)
    for position, each in enumerate(attribute.get("strings") or ()):
        _check_length(each, index(child(path, "strings"), position), errors)
    for position, each in enumerate(attribute.get("versions") or ()):
        _check_version(each, index(child(path, "versions"), position), errors)


def _check_version(text: str, path: str, errors: Errors) -> None:
    if not _VERSION.fullmatch(text):
        detail = "must be a string compatible with semver.org spec 2.0.0"
        errors.append(invalid(path, text, detail))
    _check_length(text, path, errors)


def _check_length(text: str, path: str, errors: Errors) -> None:
    if length(text) > _TEXT_MAX:
        errors.append(too_long(path, _TEXT_MAX))


def _check_capacity(device: Object, capacity: Object, path: str, errors: Errors) -> None:
    for name, amount in capacity.items():
        check_qualified_name(name, path, errors)
        policy = amount.get("requestPolicy")
        where = child(key(path, _shortened(name, _KEY_SHOWN_MAX)), "requestPolicy")
        if policy is not None and device.get("allowMultipleAllocations"):
            check_policy(policy, amount.get("value", "0"), where, errors)
        elif policy is not None:
            errors.append(forbidden(where, "allowMultipleAllocations must be true"))


def _check_consumed(consumptions: list[Object], path: str, errors: Errors) -> None:
    def check(consumption: Object, at: str) -> None:
        check_counters(consumption, "counterSet", at, errors)

    if check_items(consumptions, _CONSUMED_MAX, path, errors, check):
        names = [each.get("counterSet", "") for each in consumptions]
        errors.extend(
            duplicate(index(path, position), name)._replace(covered=True)
            for position, name in enumerate(names)
            if name in names[:position]
        )


def check_counters(counters: Object, field: str, path: str, errors: Errors) -> None:
    """Check the counters in a field, and the name of their set."""
    counter_errors: Errors = []
    name, values = counters.get(field, ""), counters.get("counters") or {}
    if name:
        add_invalid(counter_errors, child(path, field), name, check_dns_label(name))
    else:
        counter_errors.append(required(child(path, field)))
    where = child(path, "counters")
    if not values:
        counter_errors.append(required(where))
    elif len(values) > _COUNTERS_MAX:
        errors.append(too_many(where, len(values), _COUNTERS_MAX))
    else:
        for each in values:
            add_invalid(counter_errors, where, each, check_dns_label(each))
    # The type declares all of it, too, except the number of counters.
    errors.extend(each._replace(covered=True) for each in counter_errors)


def _check_node_selection(
    device: Object, path: str, errors: Errors, *, is_per_device: bool
) -> None:
    node, selector, all_nodes = (device.get(name) for name in _NODE_FIELDS)
    if not is_per_device:
        if any(device.get(name) is not None for name in _NODE_FIELDS):
            detail = (
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if"
                " `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            )
            errors.append(invalid(path, None, detail))
        return
    where = child(path, "nodeName")
    if node:
        add_invalid(errors, where, node, name_is_dns_subdomain(node, False))
    elif node is not None:
        errors.append(invalid(where, node, "must not be empty"))
    if selector is not None:
        check_node_selector(selector, child(path, "nodeSelector"), errors)
    if all_nodes is False:
        detail = "must be either unset or set to true"
        errors.append(invalid(child(path, "allNodes"), False, detail))
    given = [f"`{name}`" for name in _NODE_FIELDS if device.get(name) not in _NOT_SET]
    if not given:
        errors.append(required(path, _ONE_PLACE))
    elif len(given) > 1:
        errors.append(invalid(path, f"{{{', '.join(given)}}}", _ONE_PLACE))


def _shortened(name: str, maximum: int) -> str:
    """Return a name as in error paths, without the middle of a long one."""
    data = name.encode()
    if len(data) <= maximum:
        return name
    rest = maximum - len("...")
    shown = data[: (rest + 1) // 2] + b"..." + data[len(data) - rest // 2 :]
    return shown.decode("utf-8", "replace")
