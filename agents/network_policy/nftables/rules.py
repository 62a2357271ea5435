"""How rules of policies read in nftables.

    from pods, TCP 80         ip saddr @peers-1f… tcp dport { 80 } accept
    to a port with a name     ip daddr . meta l4proto . th dport @ports-2a… accept

Nothing that a user wrote gets here: names are digests, addresses and ports are numbers.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from kvstack.agents.network_policy.cluster import Direction, NamedRule
from kvstack.agents.network_policy.members import PEERS, PORTS, Content
from kvstack.agents.network_policy.policies import ALL_PORTS, Ports
from kvstack.agents.network_policy.ranges import Family, Range

_IP: Final = {4: "ip", 6: "ip6"}
_TYPES: Final = {4: "ipv4_addr", 6: "ipv6_addr"}


def ip(family: Family) -> str:
    """Return the name of a family in rules."""
    return _IP[family]


def address_type(family: Family) -> str:
    """Return the type of a family's addresses in sets."""
    return _TYPES[family]


def set_name(name: str, family: Family) -> str:
    """Return the name of the part of a set that holds addresses of a family."""
    return f"{name}-{family}"


def declaration(content: Content, family: Family) -> str:
    """Return the type of a set."""
    if content.kind == PEERS:
        return f"type {_TYPES[family]} ;"
    if content.kind == PORTS:
        return f"type {_TYPES[family]} . inet_proto . inet_service ;"
    return f"type {_TYPES[family]} ; flags interval ;"


def range_text(family: Family, given: Range) -> str:
    """Return a range as an element."""
    make = IPv4Address if family == 4 else IPv6Address
    first, last = given
    return str(make(first)) if first == last else f"{make(first)}-{make(last)}"


def lines(
    direction: Direction, rules: Iterable[NamedRule], families: Iterable[Family]
) -> tuple[str, ...]:
    """Return the lines of the chain of a policy in one direction."""
    found: dict[str, None] = {}
    families = tuple(families)
    for rule in rules:
        for family in families:
            for peer in _peers(direction, rule, family):
                for port in _ports(rule, family):
                    found[" ".join(filter(None, (peer, port, "accept")))] = None
    return tuple(found)


def _peers(direction: Direction, rule: NamedRule, family: Family) -> Iterator[str]:
    if rule.rule.peers is None:
        yield ""
        return
    match = f"{_IP[family]} {'saddr' if direction == 'ingress' else 'daddr'}"
    if rule.peers:
        yield f"{match} @{set_name(rule.peers, family)}"
    for name, own in zip(rule.ranges, rule.rule.blocks, strict=True):
        if own == family:
            yield f"{match} @{set_name(name, family)}"


def _ports(rule: NamedRule, family: Family) -> Iterator[str]:
    ports = rule.rule.ports
    if ports is None:
        yield ""
        return
    yield from _numbers(ports)
    if rule.ports:
        name = set_name(rule.ports, family)
        yield f"{_IP[family]} daddr . meta l4proto . th dport @{name}"


def _numbers(ports: Ports) -> Iterator[str]:
    for protocol, ranges in sorted(ports.numbers.items()):
        if ranges == (ALL_PORTS,):
            yield f"meta l4proto {protocol.lower()}"
        else:
            parts = ", ".join(
                str(first) if first == last else f"{first}-{last}" for first, last in ranges
            )
            yield f"{protocol.lower()} dport {{ {parts} }}"
