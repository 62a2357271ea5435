"""Rules as the kernel has them: each part is a few expressions that read and write registers.

    expressions_of(rule, 4, {})      [b"…", …]: elements of the list of a message

They are the ones that `nft` makes of the text of the same rule. A set without a name, which some
parts need, is a message of its own before that of the rule: `messages` makes it and says under
which name and number the rule finds it.
"""

import socket
import struct
from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_network
from typing import Any, Final, NamedTuple

from kvstack.agents.proxy.nftables.rules import (
    Drop,
    FromClientOf,
    FromInterface,
    FromRanges,
    FromThisNode,
    Goto,
    GotoOneOf,
    Mark,
    Part,
    Remember,
    Rule,
    To,
    ToOneOf,
)
from kvstack.agents.proxy.services import Family
from kvstack.component.net.netlink_attributes import NESTED, attribute, text_attribute

PROTOCOLS: Final = {
    "tcp": socket.IPPROTO_TCP,
    "udp": socket.IPPROTO_UDP,
    "sctp": socket.IPPROTO_SCTP,
}
FAMILIES: Final[dict[Family, int]] = {4: socket.AF_INET, 6: socket.AF_INET6}
"""As the kernel has them."""
_VERDICT, _FIRST, _SECOND = 0, 1, 2
"""Registers: that of the verdict, and two of data."""
_AFTER_ADDRESS: Final[dict[Family, int]] = {4: 9, 6: 2}
"""The register that begins where an address in the first one ends."""
_MARK, _INTERFACE_NAME, _PROTOCOL = 3, 6, 16
_NETWORK_HEAD: Final = 1
_SOURCE: Final[dict[Family, tuple[int, int]]] = {4: (12, 4), 6: (8, 16)}
"""Where the source address begins in the head of a packet, and its length."""
_EQUAL, _DIFFERENT = 0, 1
_INTERFACE_NAME_BYTES: Final = 16
_FIB_SOURCE, _FIB_TYPE = 1, 3
_LOCAL: Final = 2
_RANDOM: Final = 1
_DESTINATION_NAT: Final = 1
_NAT_TO_PORT: Final = 2
_UPDATE: Final = 1
_GOTO, _DROP = -4, 0


class Unnamed(NamedTuple):
    """A set without a name of its own, of the same batch."""

    name: str
    number: int


def expressions_of(rule: Rule, family: Family, unnamed: Mapping[Part, Unnamed]) -> list[bytes]:
    """Return the expressions of a rule; unnamed: the sets of those parts that need one."""
    return [
        expression
        for part in rule.parts
        for expression in _EXPRESSIONS[type(part)](part, family, unnamed.get(part))
    ]


def verdict(to: Goto | Drop) -> bytes:
    """Return what becomes of a packet, as data."""
    code = attribute(1, struct.pack(">i", _GOTO if isinstance(to, Goto) else _DROP))
    chain = text_attribute(2, to.chain) if isinstance(to, Goto) else b""
    return attribute(2 | NESTED, code + chain)


def value(data: bytes) -> bytes:
    """Return bytes as data."""
    return attribute(1, data)


def _expression(name: str, *attributes: bytes) -> bytes:
    return text_attribute(1, name) + attribute(2 | NESTED, b"".join(attributes))


def _number(kind: int, number: int) -> bytes:
    return attribute(kind, struct.pack(">I", number))


def _load(key: int) -> bytes:
    return _expression("meta", _number(2, key), _number(1, _FIRST))


def _immediate(register: int, data: bytes) -> bytes:
    return _expression("immediate", _number(1, register), attribute(2 | NESTED, data))


def _compare(data: bytes, *, is_not: bool = False) -> bytes:
    how = _number(2, _DIFFERENT if is_not else _EQUAL)
    return _expression("cmp", _number(1, _FIRST), how, attribute(3 | NESTED, value(data)))


def _bits(mask: bytes, flipped: bytes) -> bytes:
    """Keep the bits of a mask, then flip some."""
    return _expression(
        "bitwise",
        _number(1, _FIRST),
        _number(2, _FIRST),
        _number(3, len(mask)),
        attribute(4 | NESTED, value(mask)),
        attribute(5 | NESTED, value(flipped)),
    )


def _source(family: Family, length: int | None = None) -> bytes:
    at, whole = _SOURCE[family]
    return _expression(
        "payload",
        _number(1, _FIRST),
        _number(2, _NETWORK_HEAD),
        _number(3, at),
        _number(4, whole if length is None else length),
    )


def _lookup(name: str, *more: bytes) -> bytes:
    return _expression("lookup", text_attribute(1, name), _number(2, _FIRST), *more)


def _from_ranges(part: FromRanges, family: Family, unnamed: Unnamed | None) -> list[bytes]:
    if unnamed is not None:
        found = _lookup(unnamed.name, _number(4, unnamed.number), _number(5, int(part.is_not)))
        return [_source(family), found]
    (text,) = part.ranges
    network = ip_network(text)
    size, odd = divmod(network.prefixlen, 8)
    data = network.network_address.packed
    if size and not odd:
        return [_source(family, size), _compare(data[:size], is_not=part.is_not)]
    masked = _bits(network.netmask.packed, bytes(len(data)))
    return [_source(family), masked, _compare(data, is_not=part.is_not)]


def _from_interface(part: FromInterface, *_: object) -> list[bytes]:
    name = part.name.encode()
    data = name[:-1] if name.endswith(b"*") else name.ljust(_INTERFACE_NAME_BYTES, b"\0")
    return [_load(_INTERFACE_NAME), _compare(data, is_not=part.is_not)]


def _from_this_node(*_: object) -> list[bytes]:
    fib = _expression("fib", _number(1, _FIRST), _number(2, _FIB_TYPE), _number(3, _FIB_SOURCE))
    return [fib, _compare(struct.pack("=I", _LOCAL))]


def _from_client_of(part: FromClientOf, family: Family, _: object) -> list[bytes]:
    return [_source(family), _lookup(part.name)]


def _mark(part: Mark, *_: object) -> list[bytes]:
    others = struct.pack("=I", ~part.bits & 0xFFFFFFFF)
    store = _expression("meta", _number(2, _MARK), _number(3, _FIRST))
    return [_load(_MARK), _bits(others, struct.pack("=I", part.bits)), store]


def _remember(part: Remember, family: Family, _: object) -> list[bytes]:
    what = (text_attribute(1, part.name), _number(3, _UPDATE), _number(4, _FIRST))
    return [_source(family), _expression("dynset", *what)]


def _decide(part: Goto | Drop, *_: object) -> list[bytes]:
    return [_immediate(_VERDICT, verdict(part))]


def _goto_one_of(part: GotoOneOf, _: Family, unnamed: Unnamed | None) -> list[bytes]:
    assert unnamed is not None, "its chains stand in a map"
    to = _lookup(unnamed.name, _number(3, _VERDICT), _number(4, unnamed.number))
    return [_choice(len(part.chains), 0), to]


def _choice(count: int, first: int) -> bytes:
    return _expression(
        "numgen", _number(1, _FIRST), _number(2, count), _number(3, _RANDOM), _number(4, first)
    )


def _is_of(protocol: str) -> list[bytes]:
    return [_load(_PROTOCOL), _compare(bytes((PROTOCOLS[protocol],)))]


def _to(part: To, family: Family, _: object) -> list[bytes]:
    address, port = ip_address(part.target.ip).packed, struct.pack(">H", part.target.port)
    return [
        *_is_of(part.protocol),
        _immediate(_FIRST, value(address)),
        _immediate(_SECOND, value(port)),
        _translation(family, _SECOND, _number(7, _NAT_TO_PORT)),
    ]


def _to_one_of(part: ToOneOf, family: Family, _: object) -> list[bytes]:
    return [
        *_is_of(part.protocol),
        _choice(len(part.targets), part.first),
        _lookup(part.map, _number(3, _FIRST)),
        _translation(family, _AFTER_ADDRESS[family]),
    ]


def _translation(family: Family, port_register: int, *more: bytes) -> bytes:
    return _expression(
        "nat",
        _number(1, _DESTINATION_NAT),
        _number(2, FAMILIES[family]),
        _number(3, _FIRST),
        _number(5, port_register),
        *more,
    )


_EXPRESSIONS: Final[dict[type, Callable[[Any, Family, Unnamed | None], list[bytes]]]] = {
    FromRanges: _from_ranges,
    FromInterface: _from_interface,
    FromThisNode: _from_this_node,
    FromClientOf: _from_client_of,
    Mark: _mark,
    Remember: _remember,
    Goto: _decide,
    GotoOneOf: _goto_one_of,
    Drop: _decide,
    To: _to,
    ToOneOf: _to_one_of,
}
