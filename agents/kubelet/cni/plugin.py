"""The CNI plugin's commands and their results.

    answer(environment, configuration, state)      the result to print; None: there is none

A `CniError` is the error answer. DEL and GC succeed however often they are called,
and whether or not the container's namespace still exists.
"""

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.cni.attachments import NAME, Attachment, Attachments
from kvstack.agents.kubelet.runtime.process.network import translator
from kvstack.agents.kubelet.runtime.process.network.pod_network import (
    INTERFACE,
    PodNetwork,
    hardware_address,
    is_part,
    pair_name,
)
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.agents.kubelet.runtime.runtime import Port, StartError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.net.hosts import of_families
from kvstack.component.net.netlink import Netlink
from kvstack.component.net.netlink import Network as IpNetwork

TYPE: Final = "kvstack"
VERSIONS: Final = ("1.0.0", "1.1.0")
_NEWEST: Final = VERSIONS[-1]
_WRONG_VERSION, _UNKNOWN_CONTAINER, _BAD_ENVIRONMENT, _IO, _BAD_CONFIGURATION = 1, 3, 4, 5, 7
_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
"""Not from the schema: a plugin is started for each pod, and loads little."""
_VALID: Final = "cni.dev/valid-attachments"
_OWN_NETWORK: Final = "/proc/thread-self/ns/net"


class CniError(Exception):
    """An error for the engine; code: of the specification."""

    def __init__(self, code: int, message: str) -> None:
        """code: of the specification."""
        super().__init__(message)
        self.code: Final = code


@dataclass(frozen=True, slots=True)
class Network:
    """A network configuration."""

    name: str
    version: str
    subnets: tuple[IpNetwork, ...]
    """The subnets of this node's pods, one of a family at most."""
    cluster_ranges: tuple[IpNetwork, ...]
    ports: tuple[Port, ...]
    """Ports of the node that are to be forwarded to the container."""
    valid: frozenset[str] | None
    """Containers that GC leaves; None: it was not said."""


def answer(environment: Mapping[str, str], configuration: Object, state: Path) -> Object | None:
    """Execute a request of the engine; CniError."""
    command = environment.get("CNI_COMMAND", "")
    if command == "VERSION":
        return {"cniVersion": _NEWEST, "supportedVersions": list(VERSIONS)}
    network = _read(configuration)
    if command == "STATUS":
        return None
    work = {"ADD": _add, "DEL": _delete, "CHECK": _check}.get(command)
    try:
        with Attachments(state / "cni", network.name) as known:
            if command == "GC":
                _collect(network, known, state)
                return None
            if work is None:
                raise CniError(_BAD_ENVIRONMENT, f"CNI_COMMAND is {command!r}")
            return work(network, environment, known, state)
    except (OSError, StartError) as error:
        text = error.message if isinstance(error, StartError) else str(error)
        raise CniError(_IO, text) from error


def _read(configuration: Object) -> Network:
    """Return what a configuration says; CniError."""
    version, name = configuration.get("cniVersion", ""), configuration.get("name", "")
    if version not in VERSIONS:
        text = f"cniVersion is {version!r}: one of {', '.join(VERSIONS)}"
        raise CniError(_WRONG_VERSION, text)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise CniError(_BAD_CONFIGURATION, f"name is {name!r}")
    subnets, ranges = _ranges(configuration, "subnet"), _ranges(configuration, "clusterCIDR")
    for subnet in subnets:
        if not any(is_part(subnet, whole) for whole in ranges):
            text = f"subnet {subnet} is not in clusterCIDR {configuration['clusterCIDR']}"
            raise CniError(_BAD_CONFIGURATION, text)
    valid = configuration.get(_VALID)
    return Network(
        name,
        version,
        subnets,
        ranges,
        tuple(map(_port, (configuration.get("runtimeConfig") or {}).get("portMappings") or ())),
        None if valid is None else frozenset(str(each.get("containerID")) for each in valid),
    )


def _ranges(given: Object, key: str) -> tuple[IpNetwork, ...]:
    """Return a range, or one of each family with a comma between; CniError."""
    try:
        found = of_families(str(given.get(key, "")), ipaddress.ip_network)
    except ValueError as error:
        raise CniError(_BAD_CONFIGURATION, f"{key}: {error}") from error
    if not found:
        raise CniError(_BAD_CONFIGURATION, f"{key} is missing")
    return found


def _port(mapping: Object) -> Port:
    """Return a port of the node; CniError."""
    protocol, host_ip = str(mapping.get("protocol", "tcp")).upper(), mapping.get("hostIP") or ""
    numbers = mapping.get("containerPort"), mapping.get("hostPort")
    try:
        is_address = not host_ip or bool(ipaddress.ip_address(host_ip))
    except ValueError:
        is_address = False
    is_good = all(isinstance(each, int) and 0 < each < 1 << 16 for each in numbers)
    if protocol not in _PROTOCOLS or not is_good or not is_address:
        raise CniError(_BAD_CONFIGURATION, f"portMappings: {mapping!r}")
    return Port(int(numbers[0] or 0), int(numbers[1] or 0), protocol, host_ip)


def _container(environment: Mapping[str, str]) -> str:
    """Return which container is meant; CniError."""
    found, interface = environment.get("CNI_CONTAINERID", ""), environment.get("CNI_IFNAME", "")
    if not NAME.fullmatch(found):
        raise CniError(_BAD_ENVIRONMENT, f"CNI_CONTAINERID is {found!r}")
    if interface != INTERFACE:
        raise CniError(_BAD_ENVIRONMENT, f"CNI_IFNAME is {interface!r}: {INTERFACE} alone is made")
    return found


def _pod_network(network: Network, known: Attachments, state: Path) -> PodNetwork:
    """Return the node's network with all that is connected."""
    found = PodNetwork(f"cni:{network.name}", state, network.cluster_ranges)
    found.use_ranges([str(each) for each in network.subnets])
    for container, each in known.all().items():
        found.keep(container, each.addresses, each.ports)
    return found


def _add(
    network: Network, environment: Mapping[str, str], attachments: Attachments, state: Path
) -> Object:
    container, path = _container(environment), environment.get("CNI_NETNS", "")
    if container in attachments.all():
        raise CniError(_BAD_ENVIRONMENT, f"the container {container} is connected already")
    if network.ports and not translator.program():
        raise CniError(_IO, f"portMappings: {translator.NEITHER}")
    pods = _pod_network(network, attachments, state)
    namespace, own = _open_namespace(path), os.open(_OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with Netlink() as outside, _inside(namespace, own) as inside:
            inside.set_up("lo")
            addresses = pods.connect(container, namespace, network.ports, outside, inside)
        try:
            attachments.add(container, Attachment(addresses, network.ports))
        except OSError:
            pods.disconnect(container)
            raise
    finally:
        os.close(namespace)
        os.close(own)
    mac = hardware_address(addresses[0]).hex(":")
    ways = [pods.way_of(each) for each in addresses]
    return {
        "cniVersion": network.version,
        "interfaces": [
            {"name": pods.bridge},
            {"name": pair_name(container)},
            {"name": INTERFACE, "mac": mac, "sandbox": path},
        ],
        "ips": [
            {"address": str(each.interface), "gateway": str(each.gateway), "interface": 2}
            for each in ways
        ],
        "routes": [{"dst": each.everywhere, "gw": str(each.gateway)} for each in ways],
        "dns": {},
    }


def _delete(
    network: Network, environment: Mapping[str, str], known: Attachments, state: Path
) -> None:
    _disconnect(network, [_container(environment)], known, state)


def _collect(network: Network, known: Attachments, state: Path) -> None:
    """Disconnect all containers but those that the engine says it has."""
    if network.valid is None:
        raise CniError(_BAD_CONFIGURATION, f"{_VALID} is missing")
    gone = [each for each in known.all() if each not in network.valid]
    _disconnect(network, gone, known, state)


def _disconnect(
    network: Network, containers: Sequence[str], known: Attachments, state: Path
) -> None:
    pods = _pod_network(network, known, state)
    for each in containers:
        pods.disconnect(each)
        known.remove(each)


def _check(
    network: Network, environment: Mapping[str, str], known: Attachments, _state: Path
) -> None:
    container = _container(environment)
    if container not in known.all():
        raise CniError(_UNKNOWN_CONTAINER, f"the container {container} is not connected")
    own = os.open(_OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
    namespace = _open_namespace(environment.get("CNI_NETNS", ""))
    try:
        with Netlink() as outside, _inside(namespace, own) as inside:
            for links, name in ((outside, pair_name(container)), (inside, INTERFACE)):
                if all(each.name != name for each in links.links()):
                    raise CniError(_IO, f"the interface {name} of {network.name} is gone")
    finally:
        os.close(namespace)
        os.close(own)


def _open_namespace(path: str) -> int:
    """Return the descriptor of a namespace; CniError."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CniError(_BAD_ENVIRONMENT, f"CNI_NETNS {path!r}: {error.strerror}") from error


def _inside(namespace: int, own: int) -> Netlink:
    """Return a conversation about another namespace; this thread stays where it is."""
    syscalls.setns(namespace, syscalls.CLONE_NEWNET)
    try:
        return Netlink()
    finally:
        syscalls.setns(own, syscalls.CLONE_NEWNET)
