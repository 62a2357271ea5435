"""The status of a claim: allocation, consumers and device status."""

from typing import Any, Final

from kvstack.apimachinery.objects import field_checks
from kvstack.apimachinery.objects.addresses import validate_interface_address
from kvstack.apimachinery.objects.field_errors import (
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE, check_dns_label, length
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.devices.claim_specs import check_references
from kvstack.apiserver.kinds.devices.declared import CONFIGURATION_SOURCES, TYPES
from kvstack.apiserver.kinds.devices.names import (
    Requests,
    check_driver_name,
    check_pool_name,
    check_reference,
    declared_uuid,
)
from kvstack.apiserver.kinds.devices.parts import (
    check_bindings,
    check_configuration,
    check_items,
    check_raw,
    check_toleration,
)
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.pods.node_selectors import check_node_selector
from kvstack.apiserver.kinds.rules import Errors, add_invalid

_ALLOCATION: Final = f"{TYPES}.AllocationResult"
_RESERVED_MAX: Final = 256
_RESULTS_MAX: Final = 32
_CONFIG_MAX: Final = 64
_CONDITIONS_MAX: Final = 8
_ADDRESSES_MAX: Final = 16
_SIZES: Final = (("interfaceName", 256), ("hardwareAddress", 128))

Identity = tuple[str, str, str, str]
"""Driver, pool, device and share."""


def drop_disabled_status_fields(status: Object, before: Object) -> None:
    """Drop the operations that nodes skip, unless the stored status has some."""
    if any(each.get("skipNodeOperations") for each in _results(before)):
        return
    for result in _results(status):
        result.pop("skipNodeOperations", None)


def drop_deallocated_devices(status: Object, before: Object) -> None:
    """Drop the status of devices that are no longer allocated."""
    gone = _allocated(before) - _allocated(status)
    devices = status.get("devices")
    if devices is None:
        return
    kept = [each for each in devices if _identity(each) not in gone]
    if kept:
        status["devices"] = kept
    else:
        del status["devices"]


def _results(status: Object) -> list[Object]:
    devices = (status.get("allocation") or {}).get("devices") or {}
    return devices.get("results") or []


def _allocated(status: Object) -> set[Identity]:
    return {_identity(each) for each in _results(status)}


def _identity(device: Object) -> Identity:
    driver, pool, name, share = (
        device.get(each) or "" for each in ("driver", "pool", "device", "shareID")
    )
    return driver, pool, name, share


def check_status(
    status: Object, before: Object, requests: Requests, errors: Errors, *, is_deleted: bool
) -> None:
    """Check a written status."""
    reserved, devices = status.get("reservedFor") or [], status.get("devices") or []
    allocation, old_allocation = status.get("allocation"), before.get("allocation")
    path = "status.reservedFor"

    def check_user(reference: Object, at: str) -> None:
        names = ("resource", "name", "uid")
        errors.extend(required(child(at, name)) for name in names if not reference.get(name))

    if check_items(reserved, _RESERVED_MAX, path, errors, check_user):
        _check_unique([each.get("uid", "") for each in reserved], path, errors)
    _check_devices(devices, _allocated(status), errors)
    if reserved and allocation is None:
        errors.append(forbidden(path, "may not be specified when `allocated` is not set"))
    elif is_deleted and any(each not in (before.get("reservedFor") or ()) for each in reserved):
        detail = (
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp`"
            " are set"
        )
        errors.append(forbidden(path, detail))
    path = "status.allocation"
    if allocation is not None and old_allocation is not None:
        if not same(allocation, old_allocation, _ALLOCATION):
            error = invalid(path, internal_value(allocation, _ALLOCATION), IMMUTABLE)
            errors.append(error._replace(covered=True))
    elif allocation is not None:
        _check_allocation(allocation, path, requests, errors)


def _check_unique(identities: list[Any], path: str, errors: Errors) -> None:
    errors.extend(
        duplicate(index(path, position), None)._replace(covered=True)
        for position, identity in enumerate(identities)
        if identity in identities[:position]
    )


def _check_devices(devices: list[Object], allocated: set[Identity], errors: Errors) -> None:
    path = "status.devices"
    for position, device in enumerate(devices):
        _check_device(device, index(path, position), allocated, errors)
    _check_unique([_identity(each) for each in devices], path, errors)


def _check_device(device: Object, path: str, allocated: set[Identity], errors: Errors) -> None:
    check_driver_name(device.get("driver", ""), child(path, "driver"), errors)
    check_pool_name(device.get("pool", ""), child(path, "pool"), errors)
    name = device.get("device", "")
    add_invalid(errors, child(path, "device"), name, check_dns_label(name))
    _check_share(device, path, errors)
    identity = _identity(device)
    if identity not in allocated:
        shown = dict(zip(("Driver", "Pool", "Device", "ShareID"), identity, strict=True))
        errors.append(invalid(path, shown, "must be an allocated device in the claim"))
    conditions, where = device.get("conditions") or [], child(path, "conditions")
    if len(conditions) > _CONDITIONS_MAX:
        errors.append(too_many(where, len(conditions), _CONDITIONS_MAX))
    errors += field_checks.conditions(where, conditions)
    if device.get("data") is not None:
        check_raw(device["data"], child(path, "data"), errors)
    network = device.get("networkData")
    if network is not None:
        _check_network(network, child(path, "networkData"), errors)


def _check_share(device: Object, path: str, errors: Errors) -> None:
    share = device.get("shareID")
    if share is not None:
        found = declared_uuid(share, child(path, "shareID"))
        errors.extend(each._replace(covered=True) for each in found)


def _check_network(network: Object, path: str, errors: Errors) -> None:
    for name, maximum in _SIZES:
        if length(network.get(name, "")) > maximum:
            errors.append(too_long(child(path, name), maximum)._replace(covered=True))
    addresses, where = network.get("ips") or [], child(path, "ips")

    def check(address: str, at: str) -> None:
        errors.extend(validate_interface_address(at, address))

    if check_items(addresses, _ADDRESSES_MAX, where, errors, check):
        _check_unique(addresses, where, errors)


def _check_allocation(allocation: Object, path: str, requests: Requests, errors: Errors) -> None:
    devices, where = allocation.get("devices") or {}, child(path, "devices")

    def check_result(result: Object, at: str) -> None:
        _check_result(result, at, requests, errors)

    def check_config(config: Object, at: str) -> None:
        source = config.get("source", "")
        source_path = child(at, "source")
        if not source:
            errors.append(required(source_path)._replace(covered=True))
        elif source not in CONFIGURATION_SOURCES:
            wrong = not_supported(source_path, JsonText(source), CONFIGURATION_SOURCES)
            errors.append(wrong._replace(covered=True))
        check_references(config.get("requests") or [], child(at, "requests"), errors, requests)
        check_configuration(config, at, errors, is_stored=False)

    results, config = devices.get("results") or [], devices.get("config") or []
    check_items(results, _RESULTS_MAX, child(where, "results"), errors, check_result)
    check_items(config, _CONFIG_MAX, child(where, "config"), errors, check_config)
    selector = allocation.get("nodeSelector")
    if selector is not None:
        check_node_selector(selector, child(path, "nodeSelector"), errors)


def _check_result(result: Object, path: str, requests: Requests, errors: Errors) -> None:
    check_reference(result.get("request", ""), child(path, "request"), requests, errors)
    check_driver_name(result.get("driver", ""), child(path, "driver"), errors, covered=True)
    check_pool_name(result.get("pool", ""), child(path, "pool"), errors, covered=True)
    name = result.get("device", "")
    add_invalid(errors, child(path, "device"), name, check_dns_label(name))
    check_bindings(result, path, errors)
    tolerations = child(path, "tolerations")
    for position, toleration in enumerate(result.get("tolerations") or ()):
        check_toleration(toleration, index(tolerations, position), errors)
    _check_share(result, path, errors)
