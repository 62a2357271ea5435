"""Who may send through the tunnel: rules of nftables.

A packet of the tunnel (UDP) says itself where it comes from. It is taken from addresses of nodes
alone, and what was in it has to be from pods or nodes' ends and to this node's own range. No pod
may send to the port: its packets would leave with the address of its node.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from kvstack.agents.kubelet.routes.kernel import PORT, TUNNEL
from kvstack.agents.kubelet.runtime.process.network import nft_rules, translator
from kvstack.agents.kubelet.runtime.process.network.translation import TranslationError
from kvstack.component.net import nft

TABLE: Final = "kvstack-tunnel"


def rules(own: IPv4Network, cluster_range: IPv4Network, nodes: Iterable[IPv4Address]) -> str:
    """Return the whole table; own: range of this node; nodes: those that are tunneled to."""
    members = ", ".join(map(str, sorted(set(nodes))))
    return (
        f"table ip {TABLE}\n"
        f"delete table ip {TABLE}\n"
        f"table ip {TABLE} {{\n"
        "  set nodes {\n"
        "    type ipv4_addr;\n"
        f"    elements = {{ {members} }}\n"
        "  }\n"
        "  chain outside {\n"
        "    type filter hook input priority -300;\n"
        f"    udp dport {PORT} ip saddr != @nodes drop\n"
        "  }\n"
        "  chain inside {\n"
        "    type filter hook prerouting priority -300;\n"
        f'    iifname "{TUNNEL}" ip saddr != {cluster_range} drop\n'
        f'    iifname "{TUNNEL}" ip daddr != {own} drop\n'
        "  }\n"
        "  chain passing {\n"
        "    type filter hook forward priority -300;\n"
        f"    ip saddr {cluster_range} udp dport {PORT} ip daddr @nodes drop\n"
        "  }\n"
        "}\n"
    )


def apply(text: str) -> None:
    """Put the table in place; TranslationError."""
    if not nft.is_installed():
        raise TranslationError("the tunnel to other nodes needs the program nft")
    translator.run_nft(text)


def remove() -> None:
    """Take the table away if it is there; TranslationError."""
    if nft.is_installed():
        translator.run_nft(nft_rules.removal(TABLE, 4))
