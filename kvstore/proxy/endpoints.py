"""Where a proxy's requests go: the endpoints that are given, or those a domain's SRV records name.

    --discovery-srv example.org      _etcd-client-ssl._tcp, _etcd-client._tcp → https://…, http://…

Unless --insecure-discovery, only those stay that are https and whose certificate is the domain's.
A domain none of whose endpoints is good counts as none given.
"""

import socket
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kvstore.errors import ConfigError
from kvstore.logger import Logger
from kvstore.peers.tls import PeerTls, PeerTlsError, connect
from kvstore.proxy.go_flags import Values
from kvstore.server.discovery.dns import DnsError, Service, find_services, service_name

_SERVICE: Final = "etcd-client"
_DIAL_S: Final = 5.0


class Discovered(NamedTuple):
    """What a domain's records name; both lists in one order."""

    urls: list[str]
    services: list[Service]


def discover(values: Values, ca_file: str, logger: Logger) -> Discovered:
    """Return the endpoints of --discovery-srv; none without it. ConfigError if it has none."""
    domain = str(values["discovery-srv"])
    if not domain:
        return Discovered([], [])
    found = _find(domain, str(values["discovery-srv-name"]), str(values["discovery-dns-server"]))
    fields: dict[str, object] = {"srv-server": domain, "endpoints": found.urls}
    logger.info("discovered cluster from SRV", **fields)
    if values["insecure-discovery"]:
        return found
    logger.info("validating discovered SRV endpoints", **fields)
    good, faults = _validated(found, domain, ca_file)
    if faults:
        fields = {"srv-server": domain, "endpoints": good.urls, "error": ",".join(faults)}
        logger.warning("failed to validate discovered endpoints", **fields)
    else:
        logger.info("using validated discovered SRV endpoints", **fields)
    return good


def _find(domain: str, suffix: str, server: str) -> Discovered:
    found = Discovered([], [])
    faults: list[str] = []
    for scheme in ("https", "http"):
        try:
            services = find_services(service_name(_SERVICE, suffix, scheme), domain, server)
        except DnsError as error:
            faults.append(str(error))
            continue
        found.services.extend(services)
        found.urls.extend(f"{scheme}://{join(each.target, each.port)}" for each in services)
    if len(faults) == 2:
        raise ConfigError(f"dns lookup errors: {faults[0]} and {faults[1]}")
    return found


def _validated(found: Discovered, domain: str, ca_file: str) -> tuple[Discovered, list[str]]:
    good = Discovered([], [])
    faults: list[str] = []
    tls = PeerTls(trusted_ca_file=ca_file)
    for url, service in zip(found.urls, found.services, strict=True):
        if not url.startswith("https://"):
            faults.append(f'"{url}" is insecure')
            continue
        try:
            raw = socket.create_connection((service.target.rstrip("."), service.port), _DIAL_S)
            connect(raw, domain, tls).close()
        except (OSError, PeerTlsError) as error:
            faults.append(f'"{url}" failed to dial ({error})')
            continue
        good.urls.append(url)
        good.services.append(service)
    return good, faults


def join(host: str, port: int | str) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def without_scheme(endpoints: Sequence[str]) -> list[str]:
    """Return host:port of endpoints that may be URLs."""
    return [
        urlsplit(each).netloc if "://" in each and urlsplit(each).netloc else each
        for each in endpoints
    ]
