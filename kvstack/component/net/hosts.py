"""Addresses of this machine, and host:port texts."""

import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit


class OfFamily(Protocol):
    """An address or a range."""

    @property
    def version(self) -> int:
        """The IP version, 4 or 6."""
        ...


T = TypeVar("T", bound=OfFamily)

_ANYWHERE: Final = {4: ("192.0.2.1", 9), 6: ("2001:db8::1", 9)}
_NO_IPV6: Final = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
LOOPBACK: Final = {4: "127.0.0.1", 6: "::1"}


def own_address(version: int) -> str:
    """Return the address this machine sends from; version: of IP, 4 or 6."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the system only chooses the route.
            probe.connect(_ANYWHERE[version])
            found: str = probe.getsockname()[0]
        except OSError:
            return LOOPBACK[version]
    return found


def address_towards(url: str, default_port: int) -> str:
    """Return the address by which this machine reaches a server; empty: it is not known."""
    parts = urlsplit(url)
    try:
        rows = socket.getaddrinfo(
            parts.hostname, parts.port or default_port, type=socket.SOCK_DGRAM
        )
    except OSError:
        return ""
    for family, kind, protocol, _, where in rows:
        with suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.connect(where)  # UDP: nothing is sent
            address: str = probe.getsockname()[0]
            return address
    return ""


def own_addresses(families: Iterable[int]) -> tuple[str, ...]:
    """Return the address this machine sends from of each family that it has, in their order.

    Without any, it is the loopback address of the first family.
    """
    found = [own_address(each) for each in families]
    outside = tuple(each for each in found if not ip_address(each).is_loopback)
    return outside or tuple(found[:1])


def has_ipv6() -> bool:
    """Return whether this thread's network has IPv6 enabled."""
    try:
        return _NO_IPV6.read_text().strip() == "0"
    except OSError:
        return False


def of_families(texts: str, parse: Callable[[str], T]) -> tuple[T, ...]:
    """Parse a comma-separated text: one value, or one of each family; ValueError."""
    values: list[T] = []
    for text in filter(None, map(str.strip, texts.split(","))):
        try:
            values.append(parse(text))
        except ValueError as error:
            raise ValueError(f"{text}: {error}") from error
    if len({each.version for each in values}) < len(values):
        raise ValueError(f"{texts}: at most one of each family is allowed")
    return tuple(values)


def join_host_port(host: str, port: int) -> str:
    """Return host:port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen_url(host: str, port: int, *, is_plain: bool) -> str:
    """Return the URL to listen on; IPv6's unspecified address accepts both families."""
    scheme = "http" if is_plain else "https"
    shown = f"[{host}]" if isinstance(ip_address(host), IPv6Address) else host
    return f"{scheme}://{shown}:{port}"
