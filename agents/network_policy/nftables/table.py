"""What is in the table, and the text that changes it in one transaction of `nft -f -`.

    table = Table("kvstack-network-policy-1a2b3c4d")
    table.change(cluster.take_changes(), cluster)    what differs, as text; empty: nothing
    table.whole(cluster)                             all of it, whatever is in the table now
    table.take_stale()                               chains that may be deleted a second later

    forward, -6 ─► egress:  source in @egress-4?   ─► its chain ─► policies: accept ┐
    input,   -6 ─► (pod → its node, the same)         … drop                         │
    forward, -5 ─► ingress: target in @ingress-4?  ─► its chain ─► policies: accept ┘ … drop

`accept` ends one base chain alone, so what may leave a pod is still looked at where it arrives.
What the node itself sends passes through neither. Addresses were translated before: chains see
endpoints.
A chain that no address leads to any more is emptied at once and deleted in a later transaction,
because kernels before 6.2 still count the element that led there.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kvstack.agents.network_policy.cluster import (
    DIRECTIONS,
    Changes,
    Chosen,
    Cluster,
    Direction,
    PolicyKey,
)
from kvstack.agents.network_policy.members import RANGES, Content, Element
from kvstack.agents.network_policy.nftables.rules import (
    address_type,
    declaration,
    ip,
    lines,
    range_text,
    set_name,
)
from kvstack.agents.network_policy.ranges import FAMILIES, Family

_ABOUT: Final = "NetworkPolicies of the pods of this node"
_ELEMENTS_MAX: Final = 500
"""Of one statement."""
_DIGITS: Final = 16
_HOOKS: Final[tuple[tuple[str, Direction, str, int], ...]] = (
    ("egress-forward", "egress", "forward", -6),
    ("egress-input", "egress", "input", -6),
    ("ingress-forward", "ingress", "forward", -5),
)
_NEIGHBOURS: Final = "{ nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit }"
"""Without which a pod would not find its node."""
CANARY: Final = "ingress-forward"
"""A chain that is empty or gone if somebody has flushed the rules of the machine."""


class Table:
    """The table of one node."""

    def __init__(self, name: str, families: tuple[Family, ...] = FAMILIES) -> None:
        """Nothing is written yet; families: of which pods have addresses."""
        self.name: Final = name
        self.families: Final = families
        self._table = f"inet {name}"
        self._chosen: dict[tuple[Direction, Chosen], int] = {}  # addresses that lead there
        self._leads: dict[tuple[Direction, str], Chosen] = {}
        self._stale: set[str] = set()

    @property
    def delete(self) -> str:
        """The statements that leave nothing of the table."""
        return f"add table {self._table}\ndelete table {self._table}\n"

    def whole(self, cluster: Cluster) -> str:
        """Return what makes the table as it is to be; changes that were not taken are in it."""
        cluster.take_changes()
        self._chosen.clear()
        self._leads.clear()
        self._stale.clear()
        table, text = self._table, _Statements()
        text.first += [f"add table {table}", f"delete table {table}"]
        text.first.append(f'add table {table} {{ comment "{_ABOUT}" ; }}')
        self._base(text)
        for name, content in cluster.sets.contents().items():
            self._declare(name, content, text)
            if content.kind != RANGES:
                self._fill("add", name, cluster.sets.elements(name), text)
        for key, rules in cluster.rules.items():
            text.first.append(f"add chain {table} {policy_chain(key)}")
            for line in lines(key[0], rules, self.families):
                text.rules.append(f"add rule {table} {policy_chain(key)} {line}")
        self._lead(cluster.isolated(), text)
        return text.text()

    def change(self, changes: Changes) -> str:
        """Return what is to be written."""
        table, text = self._table, _Statements()
        for name, content in changes.sets.created.items():
            self._declare(name, content, text)
        for name, elements in changes.sets.removed.items():
            self._fill("delete", name, elements, text)
        for name, elements in changes.sets.added.items():
            self._fill("add", name, elements, text)
        for key, rules in changes.rules.items():
            chain = policy_chain(key)
            text.first.append(f"add chain {table} {chain}")
            text.flushed.append(f"flush chain {table} {chain}")
            if rules is None:
                text.last.append(f"delete chain {table} {chain}")
                continue
            for line in lines(key[0], rules, self.families):
                text.rules.append(f"add rule {table} {chain} {line}")
        self._lead(changes.isolated, text)
        for name in changes.sets.gone:
            for family in self._families_of(changes.sets.gone[name]):
                text.last.append(f"delete set {table} {set_name(name, family)}")
        return text.text()

    def take_stale(self) -> list[str]:
        """Return the statements that delete what is used no more; each may fail by itself."""
        stale, self._stale = self._stale, set()
        return [f"delete chain {self._table} {name}\n" for name in sorted(stale)]

    def _base(self, text: "_Statements") -> None:
        """Write what the table has whatever the policies are."""
        table = self._table
        for family in self.families:
            kind = address_type(family)
            for direction in DIRECTIONS:
                text.first.append(
                    f"add map {table} {direction}-{family} {{ type {kind} : verdict ; }}"
                )
            text.first.append(f"add set {table} own-{family} {{ type {kind} . {kind} ; }}")
        for chain, direction, hook, priority in _HOOKS:
            text.first.append(
                f"add chain {table} {chain}"
                f" {{ type filter hook {hook} priority {priority} ; policy accept ; }}"
            )
            text.rules.append(f"add rule {table} {chain} ct state established,related accept")
            if hook == "input" and 6 in self.families:
                text.rules.append(f"add rule {table} {chain} icmpv6 type {_NEIGHBOURS} accept")
            for family in self.families:
                x, side = ip(family), "daddr" if direction == "ingress" else "saddr"
                # A pod that reaches itself through a Service.
                text.rules.append(
                    f"add rule {table} {chain} {x} saddr . {x} daddr @own-{family} accept"
                )
                text.rules.append(f"add rule {table} {chain} {x} {side} vmap @{direction}-{family}")

    def _families_of(self, content: Content) -> tuple[Family, ...]:
        if content.ranges is None:
            return self.families
        return tuple(each for each in self.families if each == content.ranges[0])

    def _declare(self, name: str, content: Content, text: "_Statements") -> None:
        for family in self._families_of(content):
            own = set_name(name, family)
            text.first.append(f"add set {self._table} {own} {{ {declaration(content, family)} }}")
            if content.ranges is not None:
                parts = [range_text(family, each) for each in content.ranges[1]]
                text.elements += self._statements("add", own, parts)

    def _fill(self, verb: str, name: str, elements: Iterable[Element], text: "_Statements") -> None:
        by_family: dict[Family, list[str]] = {}
        for element in elements:
            by_family.setdefault(_family(element[0]), []).append(" . ".join(element))
        for family in self.families:
            parts = sorted(by_family.get(family, ()))
            text.elements += self._statements(verb, set_name(name, family), parts)

    def _lead(
        self, isolated: Mapping[tuple[Direction, str], Chosen | None], text: "_Statements"
    ) -> None:
        """Let addresses lead to their chains."""
        gone: dict[str, list[str]] = {}
        come: dict[str, list[str]] = {}
        unused: list[tuple[Direction, Chosen]] = []
        for (direction, address), chosen in isolated.items():
            family = _family(address)
            if family not in self.families:
                continue
            was_own = self._is_isolated(address)
            old = self._leads.pop((direction, address), None)
            container = f"{direction}-{family}"
            if old is not None:
                gone.setdefault(container, []).append(address)
                self._chosen[direction, old] -= 1
                if not self._chosen[direction, old]:
                    unused.append((direction, old))
            if chosen is not None:
                self._leads[direction, address] = chosen
                self._count(direction, chosen, text)
                chain = pods_chain(direction, chosen)
                come.setdefault(container, []).append(f"{address} : goto {chain}")
            is_own = self._is_isolated(address)
            if was_own is not is_own:
                own = come if is_own else gone
                own.setdefault(f"own-{family}", []).append(f"{address} . {address}")
        for key in unused:
            if not self._chosen.get(key, 1):
                del self._chosen[key]
                text.flushed.append(f"flush chain {self._table} {pods_chain(*key)}")
                self._stale.add(pods_chain(*key))
        for verb, containers in (("delete", gone), ("add", come)):
            for container, parts in containers.items():
                text.verdicts += self._statements(verb, container, sorted(parts))

    def _is_isolated(self, address: str) -> bool:
        return any((each, address) in self._leads for each in DIRECTIONS)

    def _count(self, direction: Direction, chosen: Chosen, text: "_Statements") -> None:
        """Let one more address lead to a chain, which is written for the first."""
        count = self._chosen.get((direction, chosen))
        self._chosen[direction, chosen] = (count or 0) + 1
        if count is not None:
            return
        name = pods_chain(direction, chosen)
        self._stale.discard(name)
        text.first.append(f"add chain {self._table} {name}")
        text.flushed.append(f"flush chain {self._table} {name}")
        for key in chosen:
            target = policy_chain((direction, key))
            text.rules.append(f"add rule {self._table} {name} jump {target}")
        text.rules.append(f"add rule {self._table} {name} drop")

    def _statements(self, verb: str, container: str, parts: list[str]) -> Iterator[str]:
        for first in range(0, len(parts), _ELEMENTS_MAX):
            some = ", ".join(parts[first : first + _ELEMENTS_MAX])
            yield f"{verb} element {self._table} {container} {{ {some} }}"


class _Statements:
    """The statements of a transaction, in the order in which the kernel takes them."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self.elements: list[str] = []
        self.flushed: list[str] = []
        self.rules: list[str] = []
        self.verdicts: list[str] = []
        self.last: list[str] = []

    def text(self) -> str:
        parts = (
            self.first, self.elements, self.flushed, self.rules, self.verdicts, self.last,
        )  # fmt: skip
        return "".join(f"{line}\n" for part in parts for line in part)


def policy_chain(key: PolicyKey) -> str:
    """Return the chain of a policy in one direction."""
    return f"{key[0]}-policy-{_digest(key[1])}"


def pods_chain(direction: Direction, chosen: Chosen) -> str:
    """Return the chain of all pods that the same policies isolate."""
    return f"{direction}-pods-{_digest(' '.join(chosen))}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _family(address: str) -> Family:
    return 6 if ":" in address else 4
