"""The range of a hollow node: 10.244.<number of the node>.0/24, or the node's own podCIDR."""

from ipaddress import IPv4Address, IPv4Network
from typing import Final

_BASE: Final = IPv4Address("10.244.0.0")
_OUT_OF_BASE: Final = IPv4Address("100.64.0.0")
_NODES_IN_BASE: Final = 12 * 256  # 10.244.0.0 to 10.255.255.0
_PREFIX: Final = 24


def range_of(number: int, pod_cidr: str = "") -> IPv4Network:
    """Return the range of a node; pod_cidr: what the cluster gave it, IPv4."""
    if pod_cidr and ":" not in pod_cidr:
        return IPv4Network(pod_cidr)
    if number < _NODES_IN_BASE:
        return IPv4Network((_BASE + number * 256, _PREFIX))
    return IPv4Network((_OUT_OF_BASE + (number - _NODES_IN_BASE) * 256, _PREFIX))
