"""Addresses of this machine, and how an address is written with a port."""

import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final, Protocol, TypeVar


class OfFamily(Protocol):
    """An address or a range."""

    @property
    def version(self) -> int:
        """4 or 6."""
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
            # Nothing is sent: the system only chooses the way.
            probe.connect(_ANYWHERE[version])
            found: str = probe.getsockname()[0]
        except OSError:
            return LOOPBACK[version]
    return found


def own_addresses(families: Iterable[int]) -> tuple[str, ...]:
    """Return the address this machine sends from of each family that it has, in their order.

    Where it has none, it is the loopback's of the first family.
    """
    found = [own_address(each) for each in families]
    outside = tuple(each for each in found if not ip_address(each).is_loopback)
    return outside or tuple(found[:1])


def has_ipv6() -> bool:
    """Whether the network of this thread has IPv6, and nobody has disabled it."""
    try:
        return _NO_IPV6.read_text().strip() == "0"
    except OSError:
        return False


def of_families(texts: str, parse: Callable[[str], T]) -> tuple[T, ...]:
    """Return what a text with commas says: one value, or one of each family; ValueError."""
    found: list[T] = []
    for text in filter(None, map(str.strip, texts.split(","))):
        try:
            found.append(parse(text))
        except ValueError as error:
            raise ValueError(f"{text}: {error}") from error
    if len({each.version for each in found}) < len(found):
        raise ValueError(f"{texts}: one of a family at most")
    return tuple(found)


def join_host_port(host: str, port: int) -> str:
    """Return host:port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen_url(host: str, port: int, *, is_plain: bool) -> str:
    """Return the URL to listen on; the unspecified address of IPv6 takes both families."""
    scheme = "http" if is_plain else "https"
    shown = f"[{host}]" if isinstance(ip_address(host), IPv6Address) else host
    return f"{scheme}://{shown}:{port}"
