"""The address translation for a node's pods, in one family; `translator` writes it.

out of the cluster        from the node's address
to a port of the node     to the pod that has it (hostPort)
from a pod to loopback    nowhere
from another's address    nowhere
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from kvstack.agents.kubelet.runtime.runtime import Port
from kvstack.component.net.netlink import Network

ANYWHERE: Final = {4: "0.0.0.0", 6: "::"}
LINKS: Final = "fe80::/10"
"""Addresses of IPv6 that every link has, and no route leads to."""
LOOPBACK: Final = {4: "127.0.0.0/8", 6: "::1"}


class TranslationError(Exception):
    """The rules cannot be put in place."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The address translation of a node."""

    name: str
    """The name of the bridge, which distinguishes the rules from those of other nodes."""
    pods: str
    """The prefix of the names of pods' interfaces on the node."""
    network: Network
    """The range of the pods of this node."""
    cluster_range: Network
    """The range of the pods of all nodes; traffic to them keeps the pod's address."""
    shown: Mapping[str, Sequence[Port]] = field(default_factory=dict)
    """Ports of the node, by the address of their pod."""

    @property
    def family(self) -> int:
        """4 or 6."""
        return self.network.version

    def ports(self) -> Iterator[tuple[str, Port]]:
        """Give the ports of the node that addresses of the family have, each with its pod's."""
        for address, ports in self.shown.items():
            for port in ports:
                if not port.host_ip or ip_address(port.host_ip).version == self.family:
                    yield address, port

    def is_anywhere(self, port: Port) -> bool:
        """Whether a port is published on all addresses of the node."""
        return port.host_ip in ("", ANYWHERE[self.family])


def host_ports(ports: Iterable[Port]) -> list[Port]:
    """Return those that the node shows."""
    return [each for each in ports if each.host_port]


def target(address: str, port: Port) -> str:
    """Return where a port of the node leads, as rules have it."""
    return f"[{address}]:{port.number}" if ":" in address else f"{address}:{port.number}"
