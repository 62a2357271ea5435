"""The addresses of the proxy's pages on a node of this project."""

from ipaddress import ip_address
from typing import Final

NONE: Final = "none"
METRICS_ADDRESS: Final = "127.0.0.1:10249"
HEALTHZ_ADDRESS: Final = "127.0.0.1:10256"
"""kube-proxy's is any address: load balancers outside of the machine need another one."""
_PORT_MAX: Final = 65_535


def page_address(text: str) -> str:
    """Return the address of pages; empty for `none`; ValueError."""
    if text == NONE:
        return ""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise ValueError(f"{text}: IP:PORT with a port from 1 to {_PORT_MAX}, or {NONE}")
    is_bracketed = host[:1] == "[" and host[-1:] == "]"
    address = ip_address(host[1:-1] if is_bracketed else host)
    if (address.version == 6) != is_bracketed:
        raise ValueError(f"{text}: IP:PORT with an IPv6 address in brackets")
    return text
