"""EndpointSlices: up to a thousand endpoints of a Service, of one address type."""

from collections.abc import Callable
from typing import Any, Final

from kvstack.apimachinery.objects.addresses import (
    ip_warnings,
    parse_ip,
    validate_ip,
    validate_legacy_ip,
)
from kvstack.apimachinery.objects.field_checks import fully_qualified_domain_name
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    index,
    internal,
    invalid,
    key,
    not_supported,
    required,
    too_many,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.metadata import validate_labels
from kvstack.apimachinery.objects.names import (
    IMMUTABLE,
    check_dns_label,
    check_dns_subdomain,
    check_label_key,
    check_label_value,
)
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apimachinery.well_known import HOSTNAME_LABEL, SLICE_MANAGED_BY_LABEL, ZONE_LABEL
from kvstack.apiserver.kinds.cells import first_of
from kvstack.apiserver.kinds.core.endpoints import PROTOCOLS
from kvstack.apiserver.kinds.endpoint_addresses import check_endpoint_address
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.generation import set_first_generation
from kvstack.apiserver.kinds.rules import Errors, add_invalid, one_of
from kvstack.apiserver.kinds.strategy import Context, Strategy

ENDPOINTS_MAX: Final = 1000
ADDRESSES_MAX: Final = 100
PORTS_MAX: Final = 20000

_SLICE: Final = "io.k8s.api.discovery.v1.EndpointSlice"
_CONTROLLERS: Final = frozenset({
    "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io",
})  # fmt: skip
_TYPES: Final = enum_values(_SLICE, "addressType")
_TOPOLOGY_MAX: Final = 16
_HINTS_MAX: Final = 8
_SHOWN: Final = 3


def _default(obj: Object) -> None:
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _prepare_create(obj: Object, context: Context) -> None:
    set_first_generation(obj, context)
    _drop_topology(obj, None)


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    metadata, before = new["metadata"], old["metadata"]
    bare, bare_before = ({**each, "metadata": {}} for each in (new, old))
    if not same(bare, bare_before, _SLICE) or (metadata.get("labels") or {}) != (
        before.get("labels") or {}
    ):
        metadata["generation"] = before.get("generation", 0) + 1
    if (new.get("endpoints") or []) != (old.get("endpoints") or []):
        _drop_topology(new, old)


def _drop_topology(new: Object, old: Object | None) -> None:
    """Drop the topology labels of endpoints, which v1 only shows; keep the node that they name."""
    known = {
        (each.get("deprecatedTopology") or {}).get(HOSTNAME_LABEL)
        for each in (old or {}).get("endpoints") or ()
    } - {None, ""}
    for each in new.get("endpoints") or ():
        node = (each.pop("deprecatedTopology", None) or {}).get(HOSTNAME_LABEL)
        if node and node in known and "nodeName" not in each and not check_dns_subdomain(node):
            each["nodeName"] = node


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    return _errors(obj, None)


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors = _errors(new, old)
    if new.get("addressType", "") != old.get("addressType", ""):
        errors.append(invalid("addressType", None, IMMUTABLE))
    return errors


def _errors(obj: Object, old: Object | None) -> list[FieldError]:
    errors: list[FieldError] = []
    declared: list[FieldError] = []
    _check_ports(errors, obj.get("ports") or [])
    endpoints: list[Object] = obj.get("endpoints") or []
    endpoint_errors: list[FieldError] = []
    _check_endpoints(endpoint_errors, declared, endpoints, obj.get("addressType", ""))
    # What older versions admitted may stay.
    if old is not None and endpoints == (old.get("endpoints") or []):
        endpoint_errors, declared = [], []
    kind = obj.get("addressType", "")
    if not kind:
        errors_of_type = [required("addressType")]
    elif kind not in _TYPES:
        errors_of_type = [not_supported("addressType", JsonText(kind), _TYPES)]
    else:
        errors_of_type = []
    return errors + endpoint_errors + errors_of_type + declared


def _check_endpoints(errors: Errors, declared: Errors, endpoints: list[Object], kind: str) -> None:
    if len(endpoints) > ENDPOINTS_MAX:
        errors.append(too_many("endpoints", len(endpoints), ENDPOINTS_MAX))
        return
    check_address = _ADDRESSES.get(kind)
    for position, endpoint in enumerate(endpoints):
        path = index("endpoints", position)
        addresses_path, addresses = child(path, "addresses"), endpoint.get("addresses") or []
        if not addresses:
            declared.append(required(addresses_path))
        elif len(addresses) > ADDRESSES_MAX:
            declared.append(too_many(addresses_path, len(addresses), ADDRESSES_MAX))
        if check_address is not None:
            for number, address in enumerate(addresses):
                check_address(errors, addresses_path, number, address)
        _check_endpoint(errors, path, endpoint)


def _check_ipv4(errors: Errors, path: str, position: int, text: str) -> None:
    field = index(path, position)
    wrong = validate_legacy_ip(field, text)
    errors.extend(wrong)
    if not wrong:
        if not _is_ipv4(text):
            errors.append(invalid(path, text, "must be an IPv4 address"))
        check_endpoint_address(errors, field, text)


def _check_ipv6(errors: Errors, path: str, position: int, text: str) -> None:
    field = index(path, position)
    wrong = validate_ip(field, text)
    errors.extend(wrong)
    if not wrong:
        if _is_ipv4(text):
            errors.append(invalid(path, text, "must be an IPv6 address"))
        check_endpoint_address(errors, field, text)


def _check_name(errors: Errors, path: str, position: int, text: str) -> None:
    errors.extend(fully_qualified_domain_name(index(path, position), text))


def _is_ipv4(text: str) -> bool:
    address = parse_ip(text)
    return address is not None and address.is_ipv4


_ADDRESSES: Final[dict[str, Callable[[Errors, str, int, str], None]]] = {
    "IPv4": _check_ipv4,
    "IPv6": _check_ipv6,
    "FQDN": _check_name,
}


def _check_endpoint(errors: Errors, path: str, endpoint: Object) -> None:
    node = endpoint.get("nodeName")
    if node is not None:
        add_invalid(errors, child(path, "nodeName"), node, check_dns_subdomain(node))
    topology = endpoint.get("deprecatedTopology")
    if topology:
        _check_topology(errors, child(path, "deprecatedTopology"), topology)
    name = endpoint.get("hostname")
    if name is not None:
        add_invalid(errors, child(path, "hostname"), name, check_dns_label(name))
    hints = endpoint.get("hints")
    if hints is not None:
        _check_hints(errors, child(path, "hints"), hints)


def _check_topology(errors: Errors, path: str, topology: dict[str, str]) -> None:
    if len(topology) > _TOPOLOGY_MAX:
        errors.append(too_many(path, len(topology), _TOPOLOGY_MAX))
    errors.extend(validate_labels(path, topology))
    if ZONE_LABEL in topology:
        detail = "reserved key was not removed in conversion"
        errors.append(internal(key(path, ZONE_LABEL), detail))


def _check_hints(errors: Errors, path: str, hints: Object) -> None:
    for name, check in (("forZones", check_label_value), ("forNodes", check_dns_subdomain)):
        list_path, items = child(path, name), hints.get(name) or []
        if len(items) > _HINTS_MAX:
            errors.append(too_many(list_path, len(items), _HINTS_MAX))
            return
        seen: set[str] = set()
        for position, item in enumerate(items):
            field, text = child(index(list_path, position), "name"), item.get("name", "")
            if text in seen:
                errors.append(duplicate(field, text))
            seen.add(text)
            add_invalid(errors, field, text, check(text))


def _check_ports(errors: Errors, ports: list[Object]) -> None:
    if len(ports) > PORTS_MAX:
        errors.append(too_many("ports", len(ports), PORTS_MAX))
        return
    names: set[str] = set()
    for position, port in enumerate(ports):
        path = index("ports", position)
        name = port.get("name", "")
        if name:
            add_invalid(errors, child(path, "name"), name, check_dns_label(name))
        if name in names:
            errors.append(duplicate(child(path, "name"), JsonText(name)))
        names.add(name)
        _check_protocol(port, path, errors)
        protocol = port.get("appProtocol")
        if protocol is not None:
            add_invalid(errors, child(path, "appProtocol"), protocol, check_label_key(protocol))


_check_protocol: Final = one_of("protocol", PROTOCOLS)


def _warnings(obj: Object, _context: Context) -> list[str]:
    if obj.get("addressType") == "FQDN":
        return ["spec.addressType: FQDN endpoints are deprecated", *_address_warnings(obj)]
    return _address_warnings(obj)


def _update_warnings(new: Object, _old: Object, _context: Context) -> list[str]:
    return _address_warnings(new)


def _address_warnings(obj: Object) -> list[str]:
    if (obj["metadata"].get("labels") or {}).get(SLICE_MANAGED_BY_LABEL) in _CONTROLLERS:
        return []
    warnings: list[str] = []
    for position, endpoint in enumerate(obj.get("endpoints") or ()):
        path = child(index("endpoints", position), "addresses")
        for number, address in enumerate(endpoint.get("addresses") or ()):
            warnings.extend(ip_warnings(index(path, number), address))
    return warnings


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    addresses = [ip for each in obj.get("endpoints") or () for ip in each.get("addresses") or ()]
    return [
        metadata["name"],
        obj.get("addressType", ""),
        first_of(_SHOWN, map(_port_text, obj.get("ports") or ())) or "<unset>",
        first_of(_SHOWN, addresses) or "<unset>",
        age(metadata.get("creationTimestamp"), now),
    ]


def _port_text(port: Object) -> str:
    number = port.get("port")
    name: str = port.get("name", "*")
    return name if number is None else str(number)


ENDPOINT_SLICES: Final = Strategy(
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    warnings=_warnings,
    update_warnings=_update_warnings,
    has_generation=True,
    cells=_cells,
)
