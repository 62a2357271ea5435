"""The subresource `proxy`: the target of a request, and the path there.

    nodes/NAME/proxy/healthz                  → the kubelet of the node
    nodes/http:NAME:8080/proxy/               → another port of the node
    pods/NAME:8080/proxy/a/b                  → a port of the pod; without one, its first
    services/https:NAME:web/proxy/            → a pod that is ready behind a port of the Service

Loopback, link-local and similar addresses are refused: they lead to the server's own machine. A
Service leads only to addresses of pods in its namespace.
"""

import asyncio
import ipaddress
import posixpath
import socket
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import SERVICE_NAME_LABEL
from kvstack.apiserver.registry.keys import object_key
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.results import Proxying
from kvstack.apiserver.verbs.subresources import node_addresses

PODS: Final = GroupResource("", "pods")
SERVICES: Final = GroupResource("", "services")
SLICES: Final = GroupResource("discovery.k8s.io", "endpointslices")
_SCHEMES: Final = ("", "http", "https")
_PORT_MAX: Final = 65535
_TARGET_SEGMENTS: Final = 3
"""Segments: resource, name and subresource; the rest of the path belongs to the target."""


class Name(NamedTuple):
    """The parsed name of the path."""

    scheme: str
    name: str
    port: str


async def target(call: Call) -> Proxying:
    """Return the target of a request; raises ApiError."""
    resource = call.endpoint.resource
    name = _split(call.info.name)
    if name is None:
        singular = call.endpoint.row.singular
        raise status.bad_request(f"invalid {singular} request {quote(call.info.name)}")
    find = _of_service
    if resource == PODS:
        find = _of_pod
    elif resource == node_addresses.NODES:
        find = _of_node
    rest = "/".join(call.info.parts[_TARGET_SEGMENTS:])
    prefix = call.info.path.rstrip("/").removesuffix(rest).rstrip("/")
    return (await find(call, name))._replace(path=path_of(call), prefix=prefix)


def _split(text: str) -> Name | None:
    """Return the parts of `name`, `name:port` or `scheme:name:port`."""
    parts = text.split(":")
    if len(parts) == 3:
        found = Name(*parts)
    elif len(parts) < 3:
        found = Name("", parts[0], parts[1] if len(parts) == 2 else "")
    else:
        return None
    return found if found.name and found.scheme in _SCHEMES else None


def path_of(call: Call) -> str:
    """Return the path at the target; empty if the path ends with the subresource."""
    rest = call.info.parts[_TARGET_SEGMENTS:]
    if not rest:
        return "/" if call.info.path.endswith("/") else ""
    joined = posixpath.normpath("/" + "/".join(rest).lstrip("/"))
    return f"{joined}/" if call.info.path.endswith("/") and joined != "/" else joined


async def _of_node(call: Call, name: Name) -> Proxying:
    address = await node_addresses.kubelet_of(call, name.name)
    found = await _resolve(call, address.host)
    if name.port in ("", str(address.port)):
        host = _host_port(address.host, str(address.port))
        return Proxying("https", host, "", is_kubelet=True, address=found)
    _check_port(name.port)
    return Proxying(name.scheme or "http", _host_port(address.host, name.port), "", address=found)


async def _of_pod(call: Call, name: Name) -> Proxying:
    pod = await _get(call, PODS, name.name)
    port = name.port or _first_port(pod)
    address = (pod.get("status") or {}).get("podIP") or ""
    _check_address(call, address)
    if port:
        _check_port(port)
    return Proxying(name.scheme or "http", _host_port(address, port), "")


async def _of_service(call: Call, name: Name) -> Proxying:
    port = name.port
    number = _number(port)
    if number is not None:
        service = await _get(call, SERVICES, name.name)
        named = [
            each.get("name") or ""
            for each in service["spec"].get("ports") or ()
            if each["port"] == number
        ]
        if not named:
            raise status.service_unavailable(
                f"no service port {number} found for service {quote(name.name)}"
            )
        port = named[0]
    found = list(_endpoints(call, name.name, port))
    if not found:
        raise status.service_unavailable(f"no endpoints available for service {quote(name.name)}")
    host = found[call.env.random.randrange(len(found))]
    return Proxying(name.scheme or "http", host, "")


def _endpoints(call: Call, service: str, port_name: str) -> Iterator[str]:
    """Yield host and port of ready endpoints behind a port of a Service."""
    registry, namespace = call.env.registry, call.info.namespace
    for record in registry.collection(SLICES).between(f"{namespace}/", f"{namespace}0"):
        each = record.parse()
        if (each["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL) != service:
            continue
        port = next((p["port"] for p in each.get("ports") or () if _is_port(p, port_name)), None)
        if port is None:
            continue
        for endpoint in each.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue
            address = endpoint["addresses"][0]
            if _is_of_pod(call, endpoint, address):
                yield _host_port(address, str(port))


def _is_port(port: Mapping[str, object], name: str) -> bool:
    return port.get("name", "") == name and port.get("port") is not None


def _is_of_pod(call: Call, endpoint: Object, address: str) -> bool:
    """Return whether an address is that of the pod that its endpoint names."""
    reference = endpoint.get("targetRef")
    namespace = call.info.namespace
    if reference is None or reference.get("namespace") != namespace:
        return False
    pods = call.env.registry.collection(PODS)
    record = pods.get(object_key(namespace, reference.get("name", "")))
    if record is None:
        return False
    addresses = (record.parse().get("status") or {}).get("podIPs") or ()
    return any(each.get("ip") == address for each in addresses)


async def _get(call: Call, resource: GroupResource, name: str) -> Object:
    registry = call.env.registry
    key = object_key(call.info.namespace, name)
    record = await registry.reads.get(registry.collection(resource), key, None)
    if record is None:
        raise status.not_found(resource, name)
    return record.parse()


def _first_port(pod: Object) -> str:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            return str(port["containerPort"])
    return ""


def _number(port: str) -> int | None:
    try:
        return parse_int(port, 64)
    except NumberError:
        return None


def _check_port(port: str) -> None:
    if not (port.isascii() and port.isdigit() and int(port) <= _PORT_MAX):
        raise status.bad_request(f"invalid port {quote(port)}")


def _host_port(host: str, port: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" if port else shown


async def _resolve(call: Call, host: str) -> str:
    """Return an address of a host, all of which must be allowed; raises ApiError."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise status.bad_request(f"lookup {host}: {error.strerror}") from None
    for *_, address in found:
        _check_address(call, str(address[0]))
    return str(found[0][4][0])


def _check_address(call: Call, text: str) -> None:
    if not _is_allowed(text, allows_loopback=call.env.settings.proxies_to_loopback):
        raise status.bad_request("address not allowed")


def _is_allowed(text: str, *, allows_loopback: bool) -> bool:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    if address.is_loopback:
        return allows_loopback
    is_special = address.is_multicast or address.is_link_local or address.is_unspecified
    return not is_special and address != ipaddress.IPv4Address("255.255.255.255")
