"""What the rules of a node depend on besides Services: in all modes that write rules.

RuleSettings(4, local=LocalTraffic(cidrs=("10.244.0.0/24",)), node_ips=("192.0.2.5",))
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from typing import NamedTuple, Self

from kvstack.agents.proxy.services import Family


class LocalTraffic(NamedTuple):
    """How traffic of this node's pods is told from other traffic; all empty: it is not."""

    cidrs: tuple[str, ...] = ()
    bridge: str = ""
    interface_prefix: str = ""

    def of(self, family: Family) -> tuple[str, ...]:
        """Return the ranges of a family."""
        return tuple(each for each in self.cidrs if (":" in each) == (family == 6))


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Of one family on one node."""

    family: Family
    masquerade_bit: int = 14
    masquerades_all: bool = False
    local: LocalTraffic = field(default_factory=LocalTraffic)
    node_ips: tuple[str, ...] | None = ()
    """Where node ports are served; None: on every local address but loopback."""
    service_ranges: tuple[str, ...] = ()
    """Of cluster IPs."""
    node_ip: str = ""
    serves_loopback: bool = False
    """Whether node ports are served on 127.0.0.0/8, too: with iptables, in IPv4."""
    drops_invalid: bool = True
    """Whether packets that belong to no connection are dropped: with iptables."""

    def with_service_ranges(self, ranges: Iterable[str]) -> Self:
        """Return them with those of the ranges that are of the family."""
        own = sorted(each for each in ranges if (":" in each) == (self.family == 6))
        return replace(self, service_ranges=tuple(own))

    def outside(self, addresses: Iterable[str]) -> list[str]:
        """Return the addresses without cluster IPs, which are those of other Services."""
        ranges = [ip_network(each) for each in self.service_ranges]
        return [
            each for each in addresses if not any(ip_address(each) in range_ for range_ in ranges)
        ]

    @property
    def mark(self) -> int:
        """The bit of packets that leave with the node's address."""
        return 1 << self.masquerade_bit
