"""What is in the tables, and the text for `iptables-restore --noflush` that changes it.

    ruleset = Ruleset(layout)
    ruleset.change({name: PortRules, gone: None})   what differs, as text; empty: nothing
    ruleset.whole({"nat": TableContents(chains, jumps)})    all of it, whatever is in the tables now

A change writes the chains of ports that changed, and of chains that ports share those rules alone
that come or go; a rule that comes is put first, since no two match the same. The kernel takes each
table at once: a chain that is emptied and filled again in one text is never seen empty.
"""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from kvstack.agents.proxy.claims import Claims
from kvstack.agents.proxy.iptables.layout import NAT, Layout, comment
from kvstack.agents.proxy.iptables.names import PREFIXES
from kvstack.agents.proxy.iptables.port_rules import Answer, Claim, PortRules
from kvstack.agents.proxy.services import PortName

_NONE: Final = PortRules()


class TableContents(NamedTuple):
    """What a table has."""

    chains: frozenset[str] = frozenset()
    jumps: frozenset[tuple[str, str]] = frozenset()
    """Pairs of a chain of the system and one that it leads to."""


NOTHING: Final = TableContents()


class Ruleset:
    """The tables of one family."""

    def __init__(self, layout: Layout) -> None:
        """Nothing is written yet."""
        self.layout: Final = layout
        self._ports: dict[PortName, PortRules] = {}
        self._claims: Claims[Claim, Answer] = Claims()
        self.last_count: Mapping[str, int] = {}
        """How many rules were last to be written to each table."""

    def change(self, ports: Mapping[PortName, PortRules | None]) -> str:
        """Take ports as they are now; return what is to be written."""
        text = _Text()
        claims = {}
        for name, new in ports.items():
            old = self._ports.get(name, _NONE)
            self._write_chains(old, new or _NONE, text)
            claims[name] = old.claims, (new or _NONE).claims
            if new is None:
                self._ports.pop(name, None)
            else:
                self._ports[name] = new
        for claim, was, now in sorted(self._claims.change(claims), key=itemgetter(0)):
            lines = text.of(claim.table)
            if was is not None:
                lines.removed.append(f"-D {claim.chain} {_rule(claim, was)}")
            if now is not None:
                lines.put_first.append(f"-I {claim.chain} {_rule(claim, now)}")
        self.last_count = text.count(self.layout.chains)
        return text.whole()

    def whole(self, found: Mapping[str, TableContents]) -> str:
        """Return what makes the tables as they are to be; found: what each has."""
        layout, text = self.layout, _Text()
        for table, chains in layout.chains.items():
            text.of(table).declare(chains)
        nat = text.of(NAT)
        for rules in self._ports.values():
            nat.declare(rules.chains)
            nat.append(rules.chains)
        for claim, answer in sorted(self._claims.items(), key=itemgetter(0)):
            text.of(claim.table).rules.append(f"-A {claim.chain} {_rule(claim, answer)}")
        for table, chains in layout.chains.items():
            text.of(table).append(chains)
        for jump in layout.jumps:
            if (jump.chain, jump.target) not in found.get(jump.table, NOTHING).jumps:
                text.of(jump.table).put_first.append(f"-I {jump.chain} {jump.rule}")
        known = {chain for rules in self._ports.values() for chain in rules.chains}
        stale = {each for each in found.get(NAT, NOTHING).chains if each.startswith(PREFIXES)}
        nat.delete(sorted(stale - known))
        self.last_count = text.count(layout.chains)
        return text.whole()

    @property
    def count(self) -> Mapping[str, int]:
        """How many rules each table has of ours."""
        found = {
            table: sum(map(len, chains.values())) for table, chains in self.layout.chains.items()
        }
        for rules in self._ports.values():
            found[NAT] += sum(map(len, rules.chains.values()))
        for claim in self._claims:
            found[claim.table] += 1
        return found

    def _write_chains(self, old: PortRules, new: PortRules, text: "_Text") -> None:
        """Write the chains of one port, as far as they differ."""
        changed = {c: rules for c, rules in new.chains.items() if old.chains.get(c) != rules}
        gone = sorted(old.chains.keys() - new.chains.keys())
        if changed or gone:
            nat = text.of(NAT)
            nat.declare(changed)
            nat.append(changed)
            nat.delete(gone)


class _Lines:
    """The lines of one table, in the order in which they can be carried out."""

    def __init__(self) -> None:
        self.declared: list[str] = []
        self.removed: list[str] = []
        self.rules: list[str] = []
        self.put_first: list[str] = []
        self.deleted: list[str] = []

    def declare(self, chains: Iterable[str]) -> None:
        """Let chains be there, and empty."""
        self.declared += (f":{chain} - [0:0]" for chain in chains)

    def append(self, chains: Mapping[str, tuple[str, ...]]) -> None:
        """Put rules at the ends of chains."""
        self.rules += (f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules)

    def delete(self, chains: Iterable[str]) -> None:
        """Let chains be there no more; they may lead to each other."""
        names = list(chains)
        self.declare(names)
        self.deleted += (f"-X {chain}" for chain in names)

    def all(self) -> list[str]:
        return [*self.declared, *self.removed, *self.rules, *self.put_first, *self.deleted]


class _Text:
    """A text for iptables-restore."""

    def __init__(self) -> None:
        self._tables: dict[str, _Lines] = {}

    def of(self, table: str) -> _Lines:
        return self._tables.setdefault(table, _Lines())

    def count(self, tables: Iterable[str]) -> dict[str, int]:
        """Return how many rules are put into tables."""
        return {
            table: len(self._tables[table].rules) + len(self._tables[table].put_first)
            if table in self._tables
            else 0
            for table in tables
        }

    def whole(self) -> str:
        """Return the text; the tables in the order of their names, so that filter is first."""
        parts = []
        for table, lines in sorted(self._tables.items()):
            if body := lines.all():
                parts += [f"*{table}", *body, "COMMIT"]
        return "".join(f"{line}\n" for line in parts)


def _rule(claim: Claim, answer: Answer) -> str:
    return f"{comment(answer.about)} {claim.match} -j {answer.target}"
