"""Which endpoints the traffic to a port of a Service goes to, as seen from one node.

    served = choose(port, endpoints, Here(node="node-1", zone="eu-1a"))
    served.internal      Verdict.ENDPOINTS, or REJECT (there is none), or DROP (none on this node)

Of the endpoints that are ready, those that the hints give to this node or zone are taken, if every
one of them has a hint. Where none is ready, those that end and still answer are. A port whose
policy is Local has a second list, of endpoints on this node.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from kvstack.agents.proxy.endpoints import Endpoint
from kvstack.agents.proxy.services import ServicePort


class Here(NamedTuple):
    """The node that traffic passes."""

    node: str
    zone: str = ""


class Verdict(Enum):
    """What becomes of a connection."""

    ENDPOINTS = "endpoints"
    REJECT = "reject"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Served:
    """A port of a Service with the endpoints that were chosen."""

    port: ServicePort
    cluster: tuple[Endpoint, ...] = ()
    local: tuple[Endpoint, ...] = ()
    has_any: bool = False
    """Whether some node has an endpoint that may be used."""
    local_ready: int = 0
    """Addresses of this node that are ready: what a health check of a load balancer is told."""

    @property
    def internal(self) -> Verdict:
        """What becomes of traffic to the cluster IP."""
        return self._verdict(is_local=self.port.is_internal_local)

    @property
    def external(self) -> Verdict:
        """What becomes of traffic from elsewhere to node ports and external addresses."""
        return self._verdict(is_local=self.port.is_external_local)

    @property
    def internal_endpoints(self) -> tuple[Endpoint, ...]:
        """Those of traffic to the cluster IP."""
        return self.local if self.port.is_internal_local else self.cluster

    @property
    def external_endpoints(self) -> tuple[Endpoint, ...]:
        """Those of traffic from elsewhere."""
        return self.local if self.port.is_external_local else self.cluster

    @property
    def on_this_node(self) -> tuple[Endpoint, ...]:
        """Those that may meet themselves as clients."""
        return tuple(dict.fromkeys(e for e in (*self.cluster, *self.local) if e.is_local))

    @property
    def has_bypass(self) -> bool:
        """Whether pods and the node itself reach external addresses although their policy is Local.

        They reach endpoints on any node then.
        """
        return self.port.is_external_local and bool(self.cluster)

    def allowed_sources(self, node_ip: str) -> tuple[str, ...]:
        """Return from where a load balancer's addresses may be reached, if not from everywhere.

        These addresses are among them where the node's is: as such the node itself may arrive.
        """
        ranges = self.port.source_ranges
        if node_ip and any(ip_address(node_ip) in ip_network(each) for each in ranges):
            return (*ranges, *self.port.balancer_ips)
        return ranges

    def _verdict(self, *, is_local: bool) -> Verdict:
        if not self.has_any:
            return Verdict.REJECT
        return Verdict.DROP if is_local and not self.local else Verdict.ENDPOINTS


def choose(port: ServicePort, endpoints: Sequence[Endpoint], here: Here) -> Served:
    """Return what is served of a port; endpoints: all of them, sorted by their text."""
    ready = [each for each in endpoints if each.is_ready]
    draining = [each for each in endpoints if each.drains]
    cluster: tuple[Endpoint, ...] = ()
    local: tuple[Endpoint, ...] = ()
    if port.uses_cluster:
        cluster = tuple(_hinted(ready, here) or draining)
    if port.uses_local:
        own = [each for each in ready if each.is_local]
        local = tuple(own or [each for each in draining if each.is_local])
    has_any = bool(ready or draining) if port.uses_local else bool(cluster)
    local_ready = len({each.ip for each in ready if each.is_local})
    return Served(port, cluster, local, has_any, local_ready)


def _hinted(ready: list[Endpoint], here: Here) -> list[Endpoint]:
    """Return those that hints give to this node, else to its zone, else all.

    One without a hint means that whoever wrote them has not made up its mind: then none counts.
    """
    if ready and all(each.nodes for each in ready):
        found = [each for each in ready if here.node in each.nodes]
        if found:
            return found
    if here.zone and ready and all(each.zones for each in ready):
        found = [each for each in ready if here.zone in each.zones]
        if found:
            return found
    return ready
