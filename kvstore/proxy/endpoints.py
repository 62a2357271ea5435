"""The endpoints of a proxy that a domain's SRV records name.

    --discovery-srv example.org      _etcd-client-ssl._tcp, _etcd-client._tcp → https://…, http://…

Without --insecure-discovery only https endpoints with a certificate of the domain are used. If none
remains, it is as if the flag were not set.
"""

import socket
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.peers.tls import PeerTls, PeerTlsError, connect
from kvstore.server.discovery.dns import DnsError, Service, find_services, service_name

_SERVICE: Final = "etcd-client"
_DIAL_S: Final = 5.0


class SrvSettings(NamedTuple):
    """The flags for SRV records."""

    domain: str  # empty: none are looked up
    name_suffix: str
    dns_server: str  # empty: the system's
    trusted_ca_file: str
    is_insecure: bool  # endpoints are not validated


class Discovered(NamedTuple):
    """The endpoints that a domain's records name; both lists in the same order."""

    urls: list[str]
    services: list[Service]


def discover(srv: SrvSettings, logger: Logger) -> Discovered:
    """Return the endpoints of the domain; none without one. ConfigError if it has no records."""
    if not srv.domain:
        return Discovered([], [])
    endpoints = _find(srv)
    fields: dict[str, object] = {"srv-server": srv.domain, "endpoints": endpoints.urls}
    logger.info("discovered cluster from SRV", **fields)
    if srv.is_insecure:
        return endpoints
    logger.info("validating discovered SRV endpoints", **fields)
    valid, errors = _validate(endpoints, srv)
    if errors:
        fields = {"srv-server": srv.domain, "endpoints": valid.urls, "error": ",".join(errors)}
        logger.warning("failed to validate discovered endpoints", **fields)
    else:
        logger.info("using validated discovered SRV endpoints", **fields)
    return valid


def _find(srv: SrvSettings) -> Discovered:
    discovered = Discovered([], [])
    errors: list[str] = []
    for scheme in ("https", "http"):
        name = service_name(_SERVICE, srv.name_suffix, scheme)
        try:
            services = find_services(name, srv.domain, srv.dns_server)
        except DnsError as error:
            errors.append(str(error))
            continue
        discovered.services.extend(services)
        discovered.urls.extend(f"{scheme}://{join(each.target, each.port)}" for each in services)
    if len(errors) == 2:
        raise ConfigError(f"dns lookup errors: {errors[0]} and {errors[1]}")
    return discovered


def _validate(endpoints: Discovered, srv: SrvSettings) -> tuple[Discovered, list[str]]:
    valid = Discovered([], [])
    errors: list[str] = []
    tls = PeerTls(trusted_ca_file=srv.trusted_ca_file)
    for url, service in zip(endpoints.urls, endpoints.services, strict=True):
        if not url.startswith("https://"):
            errors.append(f'"{url}" is insecure')
            continue
        try:
            raw = socket.create_connection((service.target.rstrip("."), service.port), _DIAL_S)
            connect(raw, srv.domain, tls).close()
        except (OSError, PeerTlsError) as error:
            errors.append(f'"{url}" failed to dial ({error})')
            continue
        valid.urls.append(url)
        valid.services.append(service)
    return valid, errors


def join(host: str, port: int | str) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def without_scheme(endpoints: Sequence[str]) -> list[str]:
    """Return host:port of endpoints that may be URLs."""
    return [
        urlsplit(each).netloc if "://" in each and urlsplit(each).netloc else each
        for each in endpoints
    ]
