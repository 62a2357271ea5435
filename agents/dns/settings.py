"""The settings of `kvstack dns`, read from its flags."""

import socket
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple

from kvstack.agents.dns.clients import Network
from kvstack.agents.dns.cluster import POD_MODES, Options
from kvstack.agents.dns.forwarding.answer_cache import Limits
from kvstack.agents.dns.forwarding.exchange import Resolver
from kvstack.agents.dns.forwarding.forwarder import Forwarding
from kvstack.agents.dns.forwarding.node_resolvers import RESOLVERS_MAX, NodeResolvers
from kvstack.agents.dns.publishing.kube_dns import slice_name
from kvstack.agents.dns.query import labels_of, wire_name
from kvstack.agents.dns.server import DnsSettings
from kvstack.agents.dns.sockets import check_host
from kvstack.agents.process.settings import cluster_of
from kvstack.apimachinery.objects.names import check_dns_subdomain
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.net.hosts import address_towards

NONE: Final = "none"
AUTO: Final = "auto"
TTL_S_MAX: Final = 3600
DOMAIN_MAX: Final = 100
"""Characters; names of endpoints must fit in front of them."""
_PORT_MAX: Final = 65_535
_HTTPS_PORT: Final = 443


class Publishing(NamedTuple):
    """How the Service kube-dns leads to this server."""

    cluster_ip: str
    name: str
    """Of this server."""
    address: str
    """The one that it is asked at."""


class Settings(NamedTuple):
    """Settings of the command."""

    dns: DnsSettings
    addresses: tuple[str, ...]
    port: int
    pages: dict[str, str]
    """Addresses (`127.0.0.1:8080`) by path."""
    kubeconfig: str = ""
    master: str = ""
    verbosity: int = 0
    publishing: Publishing | None = None


def read(reader: FlagReader, clock: Clock) -> Settings:
    """Return the settings; what is wrong goes to the reader's list."""
    wrong = reader.wrong
    addresses = _addresses(reader)
    if not addresses and not wrong:
        wrong.append("--bind-addresses must name an address")
    for each in addresses:
        try:
            check_host(each)
        except ConfigError as error:
            wrong.append(f"--bind-addresses: {error}")
    port = _number(reader, "port", 0, _PORT_MAX)
    zone = Options(
        _domain(reader),
        _number(reader, "ttl", 0, TTL_S_MAX),
        reader.text("pods"),
        reader.flag("endpoint-pod-names"),
    )
    if zone.pods not in POD_MODES:
        wrong.append(f"--pods {zone.pods}: one of {', '.join(POD_MODES)}")
    own = frozenset(Resolver(each, port) for each in addresses)
    of_file = NodeResolvers(clock, reader.text("resolv-conf"))
    dns = DnsSettings(
        zone,
        _forwarding(reader, of_file, own),
        _networks(reader.texts("client-ranges"), wrong),
        nodes_may_ask=True,
        per_second=_number(reader, "client-queries-per-second", 1, 1_000_000),
        searches_of_node=of_file.searches if reader.flag("autopath") else None,
    )
    publishing = _publishing(reader, addresses)
    pages = {
        f"/{name}": address
        for name in ("health", "ready", "metrics")
        if (address := reader.text(f"{name}-address")) not in ("", NONE)
    }
    for path, address in pages.items():
        host, _, number = address.rpartition(":")
        if not host or not number.isdecimal() or int(number) > _PORT_MAX:
            wrong.append(f"--{path[1:]}-address {address}: HOST:PORT, or none")
    return Settings(
        dns,
        addresses,
        port,
        pages,
        reader.text("kubeconfig"),
        reader.text("master"),
        reader.int("v"),
        publishing,
    )


def _addresses(reader: FlagReader) -> tuple[str, ...]:
    """Return the addresses to listen on, with the one that AUTO stands for."""
    texts = reader.texts("bind-addresses")
    if AUTO not in texts:
        return texts
    try:
        server = cluster_of(reader.text("kubeconfig"), reader.text("master")).server
    except ConfigError as error:
        reader.wrong.append(f"--bind-addresses {AUTO}: {error}")
        return ()
    own = address_towards(server, _HTTPS_PORT)
    if not own:
        reader.wrong.append(f"--bind-addresses {AUTO}: {server} is not reached by any address")
        return ()
    return tuple(dict.fromkeys(own if each == AUTO else each for each in texts))


def _publishing(reader: FlagReader, addresses: Iterable[str]) -> Publishing | None:
    """Return how the server is published; None: it is not."""
    text, name = reader.text("cluster-dns"), reader.text("server-name")
    if not text:
        if name:
            reader.wrong.append("--server-name needs --cluster-dns")
        return None
    try:
        ip = ip_address(text)
    except ValueError as error:
        reader.wrong.append(f"--cluster-dns: {error}")
        return None
    name = (name or socket.gethostname()).lower()
    problems = check_dns_subdomain(slice_name(name))
    reader.wrong.extend(f"--server-name {name}: {each}" for each in problems)
    for each in addresses:
        with suppress(ValueError):  # reported already
            own = ip_address(each)
            if own.version == ip.version and not own.is_loopback:
                return Publishing(str(ip), name, each)
    reader.wrong.append(
        f"--cluster-dns {ip}: --bind-addresses has no address of its family that others reach"
    )
    return None


def _number(reader: FlagReader, name: str, low: int, high: int) -> int:
    found = reader.int(name)
    if not low <= found <= high:
        reader.wrong.append(f"--{name} {found}: between {low} and {high}")
    return found


def _domain(reader: FlagReader) -> str:
    domain = reader.text("cluster-domain").lower().rstrip(".")
    if not domain:
        reader.wrong.append("--cluster-domain must not be empty")
    try:
        wire_name(domain)
    except ValueError as error:
        reader.wrong.append(f"--cluster-domain: {error}")
    if len(domain) > DOMAIN_MAX:
        reader.wrong.append(f"--cluster-domain {domain}: at most {DOMAIN_MAX} characters")
    return domain


def _networks(texts: Iterable[str], wrong: list[str]) -> tuple[Network, ...]:
    found: list[Network] = []
    for each in texts:
        try:
            found.append(ip_network(each))
        except ValueError as error:
            wrong.append(f"--client-ranges {error}")
    return tuple(found)


def _forwarding(
    reader: FlagReader, of_file: NodeResolvers, own: frozenset[Resolver]
) -> Forwarding | None:
    resolvers = reader.texts("forward")
    stubs: dict[tuple[bytes, ...], list[Resolver]] = {}
    for each in reader.texts("stub-domains"):
        domain, _, text = each.partition("=")
        if not domain or not text:
            reader.wrong.append(f"--stub-domains {each}: DOMAIN=ADDRESS is wanted")
            continue
        try:
            stubs.setdefault(labels_of(wire_name(domain)), []).append(resolver(text))
        except ValueError as error:
            reader.wrong.append(f"--stub-domains {each}: {error}")
    fixed: list[Resolver] = []
    for each in () if resolvers == (NONE,) else resolvers:
        try:
            fixed.append(resolver(each))
        except ValueError as error:
            reader.wrong.append(f"--forward {each}: {error}")
    if len(fixed) > RESOLVERS_MAX:
        reader.wrong.append(f"--forward: {len(fixed)} addresses, at most {RESOLVERS_MAX}")
    limits = Limits(
        _number(reader, "cache-ttl", 0, 86_400), _number(reader, "cache-denial-ttl", 0, 86_400)
    )
    at_once = _number(reader, "forward-max", 1, 10_000)
    if resolvers == (NONE,) and not stubs:
        return None
    return Forwarding(
        (lambda: tuple(fixed)) if resolvers else of_file,
        tuple((domain, tuple(some)) for domain, some in stubs.items()),
        own,
        at_once,
        limits=limits,
    )


def resolver(text: str) -> Resolver:
    """Return the resolver of `10.1.1.1`, `10.1.1.1:5353` or `[fd00::1]:53`; ValueError."""
    host, colon, port = text, "", ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        colon, port = port[:1], port[1:]
    elif text.count(":") == 1:
        host, colon, port = text.partition(":")
    if colon and (not port.isdecimal() or not 0 < int(port) <= _PORT_MAX):
        raise ValueError(f"invalid port {port!r}")
    return Resolver(str(ip_address(host)), int(port) if colon else 53)
