"""Addresses of this machine, and how an address is written with a port."""

import socket
from ipaddress import IPv6Address, ip_address
from typing import Final

_ANYWHERE: Final = {4: ("192.0.2.1", 9), 6: ("2001:db8::1", 9)}
_LOOPBACK: Final = {4: "127.0.0.1", 6: "::1"}


def own_address(version: int) -> str:
    """Return the address this machine sends from; version: of IP, 4 or 6."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the system only chooses the way.
            probe.connect(_ANYWHERE[version])
            found: str = probe.getsockname()[0]
        except OSError:
            return _LOOPBACK[version]
    return found


def join_host_port(host: str, port: int) -> str:
    """Return host:port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen_url(host: str, port: int, *, is_plain: bool) -> str:
    """Return the URL to listen on; the unspecified address of IPv6 takes both families."""
    scheme = "http" if is_plain else "https"
    shown = f"[{host}]" if isinstance(ip_address(host), IPv6Address) else host
    return f"{scheme}://{shown}:{port}"
