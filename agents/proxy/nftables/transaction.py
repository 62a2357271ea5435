"""What a transaction does to the table, statement by statement, in the order of the kernel.

    transaction.text(4)      for `nft -f -`
    transaction.statements   for the kernel itself: see `messages`

A chain is added before it is filled or named, a set before a rule uses it, and both are emptied or
left by all rules before they go.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from kvstack.agents.proxy.nftables.names import TABLE
from kvstack.agents.proxy.nftables.rules import Drop, Goto, Rule, Target, ip, part_text, text_of
from kvstack.agents.proxy.services import Family

Key: TypeAlias = tuple[str | int, ...]
"""Addresses and protocols are texts, ports and numbers of endpoints are numbers."""


class Element(NamedTuple):
    """An element of a set, or of a map."""

    container: str
    key: Key


class Value(NamedTuple):
    """What an element leads to; None: nothing, it is in a set."""

    to: Goto | Drop | Target | None = None
    comment: str = ""
    since: str = ""
    """When the Service was created that it leads to."""


class ClientSet(NamedTuple):
    """A set of addresses of clients, each of which stays for a time."""

    timeout_s: int


class AddChain(NamedTuple):
    """A chain that may be there already."""

    name: str


class FlushChain(NamedTuple):
    """Take the rules of a chain away."""

    name: str


class DeleteChain(NamedTuple):
    """A chain that nothing leads to."""

    name: str


class AddSet(NamedTuple):
    """A set that is not there."""

    name: str
    what: ClientSet


class DeleteSet(NamedTuple):
    """A set that no rule uses."""

    name: str


class AddRule(NamedTuple):
    """To the end of a chain."""

    chain: str
    rule: Rule


class AddElements(NamedTuple):
    """To a set or a map."""

    container: str
    elements: Mapping[Key, Value]


class DeleteElements(NamedTuple):
    """From a set or a map."""

    container: str
    keys: tuple[Key, ...]


Statement: TypeAlias = (
    AddChain
    | FlushChain
    | DeleteChain
    | AddSet
    | DeleteSet
    | AddRule
    | AddElements
    | DeleteElements
)
_ELEMENTS_MAX: Final = 500
"""Of one statement."""


class Transaction:
    """All of it happens, or nothing."""

    def __init__(self) -> None:
        """Nothing is to be done."""
        self._parts: tuple[list[Statement], ...] = tuple([] for _ in _ORDER)
        self._come: dict[str, dict[Key, Value]] = {}
        self._gone: dict[str, dict[Key, None]] = {}

    def add(self, statement: Statement) -> None:
        """Take a statement about chains, sets or rules."""
        self._parts[_ORDER.index(type(statement))].append(statement)

    def add_element(self, element: Element, value: Value) -> None:
        """Let an element come; one that is there must go in the same transaction."""
        self._come.setdefault(element.container, {})[element.key] = value

    def delete_element(self, element: Element) -> None:
        """Let an element go."""
        self._gone.setdefault(element.container, {})[element.key] = None

    def __bool__(self) -> bool:
        """Whether something is to be done."""
        return any(self._parts) or bool(self._come) or bool(self._gone)

    @property
    def statements(self) -> list[Statement]:
        """All of it, in order."""
        found = [each for part in self._parts for each in part]
        for container, keys in self._gone.items():
            found += (DeleteElements(container, tuple(some)) for some in _chunks(list(keys)))
        for container, elements in self._come.items():
            chunks = _chunks(list(elements.items()))
            found += (AddElements(container, dict(some)) for some in chunks)
        return found

    def text(self, family: Family) -> str:
        """Return it for `nft -f -`; empty: nothing is to be done."""
        return "".join(f"{statement_text(each, family)}\n" for each in self.statements)


_ORDER: Final = (AddChain, FlushChain, DeleteSet, AddSet, AddRule, DeleteChain)


def statement_text(statement: Statement, family: Family) -> str:
    """Return a statement for `nft`."""
    return _TEXTS[type(statement)](statement, f"{ip(family)} {TABLE}", family)


def _chunks(items: list[Any]) -> Iterable[list[Any]]:
    return (items[at : at + _ELEMENTS_MAX] for at in range(0, len(items), _ELEMENTS_MAX))


def _new_set(it: AddSet, table: str, family: Family) -> str:
    kind = "ipv4_addr" if family == 4 else "ipv6_addr"
    flags = f"flags dynamic,timeout ; timeout {it.what.timeout_s}s ;"
    return f"add set {table} {it.name} {{ type {kind} ; {flags} }}"


def _new_elements(it: AddElements, table: str, family: Family) -> str:
    texts = (_element_text(key, value, family) for key, value in it.elements.items())
    return f"add element {table} {it.container} {{ {', '.join(texts)} }}"


def _key_text(key: Key) -> str:
    return " . ".join(map(str, key))


def _element_text(key: Key, value: Value, family: Family) -> str:
    comment = f' comment "{value.comment}"' if value.comment else ""
    if value.to is None:
        return f"{_key_text(key)}{comment}"
    to = _key_text(value.to) if isinstance(value.to, Target) else part_text(value.to, family)
    return f"{_key_text(key)}{comment} : {to}"


def _old_elements(it: DeleteElements, table: str, _: Family) -> str:
    return f"delete element {table} {it.container} {{ {', '.join(map(_key_text, it.keys))} }}"


_TEXTS: Final[dict[type, Callable[[Any, str, Family], str]]] = {
    AddChain: lambda it, table, _: f"add chain {table} {it.name}",
    FlushChain: lambda it, table, _: f"flush chain {table} {it.name}",
    DeleteChain: lambda it, table, _: f"delete chain {table} {it.name}",
    AddSet: _new_set,
    DeleteSet: lambda it, table, _: f"delete set {table} {it.name}",
    AddRule: lambda it, table, x: f"add rule {table} {it.chain} {text_of(it.rule, x)}",
    AddElements: _new_elements,
    DeleteElements: _old_elements,
}
