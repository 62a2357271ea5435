"""Destination addresses: of endpoints, and external IPs of Services."""

from typing import Final

from kvstack.apimachinery.objects.addresses import Address, parse_ip
from kvstack.apimachinery.objects.field_errors import invalid
from kvstack.apiserver.kinds.rules import Errors

_LOOPBACK: Final = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
_LINK_LOCAL: Final = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
_LINK_LOCAL_MULTICAST: Final = (
    "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
)


def check_endpoint_address(errors: Errors, path: str, text: str) -> None:
    """Check an address as a destination of traffic."""
    address = parse_ip(text)
    if address is None:
        errors.append(invalid(path, text, "must be a valid IP address"))
        return
    detail = f"may not be unspecified ({text})" if address.number == 0 else _special_range(address)
    if detail:
        errors.append(invalid(path, text, detail))


def _special_range(address: Address) -> str:
    number = address.number
    if address.is_ipv4:
        if number >> 24 == 127:
            return _LOOPBACK
        if number >> 16 == 169 << 8 | 254:
            return _LINK_LOCAL
        return _LINK_LOCAL_MULTICAST if number >> 8 == 224 << 16 else ""
    if number == 1:
        return _LOOPBACK
    if number >> 118 == 0xFE80 >> 6:
        return _LINK_LOCAL
    return _LINK_LOCAL_MULTICAST if number >> 112 & 0xFF0F == 0xFF02 else ""
