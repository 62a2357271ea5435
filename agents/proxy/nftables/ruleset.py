"""What is in the table, and the text that changes it in one transaction of `nft -f -`.

    ruleset = Ruleset(layout)
    ruleset.change({name: PortRules, gone: None})   what differs, as text; empty: nothing
    ruleset.whole(TableContents(chains, sets))     all of it, whatever is in the table now
    ruleset.take_stale()                            chains that may be deleted a second later

A chain that is used no more is emptied at once and deleted in a later transaction, because kernels
before 6.2 still count the map's element that led there. An element that several ports want (a
hairpin of one pod, an external address that two Services claim) is there while one of them does;
the oldest decides where it leads, so that nobody takes what another Service has.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from kvstack.agents.proxy.claims import Claims
from kvstack.agents.proxy.nftables.layout import NODE_PORT_IPS, Layout, ip
from kvstack.agents.proxy.nftables.names import TABLE
from kvstack.agents.proxy.nftables.port_rules import Element, PortRules, Value
from kvstack.agents.proxy.services import PortName

_NONE: Final = PortRules()
_ABOUT: Final = "rules for kube-proxy"
_ELEMENTS_MAX: Final = 500
"""Of one statement."""


class TableContents(NamedTuple):
    """What the table has, by name."""

    chains: frozenset[str] = frozenset()
    sets: Mapping[str, str] = {}
    """Name → set or map."""


class Ruleset:
    """The table of one family."""

    def __init__(self, layout: Layout) -> None:
        """Nothing is written yet."""
        self.layout: Final = layout
        self._table = f"{ip(layout.family)} {TABLE}"
        self._ports: dict[PortName, PortRules] = {}
        self._claims: Claims[Element, Value] = Claims()
        self._stale: set[str] = set()

    def change(self, ports: Mapping[PortName, PortRules | None]) -> str:
        """Take ports as they are now; return what is to be written."""
        lines = _Lines()
        claims = {}
        for name, new in ports.items():
            old = self._ports.get(name, _NONE)
            self._write_chains(old, new or _NONE, lines)
            claims[name] = old.elements, (new or _NONE).elements
            if new is None:
                self._ports.pop(name, None)
            else:
                self._ports[name] = new
        gone: dict[str, list[str]] = {}
        come: dict[str, list[str]] = {}
        for element, was, now in sorted(self._claims.change(claims), key=itemgetter(0)):
            if was is not None:
                gone.setdefault(element.container, []).append(element.key)
            if now is not None:
                come.setdefault(element.container, []).append(_text(element, now))
        lines.last += self._statements("delete", gone)
        lines.last += self._statements("add", come)
        return lines.text()

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
        sets: dict[str, str] = {}
        for rules in self._ports.values():
            chains |= rules.chains
            sets |= rules.sets
        known = {*layout.sets, *sets}
        for name, (hook, _) in layout.base_chains.items():
            lines.append(f"add chain {table} {name} {{ {hook} }}")
        lines += (f"add chain {table} {name}" for name in chains)
        lines += (f"delete {found.sets[n]} {table} {n}" for n in sorted(found.sets.keys() - known))
        lines += (_declared(table, *each) for each in layout.sets.items())
        lines += (_declared(table, *each) for each in sets.items() if each[0] not in found.sets)
        for name, rules_ in [
            *((n, r) for n, (_, r) in layout.base_chains.items()),
            *chains.items(),
        ]:
            lines += (f"add rule {table} {name} {rule}" for rule in rules_)
        lines += self._statements("add", self._elements())
        self._stale |= found.chains - chains.keys() - layout.base_chains.keys()
        self._stale -= chains.keys()
        return "".join(f"{line}\n" for line in lines)

    def take_stale(self) -> list[str]:
        """Return the statements that delete what is used no more; each may fail by itself."""
        stale, self._stale = self._stale, set()
        return [f"delete chain {self._table} {name}\n" for name in sorted(stale)]

    @property
    def delete(self) -> str:
        """The statements that leave nothing of the table."""
        return f"add table {self._table}\ndelete table {self._table}\n"

    def _write_chains(self, old: PortRules, new: PortRules, lines: "_Lines") -> None:
        """Write the chains and sets of one port, as far as they differ."""
        table = self._table
        resized = {n for n, text in new.sets.items() if old.sets.get(n, text) != text}
        gone_sets = (old.sets.keys() - new.sets.keys()) | resized
        for name in old.chains.keys() - new.chains.keys():
            lines.flushed.append(f"flush chain {table} {name}")
            self._stale.add(name)
        for name, rules in new.chains.items():
            is_same = old.chains.get(name) == rules
            if is_same and not any(f"@{each} " in f"{r} " for each in resized for r in rules):
                continue
            lines.added.append(f"add chain {table} {name}")
            lines.flushed.append(f"flush chain {table} {name}")
            lines.rules += (f"add rule {table} {name} {rule}" for rule in rules)
            self._stale.discard(name)
        lines.deleted += (f"delete set {table} {name}" for name in sorted(gone_sets))
        for name, text in new.sets.items():
            if name not in old.sets or name in resized:
                lines.declared.append(_declared(table, name, text))

    def _elements(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        if self.layout.settings.node_ips:
            found[NODE_PORT_IPS] = list(self.layout.settings.node_ips)
        for element, value in self._claims.items():
            found.setdefault(element.container, []).append(_text(element, value))
        return found

    def _statements(self, verb: str, elements: Mapping[str, list[str]]) -> Iterator[str]:
        for container, texts in elements.items():
            for first in range(0, len(texts), _ELEMENTS_MAX):
                some = ", ".join(texts[first : first + _ELEMENTS_MAX])
                yield f"{verb} element {self._table} {container} {{ {some} }}"


class _Lines:
    """The statements of a transaction, in the order in which the kernel takes them."""

    def __init__(self) -> None:
        self.added: list[str] = []
        self.flushed: list[str] = []
        self.deleted: list[str] = []
        self.declared: list[str] = []
        self.rules: list[str] = []
        self.last: list[str] = []

    def text(self) -> str:
        parts: Iterable[list[str]] = (
            self.added,
            self.flushed,
            self.deleted,
            self.declared,
            self.rules,
            self.last,
        )
        return "".join(f"{line}\n" for part in parts for line in part)


def _declared(table: str, name: str, text: str) -> str:
    kind, _, body = text.partition(" ")
    return f"add {kind} {table} {name} {body}"


def _text(element: Element, value: Value) -> str:
    comment = f' comment "{value.comment}"' if value.comment else ""
    verdict = f" : {value.verdict}" if value.verdict else ""
    return f"{element.key}{comment}{verdict}"
