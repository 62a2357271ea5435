"""Addresses and networks: `ip("10.0.0.1")`, `cidr("10.0.0.0/8").containsIP(…)`.

No zones, no leading zeros, no IPv4 addresses written as IPv6. Errors are the ones of Go's netip.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.addresses import Address, format_ip, parse_ip
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.cel.checker.functions import Functions, declared
from kvstack.cel.errors import CelError, NoSuchOverloadError

FUNCTIONS: Final[Functions] = declared("""
    ip: (string) -> net.IP @ string_to_ip
    family: net.IP.() -> int @ ip_family
    ip.isCanonical: (string) -> bool @ ip_is_canonical
    isUnspecified: net.IP.() -> bool @ ip_is_unspecified
    isLoopback: net.IP.() -> bool @ ip_is_loopback
    isLinkLocalMulticast: net.IP.() -> bool @ ip_is_link_local_multicast
    isLinkLocalUnicast: net.IP.() -> bool @ ip_is_link_local_unicast
    isGlobalUnicast: net.IP.() -> bool @ ip_is_global_unicast
    isIP: (string) -> bool @ is_ip
    string: (net.IP) -> string @ ip_to_string
    cidr: (string) -> net.CIDR @ string_to_cidr
    containsIP: net.CIDR.(string) -> bool @ cidr_contains_ip_string
    containsIP: net.CIDR.(net.IP) -> bool @ cidr_contains_ip_ip
    containsCIDR: net.CIDR.(string) -> bool @ cidr_contains_cidr_string
    containsCIDR: net.CIDR.(net.CIDR) -> bool @ cidr_contains_cidr
    ip: net.CIDR.() -> net.IP @ cidr_ip
    prefixLength: net.CIDR.() -> int @ cidr_prefix_length
    masked: net.CIDR.() -> net.CIDR @ cidr_masked
    isCIDR: (string) -> bool @ is_cidr
    string: (net.CIDR) -> string @ cidr_to_string
""")

_DECIMAL: Final = frozenset("0123456789")
_HEX: Final = frozenset("0123456789abcdefABCDEF")


class Ip(NamedTuple):
    """An address."""

    number: int
    bits: int
    """32 or 128."""

    @property
    def type_name(self) -> str:
        """The name of its type."""
        return "net.IP"

    @property
    def size(self) -> int:
        """Its length as costs have it, in bytes."""
        return self.bits // 8


class Cidr(NamedTuple):
    """An address with the length of a prefix."""

    ip: Ip
    prefix: int

    @property
    def type_name(self) -> str:
        """The name of its type."""
        return "net.CIDR"

    @property
    def size(self) -> int:
        """Its length as costs have it: the bytes of its prefix, rounded up."""
        return (self.prefix + 7) // 8


class _AddressError(CelError):
    """The text is not an address."""


def _text(ip: Ip) -> str:
    is_ipv4 = ip.bits == 32
    return format_ip(Address(ip.number, is_ipv4, is_mapped=False, has_leading_zeros=False))


def _parse(text: str) -> tuple[Ip, str, bool]:
    """Return the address of a text, its zone, and whether it is IPv4 written as IPv6."""
    for character in text:
        if character == ".":
            _check_ipv4(text, text)
            break
        if character == ":":
            _check_ipv6(text)
            break
        if character == "%":
            raise _no_address(text, "missing IPv6 address")
    else:
        raise _no_address(text, "unable to parse IP")
    plain, _, zone = text.partition("%")
    found = parse_ip(plain)
    assert found is not None
    if found.is_mapped:
        return Ip(0xFFFF << 32 | found.number, 128), zone, True
    return Ip(found.number, 32 if found.is_ipv4 else 128), zone, False


def _no_address(text: str, message: str, rest: str = "") -> _AddressError:
    where = f" (at {quote(rest)})" if rest else ""
    return _AddressError(f"ParseAddr({quote(text)}): {message}{where}")


def _check_ipv4(text: str, part: str) -> None:
    """Check the four numbers of an address, which are the end of a text; raises _AddressError."""
    value = digits = dots = 0
    for at, character in enumerate(part):
        if character in _DECIMAL:
            if digits == 1 and value == 0:
                raise _no_address(text, "IPv4 field has octet with leading zero")
            value, digits = value * 10 + int(character), digits + 1
            if value > 255:
                raise _no_address(text, "IPv4 field has value >255")
        elif character != ".":
            raise _no_address(text, "unexpected character", part[at:])
        elif at in {0, len(part) - 1} or part[at - 1] == ".":
            raise _no_address(text, "IPv4 field must have at least one digit", part[at:])
        elif dots == 3:
            raise _no_address(text, "IPv4 address too long")
        else:
            value, digits, dots = 0, 0, dots + 1
    if dots < 3:
        raise _no_address(text, "IPv4 address too short")


def _check_ipv6(text: str) -> None:  # noqa: PLR0912 - a case a message
    """Check an address of groups; raises _AddressError."""
    rest, mark, zone = text.partition("%")
    if mark and not zone:
        raise _no_address(text, "zone must be a non-empty string")
    has_gap = rest.startswith("::")
    if has_gap:
        rest = rest[2:]
        if not rest:
            return
    filled = 0
    while filled < 16:
        digits = len(rest) - len(rest.lstrip("".join(_HEX)))
        if digits > 4:
            raise _no_address(text, "each group must have 4 or less digits", rest)
        if digits == 0:
            message = "each colon-separated field must have at least one digit"
            raise _no_address(text, message, rest)
        if rest[digits : digits + 1] == ".":
            filled = _check_end(text, rest, filled, has_gap=has_gap)
            rest = ""
            break
        filled, rest = filled + 2, rest[digits:]
        if not rest:
            break
        if rest[0] != ":":
            raise _no_address(text, "unexpected character, want colon", rest)
        if len(rest) == 1:
            raise _no_address(text, "colon must be followed by more characters", rest)
        rest = rest[1:]
        if rest[0] == ":":
            if has_gap:
                raise _no_address(text, "multiple :: in address", rest)
            has_gap, rest = True, rest[1:]
            if not rest:
                break
    if rest:
        raise _no_address(text, "trailing garbage after address", rest)
    if filled < 16 and not has_gap:
        raise _no_address(text, "address string too short")
    if filled == 16 and has_gap:
        raise _no_address(text, "the :: must expand to at least one field of zeros")


def _check_end(text: str, rest: str, filled: int, *, has_gap: bool) -> int:
    """Check an address of four numbers at the end of one of groups."""
    if not has_gap and filled != 12:
        message = "embedded IPv4 address must replace the final 2 fields of the address"
        raise _no_address(text, message, rest)
    if filled + 4 > 16:
        message = "too many hex fields to fit an embedded IPv4 at the end of the address"
        raise _no_address(text, message, rest)
    _check_ipv4(text, rest)
    return filled + 4


def _ip(text: str) -> Ip:
    try:
        address, zone, is_mapped = _parse(text)
    except _AddressError as error:
        message = f"IP Address {quote(text)} parse error during conversion from string: {error}"
        raise CelError(message) from None
    if zone:
        raise CelError(f"IP address {quote(text)} with zone value is not allowed")
    if is_mapped:
        raise CelError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return address


def _cidr(text: str) -> Cidr:
    failure = "network address parse error during conversion from string: "
    try:
        network, is_mapped = _prefix(text)
    except _AddressError as error:
        prefix = f"netip.ParsePrefix({quote(text)}): "
        raise CelError(f"{failure}{failure}{prefix}{error}") from None
    if is_mapped:
        raise CelError(f"{failure}IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return network


def _prefix(text: str) -> tuple[Cidr, bool]:
    head, slash, tail = text.rpartition("/")
    if not slash:
        raise _AddressError("no '/'")
    address, zone, is_mapped = _parse(head)
    if zone:
        raise _AddressError("IPv6 zones cannot be present in a prefix")
    is_number = tail.isascii() and tail.isdigit() and (len(tail) == 1 or tail[0] != "0")
    if not is_number or len(tail) > 18:
        raise _AddressError(f"bad bits after slash: {quote(tail)}")
    if int(tail) > address.bits:
        raise _AddressError("prefix length out of range")
    return Cidr(address, int(tail)), is_mapped


def _is(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except CelError:
            return False
        return True

    return check


def _masked(cidr: Cidr) -> Cidr:
    shift = cidr.ip.bits - cidr.prefix
    return Cidr(Ip(cidr.ip.number >> shift << shift, cidr.ip.bits), cidr.prefix)


def _contains_ip(cidr: Cidr, ip: Ip) -> bool:
    shift = cidr.ip.bits - cidr.prefix
    return cidr.ip.bits == ip.bits and cidr.ip.number >> shift == ip.number >> shift


def _contains_cidr(cidr: Cidr, other: Cidr) -> bool:
    return cidr.prefix <= other.prefix and _contains_ip(cidr, other.ip)


def _parsed(check: Callable[[Cidr, Any], bool], parse: Callable[[str], Any]) -> Callable[..., bool]:
    def checked(cidr: Cidr, text: str) -> bool:
        try:
            other = parse(text)
        except CelError:
            raise NoSuchOverloadError from None  # as upstream, which loses the reason
        return check(cidr, other)

    return checked


def _is_loopback(ip: Ip) -> bool:
    return ip.number >> 24 == 127 if ip.bits == 32 else ip.number == 1


def _is_link_local_multicast(ip: Ip) -> bool:
    return ip.number >> 8 == 0xE00000 if ip.bits == 32 else ip.number >> 112 & 0xFF0F == 0xFF02


def _is_link_local_unicast(ip: Ip) -> bool:
    return ip.number >> 16 == 0xA9FE if ip.bits == 32 else ip.number >> 118 == 0x3FA


def _is_multicast(ip: Ip) -> bool:
    return ip.number >> 28 == 0xE if ip.bits == 32 else ip.number >> 120 == 0xFF


def _is_global_unicast(ip: Ip) -> bool:
    is_special = ip.number == 0 or (ip.bits == 32 and ip.number == 0xFFFFFFFF)
    return not (is_special or _is_loopback(ip) or _is_multicast(ip) or _is_link_local_unicast(ip))


IMPLEMENTATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "string_to_ip": _ip,
    "ip_family": lambda ip: 4 if ip.bits == 32 else 6,
    "ip_is_canonical": lambda text: _text(_ip(text)) == text,
    "ip_is_unspecified": lambda ip: ip.number == 0,
    "ip_is_loopback": _is_loopback,
    "ip_is_link_local_multicast": _is_link_local_multicast,
    "ip_is_link_local_unicast": _is_link_local_unicast,
    "ip_is_global_unicast": _is_global_unicast,
    "is_ip": _is(_ip),
    "ip_to_string": _text,
    "string_to_cidr": _cidr,
    "cidr_contains_ip_string": _parsed(_contains_ip, _ip),
    "cidr_contains_ip_ip": _contains_ip,
    "cidr_contains_cidr_string": _parsed(_contains_cidr, _cidr),
    "cidr_contains_cidr": _contains_cidr,
    "cidr_ip": lambda cidr: cidr.ip,
    "cidr_prefix_length": lambda cidr: cidr.prefix,
    "cidr_masked": _masked,
    "is_cidr": _is(_cidr),
    "cidr_to_string": lambda cidr: f"{_text(cidr.ip)}/{cidr.prefix}",
}
