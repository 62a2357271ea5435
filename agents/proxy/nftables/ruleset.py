"""What is in the table, and what changes it in one transaction.

    ruleset = Ruleset(layout)
    ruleset.change({name: PortRules, gone: None})   what differs, as a Transaction
    ruleset.whole(TableContents(chains, sets))     all of it, as text, whatever the table has now
    ruleset.take_stale()                            transactions for what goes a second later

A chain that is used no more is emptied at once and deleted in a later transaction, because kernels
before 6.2 still count the map's element that led there. An element that several ports want (a
hairpin of one pod, an external address that two Services claim) is there while one of them does;
the oldest decides where it leads, so that nobody takes what another Service has.

A rule that chooses among endpoints has a row of numbers in a map. It gets another row
when it is written anew, and the old one goes with a later transaction: a packet that is on its way
while the kernel changes over reads elements a moment after rules, and must find those of its rule.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Final, NamedTuple

from kvstack.agents.proxy.claims import Claims
from kvstack.agents.proxy.nftables.layout import NODE_PORT_IPS, Layout
from kvstack.agents.proxy.nftables.names import TABLE
from kvstack.agents.proxy.nftables.numbers import Numbers
from kvstack.agents.proxy.nftables.port_rules import PortRules
from kvstack.agents.proxy.nftables.rules import Rule, ToOneOf, ip, text_of
from kvstack.agents.proxy.nftables.transaction import (
    AddChain,
    AddRule,
    AddSet,
    ClientSet,
    DeleteChain,
    DeleteSet,
    Element,
    FlushChain,
    Transaction,
    Value,
    statement_text,
)
from kvstack.agents.proxy.services import PortName

_NONE: Final = PortRules()
_ABOUT: Final = "rules for kube-proxy"


class TableContents(NamedTuple):
    """What the table has, by name."""

    chains: frozenset[str] = frozenset()
    sets: Mapping[str, str] = {}
    """Name → set or map."""


class Ruleset:
    """The table of one family."""

    def __init__(self, layout: Layout, first_number: int = 0) -> None:
        """Nothing is written yet; first_number: of rules that choose among endpoints."""
        self.layout: Final = layout
        self._table = f"{ip(layout.family)} {TABLE}"
        self._ports: dict[PortName, PortRules] = {}
        self._claims: Claims[Element, Value] = Claims()
        self._stale: set[str] = set()
        self._numbers = Numbers(first_number)
        self._rows: dict[str, list[ToOneOf]] = {}  # by chain
        self._stale_rows: list[ToOneOf] = []

    def change(self, ports: Mapping[PortName, PortRules | None]) -> Transaction:
        """Take ports as they are now; return what is to be written."""
        stale = self._stale_rows
        self._stale_rows = []
        transaction = self._difference(ports)
        if not transaction:
            self._stale_rows = stale
            return transaction
        self._remove(stale, transaction)
        return transaction

    def _difference(self, ports: Mapping[PortName, PortRules | None]) -> Transaction:
        transaction = Transaction()
        claims = {}
        for name, new in ports.items():
            old = self._ports.get(name, _NONE)
            self._write_chains(old, new or _NONE, transaction)
            claims[name] = old.elements, (new or _NONE).elements
            if new is None:
                self._ports.pop(name, None)
            else:
                self._ports[name] = new
        for element, was, now in sorted(self._claims.change(claims), key=itemgetter(0)):
            if was is not None:
                transaction.delete_element(element)
            if now is not None:
                transaction.add_element(element, now)
        return transaction

    def whole(self, found: TableContents, *, anew: bool = False) -> str:
        """Return what makes the table as it is to be; found: what it has.

        anew: delete the table first, and with it what is known of clients.
        """
        layout, table = self.layout, self._table
        lines = [f'add table {table} {{ comment "{_ABOUT}" ; }}']
        if anew:
            lines.append(f"delete table {table}")
            lines.append(f'add table {table} {{ comment "{_ABOUT}" ; }}')
            found = TableContents()
        else:
            lines.append(f"flush table {table}")
            lines += (f"delete chain {table} {n}" for n in layout.base_chains if n in found.chains)
            lines += (f"flush {found.sets[n]} {table} {n}" for n in layout.sets if n in found.sets)
        chains: dict[str, tuple[str, ...]] = dict(layout.chains)
        sets: dict[str, ClientSet] = {}
        for rules in self._ports.values():
            for name, own in rules.chains.items():
                written = self._numbered(name, own)
                chains[name] = tuple(text_of(each, layout.family) for each in written)
            sets |= rules.sets
        known = {*layout.sets, *sets}
        for name, (hook, _) in layout.base_chains.items():
            lines.append(f"add chain {table} {name} {{ {hook} }}")
        lines += (f"add chain {table} {name}" for name in chains)
        lines += (f"delete {found.sets[n]} {table} {n}" for n in sorted(found.sets.keys() - known))
        lines += (_declared(table, *each) for each in layout.sets.items())
        new_sets = (AddSet(n, what) for n, what in sets.items() if n not in found.sets)
        lines += (statement_text(each, layout.family) for each in new_sets)
        for name, rules_ in [
            *((n, r) for n, (_, r) in layout.base_chains.items()),
            *chains.items(),
        ]:
            lines += (f"add rule {table} {name} {rule}" for rule in rules_)
        elements = self._elements()
        self._stale |= found.chains - chains.keys() - layout.base_chains.keys()
        self._stale -= chains.keys()
        return "".join(f"{line}\n" for line in lines) + elements.text(layout.family)

    def take_stale(self) -> list[Transaction]:
        """Return the transactions that take away what is used no more; each may fail by itself."""
        chains, self._stale = self._stale, set()
        rows, self._stale_rows = self._stale_rows, []
        elements = Transaction()
        self._remove(rows, elements)
        found = [elements] if elements else []
        for name in sorted(chains):
            found.append(Transaction())
            found[-1].add(DeleteChain(name))
        return found

    @property
    def delete(self) -> str:
        """The statements that leave nothing of the table."""
        return f"add table {self._table}\ndelete table {self._table}\n"

    def _write_chains(self, old: PortRules, new: PortRules, transaction: Transaction) -> None:
        """Write the chains and sets of one port, as far as they differ."""
        resized = {n for n, what in new.sets.items() if old.sets.get(n, what) != what}
        for name in old.chains.keys() - new.chains.keys():
            transaction.add(FlushChain(name))
            self._stale_rows += self._rows.pop(name, [])
            self._stale.add(name)
        for name, rules in new.chains.items():
            is_same = old.chains.get(name) == rules
            if is_same and not any(rule.uses(each) for each in resized for rule in rules):
                continue
            transaction.add(AddChain(name))
            transaction.add(FlushChain(name))
            self._stale_rows += self._rows.pop(name, [])
            for rule in self._number(name, rules, transaction):
                transaction.add(AddRule(name, rule))
            self._stale.discard(name)
        for name in sorted((old.sets.keys() - new.sets.keys()) | resized):
            transaction.add(DeleteSet(name))
        for name, what in new.sets.items():
            if name not in old.sets or name in resized:
                transaction.add(AddSet(name, what))

    def _number(
        self, chain: str, rules: tuple[Rule, ...], transaction: Transaction
    ) -> tuple[Rule, ...]:
        """Give the rules of a chain numbers, and put their endpoints into the map."""
        rows = [
            replace(part, first=self._numbers.take(len(part.targets)))
            for rule in rules
            for part in rule.parts
            if isinstance(part, ToOneOf)
        ]
        if not rows:
            return rules
        self._rows[chain] = rows
        for element, value in _entries(rows):
            transaction.add_element(element, value)
        return self._numbered(chain, rules)

    def _numbered(self, chain: str, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        """Return the rules of a chain with the numbers that they have."""
        rows = iter(self._rows.get(chain, ()))
        return tuple(
            rule._replace(
                parts=tuple(next(rows) if isinstance(p, ToOneOf) else p for p in rule.parts)
            )
            for rule in rules
        )

    def _remove(self, rows: list[ToOneOf], transaction: Transaction) -> None:
        """Take rows out of the map; others may have their numbers in later transactions."""
        for element, _ in _entries(rows):
            transaction.delete_element(element)
        for row in rows:
            self._numbers.give_back(row.first, len(row.targets))

    def _elements(self) -> Transaction:
        found = Transaction()
        for address in self.layout.settings.node_ips or ():
            found.add_element(Element(NODE_PORT_IPS, (address,)), Value())
        for rows in self._rows.values():
            for element, value in _entries(rows):
                found.add_element(element, value)
        for element, value in self._claims.items():
            found.add_element(element, value)
        return found


def _entries(rows: list[ToOneOf]) -> Iterator[tuple[Element, Value]]:
    for row in rows:
        for number, target in enumerate(row.targets, row.first):
            yield Element(row.map, (number,)), Value(target)


def _declared(table: str, name: str, text: str) -> str:
    kind, _, body = text.partition(" ")
    return f"add {kind} {table} {name} {body}"
