"""Endpoints: the addresses behind a Service, in the old kind that EndpointSlice replaced."""

from collections.abc import Iterator
from typing import Any, Final

from kvstack.apimachinery.objects.addresses import ip_warnings, validate_legacy_ip
from kvstack.apimachinery.objects.field_errors import FieldError, child, index, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    check_dns_label,
    check_dns_subdomain,
    check_label_key,
    check_port_number,
)
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apimachinery.well_known import ENDPOINTS_MANAGED_BY_LABEL
from kvstack.apiserver.kinds.cells import first_of
from kvstack.apiserver.kinds.endpoint_addresses import check_endpoint_address
from kvstack.apiserver.kinds.rules import (
    Errors,
    add_invalid,
    all_of,
    each,
    formatted,
    needs_one_of,
)
from kvstack.apiserver.kinds.strategy import Context, Strategy

CONTROLLER: Final = "endpoint-controller"
PROTOCOLS: Final = enum_values("io.k8s.api.core.v1.EndpointPort", "protocol")


def _default(obj: Object) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    _check_subsets(obj, "", errors)
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = _validate(new, context)
    # What older versions admitted may stay.
    return [] if errors and new.get("subsets") == old.get("subsets") else errors


def _check_subset(subset: Object, path: str, errors: Errors) -> None:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
    _check_addresses(subset, path, errors)
    ports = subset.get("ports") or ()
    for position, port in enumerate(ports):
        _check_port(port, index(child(path, "ports"), position), errors, len(ports) > 1)


def _check_address(address: Object, path: str, errors: Errors) -> None:
    ip = address.get("ip", "")
    errors.extend(validate_legacy_ip(child(path, "ip"), ip))
    _check_names(address, path, errors)
    check_endpoint_address(errors, child(path, "ip"), ip)


def _check_node_name(address: Object, path: str, errors: Errors) -> None:
    name = address.get("nodeName")
    if name is not None:
        add_invalid(errors, child(path, "nodeName"), name, check_dns_subdomain(name))


def _check_port(port: Object, path: str, errors: Errors, needs_name: bool) -> None:  # noqa: FBT001
    name = port.get("name", "")
    if name:
        add_invalid(errors, child(path, "name"), name, check_dns_label(name))
    elif needs_name:
        errors.append(required(child(path, "name")))
    number = port.get("port", 0)
    add_invalid(errors, child(path, "port"), number, check_port_number(number))
    _check_protocol(port, path, errors)
    protocol = port.get("appProtocol")
    if protocol is not None:
        add_invalid(errors, child(path, "appProtocol"), protocol, check_label_key(protocol))


_check_protocol: Final = needs_one_of("protocol", PROTOCOLS)
_check_names: Final = all_of(formatted("hostname", check_dns_label), _check_node_name)
_check_addresses: Final = all_of(
    each("addresses", _check_address), each("notReadyAddresses", _check_address)
)
_check_subsets: Final = each("subsets", _check_subset)


def _warnings(obj: Object, _context: Context) -> list[str]:
    if (obj["metadata"].get("labels") or {}).get(ENDPOINTS_MANAGED_BY_LABEL) == CONTROLLER:
        return []
    warnings: list[str] = []
    for position, subset in enumerate(obj.get("subsets") or ()):
        for name in ("addresses", "notReadyAddresses"):
            path = child(index("subsets", position), name)
            for number, address in enumerate(subset.get(name) or ()):
                field = child(index(path, number), "ip")
                warnings.extend(ip_warnings(field, address.get("ip", "")))
    return warnings


def _update_warnings(new: Object, _old: Object, context: Context) -> list[str]:
    return _warnings(new, context)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    shown = first_of(3, _address_texts(obj)) if obj.get("subsets") else "<none>"
    return [metadata["name"], shown, age(metadata.get("creationTimestamp"), now)]


def _address_texts(obj: Object) -> Iterator[str]:
    """Yield each ready address with each port, or alone if there are no ports."""
    for subset in obj.get("subsets") or ():
        addresses = [each["ip"] for each in subset.get("addresses") or ()]
        ports = subset.get("ports")
        if not ports:
            yield from addresses
        for port in ports or ():
            for ip in addresses:
                host = f"[{ip}]" if ":" in ip else ip
                yield f"{host}:{port.get('port', 0)}"


ENDPOINTS: Final = Strategy(
    default=_default,
    validate=_validate,
    validate_update=_validate_update,
    warnings=_warnings,
    update_warnings=_update_warnings,
    allows_create_on_update=True,
    cells=_cells,
)
