"""What the proxy reads in a Service: one `ServicePort` for each of its ports, in one family.

    ports_of(service, 4)     [ServicePort(default/web:http, 10.96.4.7, 80, …)]

Services that are not proxied have none: headless ones, those of type ExternalName, those without an
address of the family, and those labelled for another proxy. A name or an address that no API server
lets pass is a ValueError: what is read here becomes part of rules. So is a Service with more ports
times addresses than ELEMENTS_MAX: each is an element of the rules of every node.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, Literal, NamedTuple, TypeAlias

from kvstack.apimachinery.objects.json_object import Object

Family: TypeAlias = Literal[4, 6]

PROXY_NAME: Final = "service.kubernetes.io/service-proxy-name"
"""The label of a Service that another proxy serves."""
AFFINITY_S: Final = 10_800
ELEMENTS_MAX: Final = 10_000
"""Addresses of one Service, times its ports; and ranges of sources."""
FAMILIES: Final[dict[Family, str]] = {4: "IPv4", 6: "IPv6"}

_LOCAL: Final = "Local"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,252}[a-z0-9])?")
_PROTOCOLS: Final = frozenset(("TCP", "UDP", "SCTP"))
"""Those that rules are written for; one that the schema gains is not among them."""
_PORT_MAX: Final = 65_535


class PortName(NamedTuple):
    """Names a port of a Service in the whole cluster."""

    namespace: str
    service: str
    port: str
    """Empty: it has no name."""
    protocol: str

    @property
    def text(self) -> str:
        """As events, comments and logs have it: `default/web:http`."""
        name = f"{self.namespace}/{self.service}"
        return f"{name}:{self.port}" if self.port else name


@dataclass(frozen=True, slots=True)
class ServicePort:
    """A port of a Service, and who may reach it where."""

    name: PortName
    cluster_ip: str
    port: int
    node_port: int = 0
    """0: none."""
    affinity_s: int = 0
    """How long a client stays with its endpoint after its last connection; 0: not at all."""
    external_ips: tuple[str, ...] = ()
    balancer_ips: tuple[str, ...] = ()
    """Ingress addresses of a load balancer whose packets arrive as they are."""
    source_ranges: tuple[str, ...] = ()
    """From where the load balancer's addresses may be reached; empty: from everywhere."""
    is_internal_local: bool = False
    is_external_local: bool = False
    health_check_port: int = 0
    since: str = ""
    """When its Service was created."""

    @property
    def protocol(self) -> str:
        """As rules have it: tcp, udp or sctp."""
        return self.name.protocol.lower()

    @property
    def is_external(self) -> bool:
        """Whether it may be reached by more than its cluster IP."""
        return bool(self.node_port or self.external_ips or self.balancer_ips)

    @property
    def uses_cluster(self) -> bool:
        """Whether some of its traffic goes to endpoints on any node."""
        return not self.is_internal_local or self.is_external

    @property
    def uses_local(self) -> bool:
        """Whether some of its traffic goes to endpoints on this node alone."""
        return self.is_internal_local or (self.is_external_local and self.is_external)


def is_proxied(service: Object) -> bool:
    """Whether the proxy has to do with a Service at all."""
    spec = service.get("spec") or {}
    labels = service["metadata"].get("labels") or {}
    return (
        PROXY_NAME not in labels
        and spec.get("type") != "ExternalName"
        and spec.get("clusterIP") not in (None, "", "None")
    )


def ports_of(service: Object, family: Family) -> tuple[ServicePort, ...]:
    """Return the ports that are served in a family; raises ValueError."""
    if not is_proxied(service):
        return ()
    spec, meta = service["spec"], service["metadata"]
    cluster_ips = of_family(spec.get("clusterIPs") or [spec["clusterIP"]], family)
    if not cluster_ips:
        return ()
    external_ips = tuple(of_family(spec.get("externalIPs") or (), family))
    balancer_ips = _balancer_ips(service, family)
    _check_size(spec, 1 + len(external_ips) + len(balancer_ips))
    kind = spec.get("type", "ClusterIP")
    is_local = spec.get("externalTrafficPolicy") == _LOCAL and (
        kind in ("LoadBalancer", "NodePort") or bool(external_ips)
    )
    has_check = kind == "LoadBalancer" and is_local
    return tuple(
        ServicePort(
            _port_name(meta, port),
            cluster_ips[0],
            _number(port["port"]),
            _number(port.get("nodePort") or 0),
            _affinity_s(spec),
            external_ips,
            balancer_ips,
            _ranges(spec, family),
            spec.get("internalTrafficPolicy") == _LOCAL,
            is_local,
            _number(spec.get("healthCheckNodePort") or 0) if has_check else 0,
            meta.get("creationTimestamp") or "",
        )
        for port in spec.get("ports") or ()
    )


def of_family(addresses: Iterable[str], family: Family) -> list[str]:
    """Return the addresses of a family, in their shortest form; raises ValueError."""
    parsed = [address_of(each) for each in addresses if each != "None"]
    return [str(each) for each in parsed if each.version == family]


def address_of(text: str) -> IPv4Address | IPv6Address:
    """Return an address without a zone; raises ValueError.

    A zone may be any text, and would be part of the address in rules.
    """
    if "%" in text:
        raise ValueError(f"{text[:64]!r} is an address with a zone")
    return ip_address(text)


def checked_name(text: str) -> str:
    """Return a name that may stand in rules; raises ValueError."""
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text[:64]!r} is no name of an object")
    return text


def _check_size(spec: Object, addresses: int) -> None:
    ports, ranges = len(spec.get("ports") or ()), len(spec.get("loadBalancerSourceRanges") or ())
    if ports * addresses > ELEMENTS_MAX:
        raise ValueError(f"{ports} ports at {addresses} addresses: above {ELEMENTS_MAX} in all")
    if ranges > ELEMENTS_MAX:
        raise ValueError(f"{ranges} ranges of sources: above {ELEMENTS_MAX}")


def _port_name(meta: Object, port: Object) -> PortName:
    protocol = port.get("protocol") or "TCP"
    if protocol not in _PROTOCOLS:
        raise ValueError(f"{protocol[:64]!r}: one of {', '.join(sorted(_PROTOCOLS))}")
    name = port.get("name") or ""
    return PortName(
        checked_name(meta["namespace"]),
        checked_name(meta["name"]),
        checked_name(name) if name else "",
        protocol,
    )


def _number(port: object) -> int:
    if not isinstance(port, int) or not 0 <= port <= _PORT_MAX:
        raise ValueError(f"port {port!r}: a number from 0 to {_PORT_MAX}")
    return port


def _affinity_s(spec: Object) -> int:
    if spec.get("sessionAffinity") != "ClientIP":
        return 0
    client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    return int(client.get("timeoutSeconds") or AFFINITY_S)


def _balancer_ips(service: Object, family: Family) -> tuple[str, ...]:
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    ingress = balancer.get("ingress") or ()
    whole = [each["ip"] for each in ingress if each.get("ip") and _keeps_address(each)]
    return tuple(of_family(whole, family))


def _keeps_address(ingress: Object) -> bool:
    """Whether packets arrive with the balancer's address (VIP), and not as to a node (Proxy)."""
    return ingress.get("ipMode") in (None, "VIP")


def _ranges(spec: Object, family: Family) -> tuple[str, ...]:
    texts = [each.strip() for each in spec.get("loadBalancerSourceRanges") or ()]
    ranges = [ip_network(each, strict=False) for each in texts]
    own = [each for each in ranges if each.version == family]
    if any(each.prefixlen == 0 for each in own):
        return ()
    return tuple(sorted({str(each) for each in own}))
