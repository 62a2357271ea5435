"""Addresses of hollow pods: 10.244.<number of the node>.<n>, or of the node's own podCIDR.

A node's addresses are given in turn, so that one that was given back rests as long as possible.
"""

from ipaddress import IPv4Address, IPv4Network
from typing import Final

_BASE: Final = IPv4Address("10.244.0.0")
_OUT_OF_BASE: Final = IPv4Address("100.64.0.0")
_NODES_IN_BASE: Final = 12 * 256  # 10.244.0.0 to 10.255.255.0
_PREFIX: Final = 24


class NoAddressError(Exception):
    """All addresses of a node are taken."""


class PodAddresses:
    """The addresses of one node's pods."""

    def __init__(self, number: int, pod_cidr: str = "") -> None:
        """Own the range of a node; pod_cidr: what the cluster gave it, IPv4."""
        self._range: Final = _network(number, pod_cidr)
        self._last = 0
        self._owners: dict[str, str] = {}  # address → uid of its pod

    def keep(self, address: str, uid: str) -> None:
        """Remember an address that a pod has since before."""
        self._owners[address] = uid

    def of(self, uid: str) -> str:
        """Return a free address, which is the pod's from now on; raises NoAddressError."""
        count = self._range.num_addresses - 2
        for _ in range(count):
            self._last = self._last % count + 1
            address = str(self._range[self._last])
            if address not in self._owners:
                self._owners[address] = uid
                return address
        raise NoAddressError(f"all {count} addresses of {self._range} are taken")

    def free(self, address: str, uid: str) -> None:
        """Take back the address of a pod, if it is its."""
        if self._owners.get(address) == uid:
            del self._owners[address]


def _network(number: int, pod_cidr: str) -> IPv4Network:
    if pod_cidr and ":" not in pod_cidr:
        return IPv4Network(pod_cidr)
    if number < _NODES_IN_BASE:
        return IPv4Network((_BASE + number * 256, _PREFIX))
    return IPv4Network((_OUT_OF_BASE + (number - _NODES_IN_BASE) * 256, _PREFIX))
