"""The addresses of one node's pods.

They are given in turn, so that one that was given back rests as long as possible.
"""

from ipaddress import IPv4Network, IPv6Network
from typing import Final, TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network


class NoAddressError(Exception):
    """All addresses of a node are taken."""


class PodAddresses:
    """The addresses of one range; its first and last, which name no host, are not given."""

    def __init__(self, network: Network) -> None:
        self.network: Final = network
        self._last = 0
        self._owners: dict[str, str] = {}  # address → uid of its pod

    @property
    def is_unused(self) -> bool:
        """Whether no pod has an address."""
        return not self._owners

    def keep(self, address: str, uid: str) -> None:
        """Remember the address of an existing pod."""
        self._owners[address] = uid

    def of(self, uid: str) -> str:
        """Return a free address, which is the pod's from now on; raises NoAddressError."""
        count = self.network.num_addresses - 2
        for _ in range(count):
            self._last = self._last % count + 1
            address = str(self.network[self._last])
            if address not in self._owners:
                self._owners[address] = uid
                return address
        raise NoAddressError(f"all {count} addresses of {self.network} are taken")

    def free(self, address: str, uid: str) -> None:
        """Free the address of a pod, if it is its."""
        if self._owners.get(address) == uid:
            del self._owners[address]
