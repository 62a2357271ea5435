"""What the rules of a node depend on besides Services: in all modes that write rules.

RuleSettings(4, local=LocalTraffic(cidrs=("10.244.0.0/24",)), node_ips=("192.0.2.5",))
"""

from dataclasses import dataclass, field
from typing import NamedTuple

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

    @property
    def mark(self) -> int:
        """The bit of packets that leave with the node's address."""
        return 1 << self.masquerade_bit
