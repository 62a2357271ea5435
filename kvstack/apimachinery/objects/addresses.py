"""IP addresses and CIDR values, as strict and as sloppy as Kubernetes takes them.

    parse_ip("010.0.0.1")            → 10.0.0.1, not strict
    parse_ip("::ffff:10.0.0.1")      → 10.0.0.1, mapped, not strict
    format_ip(parse_ip("fd00:0::1")) → "fd00::1"

Old fields take leading zeros and IPv4 addresses in IPv6 form if they are stored already, and
anything not canonical always (`validate_legacy_ip`, with a warning from `ip_warnings`); new fields
take the canonical form alone (`validate_ip`).
"""

from collections.abc import Container
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.field_errors import FieldError, invalid
from kvstack.apimachinery.objects.text.go_text import quote

_DIGITS: Final = frozenset("0123456789")
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_MAPPED: Final = 0xFFFF << 32
"""The upper bits of an IPv4 address that is written as an IPv6 one."""

_BAD_IP: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_BAD_CIDR: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_BAD_INTERFACE: Final = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"


class Address(NamedTuple):
    """An IP address and how it was written."""

    number: int
    """The address; 32 bits if it is IPv4, in whatever form, else 128."""
    is_ipv4: bool
    is_mapped: bool
    """Whether it is IPv4 but was written as IPv6."""
    has_leading_zeros: bool
    """Whether a number had zeros in front that strict parsers refuse."""


class Network(NamedTuple):
    """An address with the length of its prefix."""

    address: Address
    prefix: int
    """Bits of the prefix, as written."""
    has_leading_zeros: bool
    """Whether address or length had zeros in front that strict parsers refuse."""


def parse_ip(text: str) -> Address | None:
    """Return the address a text holds, leading zeros allowed; None if it is invalid."""
    dot, colon = text.find("."), text.find(":")
    if dot >= 0 and (colon < 0 or dot < colon):
        return _parse_ipv4(text)
    return _parse_ipv6(text) if colon >= 0 else None


def parse_cidr(text: str) -> Network | None:
    """Return the network a text holds, leading zeros allowed; None if it is invalid."""
    head, slash, tail = text.partition("/")
    address = _parse_ipv4(head) or _parse_ipv6(head)
    if not slash or address is None:
        return None
    prefix = _decimal(tail, _bits(address))
    if prefix is None:
        return None
    zeros = address.has_leading_zeros or (len(tail) > 1 and tail[0] == "0")
    return Network(address, prefix, zeros)


def format_ip(address: Address) -> str:
    """Return the canonical text of an address; of a mapped one, that of the IPv4 address."""
    number = address.number
    if address.is_ipv4:
        return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return _format_ipv6(number)


def format_cidr(network: Network) -> str:
    """Return the canonical text of a network, bits beyond the prefix cleared."""
    address, prefix = network.address, network.prefix
    if address.is_mapped and prefix < 96:
        # The prefix ends within the bits that make it an IPv4 address.
        number = _masked(_MAPPED | address.number, 128, prefix)
        return f"{_format_ipv6(number)}/{prefix}"
    return f"{format_ip(_network_address(network))}/{_shown_prefix(network)}"


def validate_legacy_ip(
    path: str, value: str, *, is_strict: bool = True, accepted: Container[str] = ()
) -> list[FieldError]:
    """Return what is wrong with an address of an old field; `accepted` may stay."""
    return [] if value in accepted else _ip_errors(path, value, is_strict=is_strict)


def validate_ip(path: str, value: str) -> list[FieldError]:
    """Return what is wrong with an address that must be canonical."""
    errors = _ip_errors(path, value, is_strict=True)
    address = parse_ip(value)
    if not errors and address is not None:
        errors = _canonical_errors(path, value, format_ip(address))
    return errors


def validate_legacy_cidr(
    path: str, value: str, *, is_strict: bool = True, accepted: Container[str] = ()
) -> list[FieldError]:
    """Return what is wrong with a CIDR of an old field; `accepted` may stay."""
    return [] if value in accepted else _cidr_errors(path, value, is_strict=is_strict)


def validate_cidr(path: str, value: str) -> list[FieldError]:
    """Return what is wrong with a CIDR that must be canonical."""
    errors = _cidr_errors(path, value, is_strict=True)
    network = parse_cidr(value)
    if not errors and network is not None:
        errors = _canonical_errors(path, value, format_cidr(network))
    return errors


def validate_interface_address(path: str, value: str) -> list[FieldError]:
    """Return what is wrong with an address with the length of its network: `192.0.2.5/24`."""
    network = parse_cidr(value)
    if network is None:
        return [invalid(path, value, _BAD_INTERFACE)]
    address, prefix = network.address, network.prefix
    if address.is_mapped and prefix > 32:
        prefix -= 96
    return _canonical_errors(path, value, f"{format_ip(address)}/{prefix}")


def ip_warnings(path: str, value: str) -> list[str]:
    """Return the warnings about an address that is valid but not written as it should be."""
    address = parse_ip(value)
    if address is None:
        return []
    canonical = format_ip(address)
    if address.has_leading_zeros or address.is_mapped:
        return [
            f"{path}: non-standard IP address {quote(value)} is invalid: use {quote(canonical)}"
        ]
    if not address.is_ipv4 and canonical != value:
        return [
            f"{path}: IPv6 address {quote(value)} should be in RFC 5952 canonical format"
            f" ({quote(canonical)})"
        ]
    return []


def cidr_warnings(path: str, value: str) -> list[str]:
    """Return the warnings about a CIDR that is valid but not written as it should be."""
    network = parse_cidr(value)
    if network is None:
        return []
    address, canonical = network.address, format_cidr(network)
    warnings: list[str] = []
    if _has_host_bits(network):
        single = f"{format_ip(address)}/{_bits(address)}"
        warnings.append(
            f"{path}: CIDR value {quote(value)} is ambiguous in this context (should be"
            f" {quote(canonical)} or {quote(single)}?)"
        )
    if network.has_leading_zeros or address.is_mapped:
        warnings.append(
            f"{path}: non-standard CIDR value {quote(value)} is invalid: use {quote(canonical)}"
        )
    if not warnings and not address.is_ipv4 and canonical != value:
        warnings.append(
            f"{path}: IPv6 CIDR value {quote(value)} should be in RFC 5952 canonical format"
            f" ({quote(canonical)})"
        )
    return warnings


def _ip_errors(path: str, value: str, *, is_strict: bool) -> list[FieldError]:
    address = parse_ip(value)
    if address is None:
        return [invalid(path, value, _BAD_IP)]
    if is_strict and address.has_leading_zeros:
        return [invalid(path, value, "must not have leading 0s")]
    if is_strict and address.is_mapped:
        return [invalid(path, value, "must not be an IPv4-mapped IPv6 address")]
    return []


def _cidr_errors(path: str, value: str, *, is_strict: bool) -> list[FieldError]:
    network = parse_cidr(value)
    if network is None:
        return [invalid(path, value, _BAD_CIDR)]
    if is_strict and network.has_leading_zeros:
        return [invalid(path, value, "must not have leading 0s in IP or prefix length")]
    if is_strict and network.address.is_mapped:
        return [invalid(path, value, "must not have an IPv4-mapped IPv6 address")]
    if is_strict and _has_host_bits(network):
        return [invalid(path, value, "must not have bits set beyond the prefix length")]
    return []


def _canonical_errors(path: str, value: str, canonical: str) -> list[FieldError]:
    if value == canonical:
        return []
    return [invalid(path, value, f"must be in canonical form ({quote(canonical)})")]


def _bits(address: Address) -> int:
    return 32 if address.is_ipv4 and not address.is_mapped else 128


def _shown_prefix(network: Network) -> int:
    return network.prefix - 96 if network.address.is_mapped else network.prefix


def _network_address(network: Network) -> Address:
    address = network.address
    bits = 32 if address.is_ipv4 else 128
    return address._replace(number=_masked(address.number, bits, _shown_prefix(network)))


def _has_host_bits(network: Network) -> bool:
    address, prefix = network.address, network.prefix
    number = _MAPPED | address.number if address.is_mapped else address.number
    return number != _masked(number, _bits(address), prefix)


def _masked(number: int, bits: int, prefix: int) -> int:
    return number >> (bits - prefix) << (bits - prefix)


def _decimal(text: str, maximum: int) -> int | None:
    """Return the number of digits alone, up to a maximum."""
    significant = text.lstrip("0")
    if not text or len(significant) > 5 or not _DIGITS.issuperset(significant):
        return None
    number = int(significant or "0")
    return number if number <= maximum else None


def _parse_ipv4(text: str) -> Address | None:
    parts = text.split(".")
    if len(parts) != 4:
        return None
    number, zeros = 0, False
    for part in parts:
        octet = _decimal(part, 255)
        if octet is None:
            return None
        number = number << 8 | octet
        zeros = zeros or (len(part) > 1 and part[0] == "0")
    return Address(number, is_ipv4=True, is_mapped=False, has_leading_zeros=zeros)


def _parse_ipv6(text: str) -> Address | None:
    head, gap, tail = text.partition("::")
    before = _groups(head, may_end_in_ipv4=not gap)
    after = _groups(tail, may_end_in_ipv4=True)
    if before is None or after is None:
        return None
    groups, zeros = before[0] + after[0], before[1] or after[1]
    if (len(groups) > 7) if gap else (len(groups) != 8):
        return None
    number = 0
    for group in before[0] + [0] * (8 - len(groups)) + after[0]:
        number = number << 16 | group
    is_mapped = number >> 32 == 0xFFFF
    if is_mapped:
        number &= 0xFFFFFFFF
    return Address(number, is_ipv4=is_mapped, is_mapped=is_mapped, has_leading_zeros=zeros)


def _groups(text: str, *, may_end_in_ipv4: bool) -> tuple[list[int], bool] | None:
    """Return the groups of 16 bits of one side of a `::`, and whether zeros led a number."""
    groups: list[int] = []
    zeros = False
    parts = text.split(":") if text else []
    for position, part in enumerate(parts):
        if "." in part:
            address = _parse_ipv4(part)
            if address is None or not may_end_in_ipv4 or position != len(parts) - 1:
                return None
            groups += [address.number >> 16, address.number & 0xFFFF]
            zeros = zeros or address.has_leading_zeros
            continue
        significant = part.lstrip("0")
        if not part or len(significant) > 4 or not _HEX_DIGITS.issuperset(significant):
            return None
        groups.append(int(significant or "0", 16))
        zeros = zeros or len(part) > 4
    return groups, zeros


def _format_ipv6(number: int) -> str:
    groups = [f"{number >> shift & 0xFFFF:x}" for shift in range(112, -1, -16)]
    start, size = _longest_zeros(groups)
    if size < 2:
        return ":".join(groups)
    return f"{':'.join(groups[:start])}::{':'.join(groups[start + size :])}"


def _longest_zeros(groups: list[str]) -> tuple[int, int]:
    """Return where the longest run of zero groups begins, the first of equals, and its length."""
    best = (0, 0)
    start = 0
    for position, group in enumerate(groups):
        if group != "0":
            start = position + 1
        elif position + 1 - start > best[1]:
            best = (start, position + 1 - start)
    return best
