"""Who may send through the tunnels: rules of nftables.

A packet of a tunnel (UDP) says itself where it comes from. It is taken from addresses of nodes
alone, and what was in it has to be from pods or nodes' ends and to this node's own range; of a
family that pods do not have, nothing is taken. No pod may send to the port: its packets would leave
with the address of its node.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kvstack.agents.kubelet.routes.kernel import PORT, TUNNELS
from kvstack.agents.kubelet.routes.plan import FAMILIES, Address, Network
from kvstack.agents.kubelet.runtime.process.network import nft_rules, translator
from kvstack.agents.kubelet.runtime.process.network.translation import TranslationError
from kvstack.component.net import nft
from kvstack.component.net.hosts import has_ipv6

TABLE: Final = "kvstack-tunnel"
_IP: Final = {4: "ip", 6: "ip6"}
_ARRIVED: Final = "iifname {{ {} }}".format(", ".join(f'"{each}"' for each in TUNNELS.values()))


def rules(
    own: Mapping[int, Network],
    cluster_ranges: Sequence[Network],
    nodes: Mapping[int, Iterable[Address]],
    families: Iterable[int] = FAMILIES,
) -> str:
    """Return the whole tables.

    own: ranges of this node by family; nodes: those that are tunneled to, by the family of the
    tunnel; families: those that the kernel has.
    """
    whole: dict[int, Network] = {each.version: each for each in cluster_ranges}
    return "".join(
        _table(family, own.get(family), whole.get(family), sorted(set(nodes.get(family, ()))))
        for family in families
    )


def _table(
    family: int, own: Network | None, whole: Network | None, nodes: Sequence[Address]
) -> str:
    """Return the table of a family; own, whole: the ranges of pods; nodes: of the tunnel."""
    x = _IP[family]
    table = f"{x} {TABLE}"
    inside = "    " + f"{_ARRIVED} drop\n"
    if own is not None and whole is not None:
        inside = (
            f"    {_ARRIVED} {x} saddr != {whole} drop\n    {_ARRIVED} {x} daddr != {own} drop\n"
        )
    return (
        f"table {table}\n"
        f"delete table {table}\n"
        f"table {table} {{\n"
        f"{_of_nodes(family, whole, nodes) if nodes else ''}"
        "  chain inside {\n"
        "    type filter hook prerouting priority -300;\n"
        f"{inside}"
        "  }\n"
        "}\n"
    )


def _of_nodes(family: int, whole: Network | None, nodes: Sequence[Address]) -> str:
    """Return the rules for the packets of a tunnel."""
    x = _IP[family]
    passing = (
        "" if whole is None else f"    {x} saddr {whole} udp dport {PORT} {x} daddr @nodes drop\n"
    )
    return (
        "  set nodes {\n"
        f"    type ipv{family}_addr;\n"
        f"    elements = {{ {', '.join(map(str, nodes))} }}\n"
        "  }\n"
        "  chain outside {\n"
        "    type filter hook input priority -300;\n"
        f"    udp dport {PORT} {x} saddr != @nodes drop\n"
        "  }\n"
        "  chain passing {\n"
        "    type filter hook forward priority -300;\n"
        f"{passing}"
        "  }\n"
    )


def apply(text: str) -> None:
    """Put the tables in place; TranslationError."""
    if not nft.is_installed():
        raise TranslationError("the tunnel to other nodes needs the program nft")
    translator.run_nft(text)


def remove() -> None:
    """Remove the tables if they exist; TranslationError."""
    if nft.is_installed():
        for family in families():
            translator.run_nft(nft_rules.removal(TABLE, family))


def families() -> tuple[int, ...]:
    """Return those that the kernel has."""
    return FAMILIES if has_ipv6() else FAMILIES[:1]
