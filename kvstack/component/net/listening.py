"""Listening on TCP as Go's servers do, and the texts of clients' addresses.

    0.0.0.0:6443  [::]:6443  :6443   ──► one socket for IPv6 and IPv4 (IPv4 alone without IPv6)
    127.0.0.1:0   [::1]:0            ──► the family of the address

A client of IPv4 is shown by its IPv4 address, whatever the socket.
"""

import errno
import socket
from typing import Any, Final

WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})
_MAPPED: Final = "::ffff:"


def listen_tcp(host: str, port: int, backlog: int, *, reuse_port: bool = False) -> socket.socket:
    """Return a listening socket; OSError if the address cannot be bound.

    host is a name or an address, IPv6 without brackets; port 0 is any.
    """
    if host in WILDCARDS:
        try:
            return _listen(socket.AF_INET6, ("::", port), backlog, reuse_port, has_both=True)
        except OSError as error:
            if host == "::" or error.errno not in _NO_IPV6:
                raise
        return _listen(socket.AF_INET, ("0.0.0.0", port), backlog, reuse_port)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return _listen(found[0][0], found[0][4], backlog, reuse_port)


def peer_text(name: object) -> str:
    """Return a client's address of TCP (`getpeername`) as host:port; empty for any other."""
    if not isinstance(name, tuple):
        return ""
    host = peer_host(name)
    return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"


def peer_host(name: tuple[Any, ...]) -> str:
    """Return the host of a client's address of TCP."""
    host = str(name[0])
    return host.removeprefix(_MAPPED) if "." in host else host


def _listen(
    family: int,
    address: Any,  # noqa: ANN401 - as the family has it
    backlog: int,
    reuse_port: bool,  # noqa: FBT001
    *,
    has_both: bool = False,
) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if has_both else 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(address)
        listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    return listening
