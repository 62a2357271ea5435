"""The DNS data of Services and EndpointSlices: a few plain values of each object."""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final, NamedTuple, TypeAlias

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_label
from kvstack.apimachinery.well_known import SERVICE_NAME_LABEL

Key: TypeAlias = tuple[str, str]
"""Namespace and name of a Service."""

NO_PORT: Final = -1


class Port(NamedTuple):
    """A port that a SRV record may name."""

    name: str
    protocol: str
    """In lower case."""
    number: int


class Service(NamedTuple):
    """A Service."""

    ips: tuple[str, ...] = ()
    """None: it is headless, or an ExternalName."""
    ports: tuple[Port, ...] = ()
    alias: str = ""
    """The name that it stands for, of type ExternalName."""
    is_alias: bool = False


class Endpoint(NamedTuple):
    """An address behind a Service that takes requests, and the name that it has there."""

    address: str
    hostname: str


class Slice(NamedTuple):
    """The endpoints of one EndpointSlice that are ready."""

    ports: tuple[Port, ...]
    endpoints: tuple[Endpoint, ...]


def service_of(obj: Object) -> Service:
    """Return the DNS data of a Service."""
    spec = obj.get("spec") or {}
    if spec.get("type") == "ExternalName":
        name = (spec.get("externalName") or "").rstrip(".").lower()
        return Service(alias="" if is_address(name) else name, is_alias=True)
    given = spec.get("clusterIPs") or [spec.get("clusterIP") or ""]
    ips = tuple(normal(each) for each in given if each not in ("", "None"))
    ports = [_port(each, each.get("port")) for each in spec.get("ports") or ()]
    return Service(ips, tuple(ports))


def slice_of(obj: Object, *, by_pod_names: bool = False) -> Slice:
    """Return the DNS data of an EndpointSlice; by_pod_names: pods without hostname by theirs."""
    if obj.get("addressType") not in ("IPv4", "IPv6"):
        return Slice((), ())
    ports = [_port(each, each.get("port")) for each in obj.get("ports") or ()]
    endpoints = [
        Endpoint(address, _hostname(each, address, by_pod_names=by_pod_names))
        for each in obj.get("endpoints") or ()
        if (each.get("conditions") or {}).get("ready") is not False
        for address in map(normal, each.get("addresses") or ())
    ]
    return Slice(tuple(ports), tuple(endpoints))


def service_key(obj: Object) -> Key | None:
    """Return the Service that an EndpointSlice belongs to; None: none."""
    meta = obj["metadata"]
    name = (meta.get("labels") or {}).get(SERVICE_NAME_LABEL)
    return (meta["namespace"], name) if name else None


def _hostname(endpoint: Object, address: str, *, by_pod_names: bool) -> str:
    if given := endpoint.get("hostname"):
        return str(given).lower()
    target = endpoint.get("targetRef") or {}
    name = str(target.get("name") or "")
    if by_pod_names and target.get("kind") == "Pod" and name and not check_dns_label(name):
        return name
    return dashed(address)


def dashed(address: str) -> str:
    """Return an address as a label: 10-0-0-5, fd00--5."""
    found = address.replace(".", "-").replace(":", "-")
    return f"{found}0" if found.endswith("-") else found


def undashed(label: str) -> str:
    """Return the address that a label says; empty: it says none."""
    is_ipv4 = label.count("-") == 3 and "--" not in label
    text = label.replace("-", "." if is_ipv4 else ":")
    return normal(text) if is_address(text) else ""


def is_address(text: str) -> bool:
    """Whether a text is an address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def normal(text: str) -> str:
    """Return an address in its shortest form; what is none stays."""
    try:
        return str(ip_address(text))
    except ValueError:
        return text


def _port(port: Object, number: int | None) -> Port:
    protocol = (port.get("protocol") or "TCP").lower()
    return Port((port.get("name") or "").lower(), protocol, NO_PORT if number is None else number)


def named(ports: Iterable[Port], name: str, protocol: str) -> list[Port]:
    """Return the ports with a name and a protocol; empty ones: any."""
    return [
        each
        for each in ports
        if (not name or each.name == name) and (not protocol or each.protocol == protocol)
    ]
