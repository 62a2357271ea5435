"""The rules that ports of Services need, as values: what a packet must be, and what becomes of it.

    rule = Rule((FromRanges(("10.244.0.0/24",)), Goto("service-…")), "short-circuit pod traffic")
    text_of(rule, 4)     ip saddr 10.244.0.0/24 goto service-… comment "short-circuit pod traffic"

`nft` reads the text; `expressions` has the same for the kernel. A rule that chooses among endpoints
does it in a map that many rules share, by numbers from `first` on. The kernel walks all sets of a
table for each new set, all elements of a map for each new rule that uses it, and all rules that use
a map for each new element. A map for each rule would take the time of n² for n rules, and one map
for all rules, too; with a fixed number of maps none of it is felt.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

from kvstack.agents.proxy.services import Family

_MAPS: Final = {"tcp": 48, "udp": 8, "sctp": 2}
"""How many maps there are for the endpoints of a protocol."""


@dataclass(frozen=True, slots=True)
class FromRanges:
    """It comes from one of some ranges of addresses, or from none of them."""

    ranges: tuple[str, ...]
    is_not: bool = False


@dataclass(frozen=True, slots=True)
class FromInterface:
    """It comes by an interface; `veth*`: any whose name begins so."""

    name: str
    is_not: bool = False


@dataclass(frozen=True, slots=True)
class FromThisNode:
    """It comes from an address of this node."""


@dataclass(frozen=True, slots=True)
class FromClientOf:
    """It comes from an address of a set."""

    name: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Give it the bits of a mark."""

    bits: int


@dataclass(frozen=True, slots=True)
class Remember:
    """Put its source into a set, or let it stay there for the set's time from now on."""

    name: str


@dataclass(frozen=True, slots=True)
class Goto:
    """Go on in a chain."""

    chain: str


@dataclass(frozen=True, slots=True)
class GotoOneOf:
    """Jump to one of several chains at random."""

    chains: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop it."""


class Target(NamedTuple):
    """An address and a port of an endpoint."""

    ip: str
    port: int

    @property
    def text(self) -> str:
        """As rules have it: 10.244.0.3:8080, [fd00::3]:8080."""
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


@dataclass(frozen=True, slots=True)
class To:
    """Translate it to an endpoint."""

    protocol: str
    target: Target


@dataclass(frozen=True, slots=True)
class ToOneOf:
    """Translate the destination to one of several endpoints at random."""

    protocol: str
    targets: tuple[Target, ...]
    map: str
    """Where they stand."""
    first: int = 0
    """The number of the first one there, once it has been given out."""


Part: TypeAlias = (
    FromRanges
    | FromInterface
    | FromThisNode
    | FromClientOf
    | Mark
    | Remember
    | Goto
    | GotoOneOf
    | Drop
    | To
    | ToOneOf
)


class Rule(NamedTuple):
    """A rule of a chain."""

    parts: tuple[Part, ...]
    comment: str = ""

    def uses(self, name: str) -> bool:
        """Whether it uses a set of clients."""
        return any(
            isinstance(each, FromClientOf | Remember) and each.name == name for each in self.parts
        )


def ip(family: Family) -> str:
    """Return the name of a family in rules, which is also that of its table."""
    return "ip" if family == 4 else "ip6"


def endpoint_map(protocol: str, chain: str) -> str:
    """Return the map with the endpoints of a chain."""
    return _map(protocol, crc32(chain.encode()) % _MAPS[protocol])


def endpoint_maps(family: Family) -> dict[str, str]:
    """Return the declarations of all of them.

    `nft` takes `th dport`, which would do for all protocols, for a mistake in rules of one.
    """
    return {
        _map(protocol, at): (
            f"map {{ typeof numgen random mod 2 : {ip(family)} daddr . {protocol} dport ; }}"
        )
        for protocol, count in _MAPS.items()
        for at in range(count)
    }


def _map(protocol: str, at: int) -> str:
    return f"{protocol}-endpoints-{at:02}"


def text_of(rule: Rule, family: Family) -> str:
    """Return a rule as text."""
    words = [part_text(each, family) for each in rule.parts]
    if rule.comment:
        words.append(f'comment "{rule.comment}"')
    return " ".join(words)


def part_text(part: Part, family: Family) -> str:
    """Return one part of a rule as text."""
    return _TEXTS[type(part)](part, ip(family))


def braced(members: tuple[str, ...]) -> str:
    """Return a set without a name; one member stands for itself."""
    return members[0] if len(members) == 1 else f"{{ {', '.join(members)} }}"


def _no(part: FromRanges | FromInterface) -> str:
    return "!= " if part.is_not else ""


def _chosen(part: ToOneOf, x: str) -> str:
    choice = f"numgen random mod {len(part.targets)} offset {part.first} map @{part.map}"
    return f"meta l4proto {part.protocol} dnat {x} addr . port to {choice}"


def _chosen_chain(part: GotoOneOf, _x: str) -> str:
    choices = ", ".join(f"{at} : goto {chain}" for at, chain in enumerate(part.chains))
    return f"numgen random mod {len(part.chains)} vmap {{ {choices} }}"


_TEXTS: Final[dict[type, Callable[[Any, str], str]]] = {
    FromRanges: lambda part, x: f"{x} saddr {_no(part)}{braced(part.ranges)}",
    FromInterface: lambda part, _: f'iifname {_no(part)}"{part.name}"',
    FromThisNode: lambda *_: "fib saddr type local",
    FromClientOf: lambda part, x: f"{x} saddr @{part.name}",
    Mark: lambda part, _: f"mark set mark or {part.bits:#010x}",
    Remember: lambda part, x: f"update @{part.name} {{ {x} saddr }}",
    Goto: lambda part, _: f"goto {part.chain}",
    GotoOneOf: _chosen_chain,
    Drop: lambda *_: "drop",
    To: lambda part, _: f"meta l4proto {part.protocol} dnat to {part.target.text}",
    ToOneOf: _chosen,
}
