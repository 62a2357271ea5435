"""Looks up SRV records in DNS: which hosts and ports of a domain offer a service.

    find_services("etcd-server", "example.org")
    _etcd-server._tcp.example.org.  SRV  0 10 2380 a.example.org.   → Service("a.example.org.", …)

Records are returned in the order in which a client should try them: by priority, and at random by
weight within a priority. The names of hosts are not resolved here. dnspython is loaded by the first
lookup.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kvstack.component.errors import ConfigError
from kvstore.config.values import split_host_port
from kvstore.errors import KvstoreError

if TYPE_CHECKING:
    from dns.resolver import Resolver

LOOKUP_S_MAX: Final = 10.0
_DNS_PORT: Final = 53


class DnsError(KvstoreError):
    """A name has no such records, or the lookup failed; the text is Go's."""


class Service(NamedTuple):
    """One SRV record."""

    target: str  # with its final dot
    port: int
    priority: int  # lower ones are tried first
    weight: int


def service_name(service: str, suffix: str, scheme: str) -> str:
    """Return a service's name for a scheme: etcd-client-ssl-suffix for https."""
    parts = [service, "ssl" if scheme == "https" else "", suffix]
    return "-".join(filter(None, parts))


def find_services(service: str, domain: str, server: str = "") -> list[Service]:
    """Return the records of _service._tcp.domain; DnsError if there are none.

    server is host:port of the DNS server to ask; empty: those of the system.
    """
    import dns.exception
    import dns.resolver
    from dns.rdatatype import SRV

    name = f"_{service}._tcp.{domain}"
    try:
        resolver = _resolver(server)
    except dns.resolver.NoResolverConfiguration as error:
        raise DnsError(f"lookup {name}: {error}") from None
    server_name = server or f"{resolver.nameservers[0]}:{resolver.port}"
    try:
        answer = resolver.resolve(name, SRV, lifetime=LOOKUP_S_MAX)
        services = [Service(str(each.target), each.port, each.priority, each.weight)
                 for each in answer]  # fmt: skip
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        raise DnsError(f"lookup {name} on {server_name}: no such host") from None
    except dns.resolver.LifetimeTimeout:
        raise DnsError(f"lookup {name} on {server_name}: i/o timeout") from None
    except dns.resolver.NoNameservers:
        raise DnsError(f"lookup {name} on {server_name}: server misbehaving") from None
    except (dns.exception.DNSException, UnicodeError) as error:
        raise DnsError(f"lookup {name}: {str(error) or type(error).__name__}") from None
    return _in_order(services)


def _resolver(server: str) -> "Resolver":
    from dns.resolver import Resolver

    if not server:
        return Resolver()
    try:
        host, port = split_host_port(server if ":" in server else f"{server}:{_DNS_PORT}", server)
        resolver = Resolver(configure=False)
        resolver.nameservers = [host]
    except ValueError as error:
        raise ConfigError(f"--discovery-dns-server {server}: {error}") from None
    resolver.port = port
    return resolver


def _in_order(services: Sequence[Service]) -> list[Service]:
    """Return records by priority; those of one priority at random, by weight."""
    rng = random.SystemRandom()
    ordered: list[Service] = []
    for priority in sorted({each.priority for each in services}):
        left = [each for each in services if each.priority == priority]
        while left:
            weights = [each.weight for each in left]
            chosen = rng.choices(left, weights if any(weights) else None)[0]
            left.remove(chosen)
            ordered.append(chosen)
    return ordered
