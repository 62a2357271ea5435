"""A transaction as the kernel reads it: one message, or a few, for each statement.

    table = KernelTable(4)
    table.change(transaction)    all of it or nothing; raises NftError
    messages_of(statement, …)    pure

An attribute has less than 64 KiB, so elements are split over several messages.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_address, ip_network
from threading import Lock
from typing import Any, Final

from kvstack.agents.proxy.nftables.expressions import (
    FAMILIES,
    PROTOCOLS,
    Unnamed,
    expressions_of,
    value,
    verdict,
)
from kvstack.agents.proxy.nftables.names import TABLE
from kvstack.agents.proxy.nftables.rules import FromRanges, Goto, GotoOneOf, Part, Target
from kvstack.agents.proxy.nftables.transaction import (
    AddChain,
    AddElements,
    AddRule,
    AddSet,
    DeleteChain,
    DeleteElements,
    DeleteSet,
    FlushChain,
    Key,
    Statement,
    Transaction,
    Value,
    statement_text,
)
from kvstack.agents.proxy.services import Family
from kvstack.component.net import nft_batch
from kvstack.component.net.netlink_attributes import NESTED, attribute, text_attribute
from kvstack.component.net.nft import NftError
from kvstack.component.net.nft_batch import APPEND, CREATE, BatchError, Batches, Message

_TABLE: Final = text_attribute(1, TABLE)
_ELEMENTS_BYTES_MAX: Final = 32 << 10
"""Of one message."""
_STATEMENT_CHARACTERS_MAX: Final = 200
"""Of one that was refused, in an error."""
_ANONYMOUS, _CONSTANT, _INTERVAL, _MAP, _TIMEOUT, _DYNAMIC = 1, 2, 4, 8, 16, 32
_VERDICTS: Final = 0xFFFFFF00
"""The type of data of a map to verdicts."""
_INTEGER: Final = 4
_ADDRESS: Final[dict[Family, int]] = {4: 7, 6: 8}
"""Types of keys, as `nft` numbers them: the kernel keeps them for it."""
_ADDRESS_BYTES: Final[dict[Family, int]] = {4: 4, 6: 16}
_HOST_ORDER, _NETWORK_ORDER = 1, 2
_COMMENT: Final = 0
_INTERVAL_END: Final = 1


class KernelTable:
    """The table of a family, as the kernel has it; threads may change and close it."""

    def __init__(self, family: Family) -> None:
        """Ask the kernel nothing yet."""
        self._lock = Lock()  # who is cancelled closes it while a change may be under way
        self._family: Family = family
        self._batches = Batches(FAMILIES[family])

    def change(self, transaction: Transaction) -> None:
        """Carry a transaction out on the table, which is there; raises NftError."""
        messages: list[Message] = []
        origins: list[Statement] = []
        numbers = iter(range(1, 1 << 32))
        for statement in transaction.statements:
            own = list(messages_of(statement, self._family, numbers))
            messages += own
            origins += [statement] * len(own)
        try:
            with self._lock:
                self._batches.send(messages)
        except BatchError as error:
            text = "netlink"
            if error.at is not None:
                text = statement_text(origins[error.at], self._family)
            raise NftError(f"{text[:_STATEMENT_CHARACTERS_MAX]}: {error.reason}") from error

    def close(self) -> None:
        """Let go of the kernel."""
        with self._lock:
            self._batches.close()


def messages_of(statement: Statement, family: Family, numbers: Iterator[int]) -> Iterator[Message]:
    """Give the messages of a statement; numbers: of its sets without names, in their batch."""
    return _MESSAGES[type(statement)](statement, family, numbers)


def _number(kind: int, number: int) -> bytes:
    return attribute(kind, struct.pack(">I", number))


def _member(kind: int, data: Iterable[bytes]) -> bytes:
    """Return a list of nested attributes, all of one kind."""
    return b"".join(attribute(kind | NESTED, each) for each in data)


def _add_chain(it: AddChain, *_: object) -> Iterator[Message]:
    yield Message(nft_batch.NEW_CHAIN, CREATE, _TABLE + text_attribute(3, it.name))


def _flush_chain(it: FlushChain, *_: object) -> Iterator[Message]:
    yield Message(nft_batch.DELETE_RULES, 0, _TABLE + text_attribute(2, it.name))


def _delete_chain(it: DeleteChain, *_: object) -> Iterator[Message]:
    yield Message(nft_batch.DELETE_CHAIN, 0, _TABLE + text_attribute(3, it.name))


def _add_set(it: AddSet, family: Family, numbers: Iterator[int]) -> Iterator[Message]:
    what = _number(3, _TIMEOUT | _DYNAMIC) + _key_type(family)
    milliseconds = attribute(11, struct.pack(">Q", it.what.timeout_s * 1000))
    number = _number(10, next(numbers))
    about = _TABLE + text_attribute(2, it.name) + what + number + milliseconds
    yield Message(nft_batch.NEW_SET, CREATE, about + _order(_NETWORK_ORDER))


def _key_type(family: Family) -> bytes:
    return _number(4, _ADDRESS[family]) + _number(5, _ADDRESS_BYTES[family])


def _order(order: int) -> bytes:
    """Return what tells `nft` how to print the keys of a set."""
    return attribute(13, struct.pack("=BBI", 0, 4, order))


def _delete_set(it: DeleteSet, *_: object) -> Iterator[Message]:
    yield Message(nft_batch.DELETE_SET, 0, _TABLE + text_attribute(2, it.name))


def _add_rule(it: AddRule, family: Family, numbers: Iterator[int]) -> Iterator[Message]:
    unnamed: dict[Part, Unnamed] = {}
    for part in it.rule.parts:
        if isinstance(part, GotoOneOf) or (isinstance(part, FromRanges) and len(part.ranges) > 1):
            name = "__map%d" if isinstance(part, GotoOneOf) else "__set%d"  # the kernel numbers it
            unnamed[part] = Unnamed(name, next(numbers))
            yield from _unnamed_set(part, family, unnamed[part])
    expressions = expressions_of(it.rule, family, unnamed)
    about = _TABLE + text_attribute(2, it.chain) + attribute(4 | NESTED, _member(1, expressions))
    comment = attribute(7, _comment(it.rule.comment)) if it.rule.comment else b""
    yield Message(nft_batch.NEW_RULE, CREATE | APPEND, about + comment)


def _comment(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("=BB", _COMMENT, len(data)) + data


def _unnamed_set(part: GotoOneOf | FromRanges, family: Family, it: Unnamed) -> Iterator[Message]:
    if isinstance(part, GotoOneOf):
        flags = _ANONYMOUS | _CONSTANT | _MAP
        types = _number(4, _INTEGER) + _number(5, 4) + _number(6, _VERDICTS) + _number(7, 0)
        order = _order(_HOST_ORDER)
        elements = [
            _element(struct.pack("=I", at), verdict(Goto(chain)))
            for at, chain in enumerate(part.chains)
        ]
    else:
        flags, types = _ANONYMOUS | _CONSTANT | _INTERVAL, _key_type(family)
        order = _order(_NETWORK_ORDER)
        elements = list(_interval_elements(part.ranges, family))
    name, number = text_attribute(2, it.name), it.number
    size = attribute(9 | NESTED, _number(1, len(elements)))
    about = _TABLE + name + _number(3, flags) + types + _number(10, number) + size + order
    yield Message(nft_batch.NEW_SET, CREATE, about)
    yield from _elements(nft_batch.NEW_ELEMENTS, CREATE, name + _number(4, number), elements)


def _interval_elements(ranges: tuple[str, ...], family: Family) -> Iterator[bytes]:
    """Give where intervals begin and end: before the first one, too."""
    size = _ADDRESS_BYTES[family]
    intervals = _intervals(ranges)
    if intervals[0][0]:
        yield _element(bytes(size), flags=_INTERVAL_END)
    for first, after in intervals:
        yield _element(first.to_bytes(size, "big"))
        if after < 1 << 8 * size:
            yield _element(after.to_bytes(size, "big"), flags=_INTERVAL_END)


def _intervals(ranges: Iterable[str]) -> list[tuple[int, int]]:
    """Return ranges as numbers from the first address to that after the last; none touch."""
    found: list[tuple[int, int]] = []
    networks = map(ip_network, ranges)
    for first, after in sorted(
        (int(each[0]), int(each[0]) + each.num_addresses) for each in networks
    ):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(after, found[-1][1]))
        else:
            found.append((first, after))
    return found


def _add_elements(it: AddElements, *_: object) -> Iterator[Message]:
    elements = [_element(key_bytes(key), _data(to), to.comment) for key, to in it.elements.items()]
    yield from _elements(nft_batch.NEW_ELEMENTS, CREATE, text_attribute(2, it.container), elements)


def _delete_elements(it: DeleteElements, *_: object) -> Iterator[Message]:
    elements = [_element(key_bytes(key)) for key in it.keys]
    yield from _elements(nft_batch.DELETE_ELEMENTS, 0, text_attribute(2, it.container), elements)


def _data(of: Value) -> bytes:
    if of.to is None:
        return b""
    return value(key_bytes(of.to)) if isinstance(of.to, Target) else verdict(of.to)


def key_bytes(key: Key | Target) -> bytes:
    """Return a key: each field is padded to four bytes; a number alone is one of endpoints."""
    if len(key) == 1 and isinstance(key[0], int):
        return struct.pack("=I", key[0])
    return b"".join(map(_field, key))


def _field(field: str | int) -> bytes:
    if isinstance(field, int):
        return struct.pack(">Hxx", field)
    number = PROTOCOLS.get(field)
    return ip_address(field).packed if number is None else struct.pack("=Bxxx", number)


def _element(key: bytes, data: bytes = b"", comment: str = "", *, flags: int = 0) -> bytes:
    found = _number(3, flags) if flags else b""
    found += attribute(1 | NESTED, value(key))
    if data:
        found += attribute(2 | NESTED, data)
    return found + attribute(6, _comment(comment)) if comment else found


def _elements(kind: int, flags: int, of: bytes, elements: list[bytes]) -> Iterator[Message]:
    some: list[bytes] = []
    size = 0
    for each in elements:
        if size + len(each) > _ELEMENTS_BYTES_MAX:
            yield Message(kind, flags, _TABLE + of + attribute(3 | NESTED, _member(1, some)))
            some, size = [], 0
        some.append(each)
        size += len(each) + 4
    yield Message(kind, flags, _TABLE + of + attribute(3 | NESTED, _member(1, some)))


_MESSAGES: Final[dict[type, Callable[[Any, Family, Iterator[int]], Iterator[Message]]]] = {
    AddChain: _add_chain,
    FlushChain: _flush_chain,
    DeleteChain: _delete_chain,
    AddSet: _add_set,
    DeleteSet: _delete_set,
    AddRule: _add_rule,
    AddElements: _add_elements,
    DeleteElements: _delete_elements,
}
