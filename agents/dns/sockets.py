"""Sockets of addresses that the machine may not have yet.

The bridge of a node is there once the node has its range, and its address with it. A socket may be
bound to an address that the machine will have (IP_FREEBIND); it then receives what arrives for it.
A wildcard is refused: answers must come from the address that was queried, and outsiders must
not be answered.
"""

import socket
from ipaddress import ip_address
from typing import Final

from kvstack.component.errors import ConfigError

_IP_FREEBIND: Final = 15
_IPV6_FREEBIND: Final = 78
RECEIVE_BYTES: Final = 1 << 20
"""The size of the receive buffer, if the system allows it."""
BACKLOG: Final = 64


def open_pair(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Return a datagram socket and one that listens, of one port; raises ConfigError.

    port: 0 is any that is free for both.
    """
    tries = 1 if port else 20
    while True:
        tries -= 1
        try:
            datagrams = _open(host, port, socket.SOCK_DGRAM)
        except OSError as error:
            raise _problem(host, port, error) from error
        chosen = datagrams.getsockname()[1]
        try:
            streams = _open(host, chosen, socket.SOCK_STREAM)
        except OSError as error:
            datagrams.close()
            if not tries:
                raise _problem(host, chosen, error) from error
            continue
        streams.listen(BACKLOG)
        return datagrams, streams


def is_own(host: str) -> bool:
    """Whether the machine has an address now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def check_host(host: str) -> None:
    """Raise ConfigError unless a text is an address of one machine."""
    try:
        address = ip_address(host)
    except ValueError:
        raise ConfigError(f"cannot answer DNS on {host!r}: it is not an address") from None
    if address.is_unspecified:
        raise ConfigError(f"cannot answer DNS on {host}: name the addresses that clients ask")


def _open(host: str, port: int, kind: socket.SocketKind) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, kind)
    try:
        opened.setblocking(False)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        else:
            opened.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        if kind == socket.SOCK_STREAM:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        opened.bind((host, port))
    except OSError:
        opened.close()
        raise
    return opened


def _problem(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(f"cannot answer DNS on {host} port {port}: {error.strerror or error}")
