"""--discovery-srv: the initial cluster as a domain's SRV records name it.

    _etcd-server-ssl._tcp.example.org   10.0.0.1 2380   ──►  0=https://a.example.org:2380
    _etcd-server._tcp.example.org       …               ──►  me=http://b.example.org:2380,1=http://…

A record is this member's own if its address is that of an advertised peer URL; it gets the member's
name, the others get numbers. Ids depend only on the URLs, so it does not matter that members number
each other differently. One of the two services is enough.
"""

import socket
from collections.abc import Callable, Sequence

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.config.model import Config
from kvstore.config.values import split_host_port
from kvstore.server.discovery.dns import DnsError, Service, find_services, service_name

Find = Callable[[str, str], list[Service]]  # (service, domain) → records; raises DnsError
Resolve = Callable[[str, int], tuple[str, int]]  # host and port → address; raises OSError

_SERVICE = "etcd-server"


def cluster_by_srv(
    config: Config, logger: Logger, find: Find | None = None, resolve: Resolve | None = None
) -> str:
    """Return name=url,name=url of the members that DNS names; ConfigError if there are none."""
    server = config.discovery_dns_server
    find = find or (lambda service, domain: find_services(service, domain, server))
    resolve = resolve or _tcp_address
    listed: list[str] = []
    faults: list[str] = []
    for scheme in ("https", "http"):
        found, fault = _one_scheme(config, scheme, find, resolve, logger)
        listed += found
        if fault:
            faults.append(fault)
    if faults:
        logger.warning("failed to resolve during SRV discovery", error="\n".join(faults))
    if not listed:
        reason = "\n".join(faults) or "no SRV record names a member"
        raise ConfigError(f"error setting up initial cluster: {reason}")
    for each in listed:
        logger.info("got bootstrap from DNS for etcd-server", node=each)
    if not any(each.startswith(f"{config.name}=") for each in listed):
        raise ConfigError(
            "error setting up initial cluster: "
            f'cannot find local etcd member "{config.name}" in SRV records'
        )
    return ",".join(listed)


def _one_scheme(
    config: Config, scheme: str, find: Find, resolve: Resolve, logger: Logger
) -> tuple[list[str], str]:
    """Return the members that one service names, and the reason if there are none."""
    service = service_name(_SERVICE, config.discovery_srv_name, scheme)
    domain = config.discovery_srv
    urls = config.initial_advertise_peer_urls
    members: list[str] = []
    fault = ""
    try:
        own = {resolve(*_host_port(url)): url for url in urls if url.startswith("http")}
        try:
            members, fault = _members(find(service, domain), scheme, config.name, own, resolve)
        except DnsError as error:
            fault = str(error)
        if fault:
            fault = f"error querying DNS SRV records for _{service} {fault}"
    except OSError as error:
        fault = str(error)
    fields: dict[str, object] = {
        "service-scheme": scheme,
        "service-name": service,
        "server-name": config.name,
        "discovery-srv": domain,
        "advertise-peer-urls": list(urls),
        "found-cluster": members,
    }
    if fault:
        fields["error"] = fault
    logger.info(f"get cluster for {_SERVICE}{'-ssl' if scheme == 'https' else ''} SRV", **fields)
    return members, fault


def _members(
    services: Sequence[Service],
    scheme: str,
    name: str,
    own: dict[tuple[str, int], str],
    resolve: Resolve,
) -> tuple[list[str], str]:
    """Return name=url of each record that can be used; the last fault if none can."""
    members: list[str] = []
    fault = ""
    count = 0
    for service in services:
        host = service.target.rstrip(".")
        url = f"{scheme}://{host}:{service.port}"
        try:
            mine = own.get(resolve(host, service.port))
        except OSError as error:
            fault = str(error)
            continue
        if mine is not None and not mine.startswith(f"{scheme}://"):
            fault = (
                f"bootstrap at {url} from DNS for {service_name(_SERVICE, '', scheme)} has scheme "
                f"mismatch with expected peer {mine}"
            )
            continue
        if mine is None:
            members.append(f"{count}={url}")
            count += 1
        else:
            members.append(f"{name}={url}")
    return members, "" if members else fault


def _host_port(url: str) -> tuple[str, int]:
    return split_host_port(url.partition("://")[2], url)


def _tcp_address(host: str, port: int) -> tuple[str, int]:
    """Return the address of a host, IPv4 rather than IPv6; OSError if it has none."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return str(found[0][4][0]), port
