"""Cluster IPs: the addresses of Service ranges, and their choice.

    10.0.0.0/24  →  first 10.0.0.1, last 10.0.0.254, chosen from 10.0.0.17 upwards

An address is allocated if an IPAddress object of its name exists. No state is kept here: the caller
passes the allocated addresses, creates the object in the same transaction as the Service, and
retries if another client was first.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from ipaddress import IPv4Network, ip_address, ip_network
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.well_known import IP_ADDRESS_MANAGED_BY_LABEL
from kvstack.apiserver.allocators.bands import RandomBelow, band, candidates

IPV4: Final = "IPv4"
IPV6: Final = "IPv6"

FULL: Final = "range is full"
ALLOCATED: Final = "provided IP is already allocated"
MISMATCHED: Final = "the provided network does not match the current range"
NOT_READY: Final = "allocator not ready"

FAMILY_LABEL: Final = "ipaddress.kubernetes.io/ip-family"
MANAGER: Final = "ipallocator.k8s.io"


class AddressRange(NamedTuple):
    """The usable addresses of one CIDR, as numbers."""

    cidr: str
    family: str
    network: int
    first: int
    last: int
    offset: int
    """How many addresses from `first` on are chosen last."""
    is_ready: bool = True
    """Whether new addresses may be allocated from it; not while it is being deleted."""


def address_range(cidr: str, *, is_ready: bool = True) -> AddressRange:
    """Return the range of a CIDR; ValueError if it is invalid, or wider than /64 in IPv6."""
    network = ip_network(cidr, strict=False)
    base = int(network.network_address)
    last = int(network.broadcast_address)
    if isinstance(network, IPv4Network):
        family = IPV4
        last -= 1
    else:
        family = IPV6
        if network.prefixlen < 64:
            raise ValueError(
                f"shortest allowed prefix length for service CIDR is 64, got {network.prefixlen}"
            )
    offset = band(network.num_addresses, least=16, most=256, step=16)
    return AddressRange(str(network), family, base, base + 1, last, offset, is_ready)


def service_ranges(service_cidrs: Iterable[Mapping[str, Any]]) -> list[AddressRange]:
    """Return the distinct ranges of ServiceCIDR objects; ready if one of its objects is."""
    ready: dict[str, bool] = {}
    for each in service_cidrs:
        for cidr in each.get("spec", {}).get("cidrs", ()):
            ready[cidr] = ready.get(cidr, False) or _is_ready(each)
    return [address_range(cidr, is_ready=is_ready) for cidr, is_ready in ready.items()]


def family_of(address: str) -> str:
    """Return the family of a valid address."""
    return IPV6 if ":" in address else IPV4


def contains(block: AddressRange, address: str) -> bool:
    """Return whether a Service of this range can have the (valid) address."""
    return (
        block.family == family_of(address) and block.first <= int(ip_address(address)) <= block.last
    )


def choose_address(
    ranges: Sequence[AddressRange], family: str, taken: Container[str], random_below: RandomBelow
) -> str | None:
    """Return a free address of the family from the first ready range that has one; None: full."""
    for each in ranges:
        if each.family != family or not each.is_ready:
            continue
        text = _text_of(each)
        for number in candidates(each.first, each.offset, each.last, random_below):
            address = text(number)
            if address not in taken:
                return address
    return None


def refuse_address(ranges: Sequence[AddressRange], address: str, taken: Container[str]) -> str:
    """Return why the requested address cannot be allocated; empty: it can."""
    if not any(each.is_ready and contains(each, address) for each in ranges):
        return MISMATCHED
    return ALLOCATED if str(ip_address(address)) in taken else ""


def refuse_address_dry(ranges: Sequence[AddressRange], address: str) -> str:
    """Return why a dry run refuses the address: it only checks one range."""
    block = _any_range(ranges, family_of(address))
    if block is None or not block.is_ready:
        return NOT_READY
    if contains(block, address):
        return ""
    return (
        f"the provided IP ({ip_address(address)}) is not in the valid range."
        f" The range of valid IPs is {block.cidr}"
    )


def dry_address(ranges: Sequence[AddressRange], family: str) -> str | None:
    """Return the address that a dry run shows for one to be chosen: that of the network itself."""
    block = _any_range(ranges, family)
    return None if block is None or not block.is_ready else _text_of(block)(block.network)


def ip_address_object(address: str, namespace: str, service: str) -> dict[str, Any]:
    """Return the IPAddress that allocates a (canonical) address to a Service."""
    return {
        "kind": "IPAddress",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {
            "name": address,
            "labels": {FAMILY_LABEL: family_of(address), IP_ADDRESS_MANAGED_BY_LABEL: MANAGER},
        },
        "spec": {
            "parentRef": {"resource": "services", "namespace": namespace, "name": service},
        },
    }


def _any_range(ranges: Sequence[AddressRange], family: str) -> AddressRange | None:
    return next((each for each in ranges if each.family == family), None)


def _text_of(block: AddressRange) -> Callable[[int], str]:
    """Return the function that prints a number of the range as an address."""
    if block.family == IPV4:
        return _ipv4_text
    return _ipv6_text


def _ipv4_text(number: int) -> str:
    return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _ipv6_text(number: int) -> str:
    return str(ip_address(number)) if number >> 32 else str(ip_address(number.to_bytes(16)))


def _is_ready(service_cidr: Mapping[str, Any]) -> bool:
    if service_cidr.get("metadata", {}).get("deletionTimestamp"):
        return False
    ready = find(service_cidr.get("status", {}).get("conditions"), "Ready")
    return ready is None or ready.get("status") == "True"
