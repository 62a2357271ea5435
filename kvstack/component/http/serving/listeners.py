"""The settings of an HTTP server: addresses, certificates and limits.

    Listener("https://0.0.0.0:6443", tls=ServerTls(
        KeyPair("server.crt", "server.key"),
        client_auth=ClientAuth.REQUEST,
        authorities={"clients": "ca.crt", "front-proxy": "proxy-ca.crt"},
    ))

A certificate, a key or a bundle is a path (str) or PEM itself (bytes). Files are checked for
changes at every handshake; working ones are served until other working ones replace them.

A request's connection has the chain of the client's certificate and the names of the authorities
that verify it. `ClientAuth` says which certificates the handshake refuses; its members are those of
Go's crypto/tls. A kube-apiserver uses REQUEST: a certificate that no authority verifies does not
end the connection, the request just has no user from it. A certificate that is itself in an
authority's bundle is verified by it, also if it is self-signed and marked as an authority.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

Pem: TypeAlias = str | bytes  # a path, or the content


class ClientAuth(IntEnum):
    """Which client certificates are requested, and which refused."""

    NONE = 0  # no certificate is requested
    REQUEST = 1  # any or none is accepted; see Connection.verified_by
    VERIFY_IF_GIVEN = 2  # none is accepted; one that no authority verifies is refused
    REQUIRE_AND_VERIFY = 3


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with its chain, and its key."""

    cert: Pem
    key: Pem
    names: tuple[str, ...] = ()  # DNS names it serves ("*.example.org" too); empty: its own


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The TLS settings of a listener."""

    pair: KeyPair  # the default
    others: tuple[KeyPair, ...] = ()  # chosen by the client's server name (SNI)
    client_auth: ClientAuth = ClientAuth.NONE
    authorities: Mapping[str, Pem] = field(default_factory=dict)  # name → bundle
    min_version: str = "TLS1.2"
    max_version: str = ""  # empty: the newest
    cipher_suites: tuple[str, ...] = ()  # Go's names; empty: all that are safe
    http2: bool = True  # offered in the handshake, where the transport speaks it


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of one listener, one connection and one request. Defaults: a kube-apiserver's."""

    connections_max: int = 65_536
    streams_max: int = 250  # open at once on one connection of HTTP/2
    header_bytes_max: int = 1 << 20  # of one request; more is refused with 431
    body_bytes_max: int = 3 << 20  # default limit of Request.read; more is refused with 413
    whole_body_bytes_max: int = 256 << 10  # bodies up to this are read before the handler begins
    window_bytes: int = 256 << 10  # of any other body, read ahead of the handler
    backlog_bytes_max: int = 64 << 20  # unsent of one answer; above it the answer is aborted
    handshake_timeout_s: float = 20.0  # for the handshake, and then for the first request's head
    idle_timeout_s: float = 90.0  # from one request to the next
    body_timeout_s: float = 60.0  # for a body that is read before the handler begins
    write_stall_timeout_s: float = 30.0  # the socket takes no byte although some wait; 0: no limit
    ping_interval_s: float = 30.0  # a silent client of HTTP/2 is pinged; 0: never
    ping_timeout_s: float = 15.0


@dataclass(frozen=True, slots=True)
class Listener:
    """An address: http://host:port or https:// (port 0: any), unix://path or unixs://."""

    url: str
    name: str = ""  # of Connection.listener
    tls: ServerTls | None = None  # for https:// and unixs://
    limits: ListenerLimits = field(default_factory=ListenerLimits)
