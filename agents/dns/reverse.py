"""Names of addresses: 10.0.96.10.in-addr.arpa, and 32 digits below ip6.arpa."""

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from typing import Final

_IPV4: Final = (b"in-addr", b"arpa")
_IPV6: Final = (b"ip6", b"arpa")
_DIGITS: Final = frozenset(b"0123456789abcdef")


def is_reverse(labels: Sequence[bytes]) -> bool:
    """Whether a name is below in-addr.arpa or ip6.arpa."""
    return tuple(labels[-2:]) in (_IPV4, _IPV6)


def address_of(labels: Sequence[bytes]) -> str:
    """Return the address that a name is of; empty: it is of none, or of a range."""
    own = list(reversed(labels[:-2]))
    if tuple(labels[-2:]) == _IPV6:
        digits = b"".join(own)
        if len(own) != 32 or len(digits) != 32 or not _DIGITS.issuperset(digits):
            return ""
        return str(IPv6Address(int(digits, 16)))
    if len(own) != 4:
        return ""
    try:
        return str(ip_address(b".".join(own).decode("ascii")))
    except ValueError:
        return ""
