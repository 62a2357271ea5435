"""What one port of a Service adds to the table: chains of its own, elements of maps and sets.

    rules_of(served, layout)     PortRules(chains={"service-…": (…)}, elements={…}, sets={…})

A chain of one endpoint jumps nowhere: it translates. With session affinity each endpoint has a
chain and a set of the clients that are to come back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvstack.agents.proxy.choice import Served, Verdict
from kvstack.agents.proxy.endpoints import Endpoint
from kvstack.agents.proxy.nftables.layout import (
    CLUSTER_IPS,
    FIREWALL_IPS,
    HAIRPINS,
    NO_ENDPOINT_NODE_PORTS,
    NO_ENDPOINTS,
    REJECT,
    SERVICE_IPS,
    SERVICE_NODE_PORTS,
    Layout,
    ip,
)
from kvstack.agents.proxy.nftables.names import endpoint_base, service_base

_COMMENT_BYTES_MAX = 128


class Element(NamedTuple):
    """An element of a set, or of a map."""

    container: str
    key: str


class Value(NamedTuple):
    """What an element leads to; empty: nothing, it is in a set."""

    verdict: str = ""
    comment: str = ""
    since: str = ""
    """When the Service was created that it leads to."""


@dataclass(frozen=True, slots=True)
class PortRules:
    """What one port adds."""

    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    elements: dict[Element, Value] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)
    """Name → declaration."""


def rules_of(served: Served, layout: Layout) -> PortRules:
    """Return what a port adds to the table of a layout."""
    return _Writer(served, layout).write()


class _Writer:
    """Writes the rules of one port."""

    def __init__(self, served: Served, layout: Layout) -> None:
        self._served = served
        self._port = served.port
        self._layout = layout
        self._x = ip(layout.family)
        self._base = service_base(served.port.name)
        self._found = PortRules()

    def write(self) -> PortRules:
        port, served = self._port, self._served
        for prefix, endpoints in (("service", served.cluster), ("local", served.local)):
            if endpoints:
                self._found.chains[f"{prefix}-{self._base}"] = self._to(endpoints)
        if port.affinity_s:
            self._keep_clients()
        self._add(CLUSTER_IPS, port.cluster_ip)
        self._serve_internal()
        if port.is_external:
            self._serve_external()
        for each in served.on_this_node:
            self._add(HAIRPINS, f"{each.ip} . {each.ip} . {port.protocol} . {each.port}")
        return self._found

    def _add(self, container: str, key: str, verdict: str = "") -> None:
        comment = ""
        if container in (NO_ENDPOINTS, NO_ENDPOINT_NODE_PORTS):
            comment = self._port.name.text[:_COMMENT_BYTES_MAX]
        since = self._port.since if verdict else ""
        self._found.elements[Element(container, key)] = Value(verdict, comment, since)

    def _at(self, address: str) -> str:
        return f"{address} . {self._port.protocol} . {self._port.port}"

    def _chain(self, *, is_local: bool) -> str:
        return f"{'local' if is_local else 'service'}-{self._base}"

    def _serve_internal(self) -> None:
        served, port = self._served, self._port
        where = self._at(port.cluster_ip)
        if served.internal is Verdict.ENDPOINTS:
            chain = self._chain(is_local=port.is_internal_local)
            self._add(SERVICE_IPS, where, f"goto {chain}")
        else:
            self._add(NO_ENDPOINTS, where, _refusal(served.internal))

    def _serve_external(self) -> None:
        served, port = self._served, self._port
        addresses = self._layout.settings.outside((*port.external_ips, *port.balancer_ips))
        if served.has_any:
            chain = f"external-{self._base}"
            self._found.chains[chain] = tuple(self._from_outside())
            for address in addresses:
                self._add(SERVICE_IPS, self._at(address), f"goto {chain}")
            if port.node_port:
                key = f"{port.protocol} . {port.node_port}"
                self._add(SERVICE_NODE_PORTS, key, f"goto {chain}")
            if port.balancer_ips and port.source_ranges:
                self._limit_sources()
        if served.external is not Verdict.ENDPOINTS:
            refusal = _refusal(served.external)
            for address in addresses:
                self._add(NO_ENDPOINTS, self._at(address), refusal)
            if port.node_port:
                key = f"{port.protocol} . {port.node_port}"
                self._add(NO_ENDPOINT_NODE_PORTS, key, refusal)

    def _from_outside(self) -> Iterator[str]:
        """Give the rules for traffic to external addresses and node ports."""
        layout, is_local = self._layout, self._port.is_external_local
        mark, anywhere = layout.set_mark, f"goto {self._chain(is_local=False)}"
        if not is_local:
            yield f'{mark} comment "masquerade"'
        elif self._served.has_bypass:
            if layout.from_pods:
                yield f'{layout.from_pods} {anywhere} comment "short-circuit pod traffic"'
            own = "fib saddr type local"
            yield f'{own} {mark} comment "masquerade local traffic"'
            yield f'{own} {anywhere} comment "short-circuit local traffic"'
        if self._served.external is Verdict.ENDPOINTS:
            yield f"goto {self._chain(is_local=is_local)}"

    def _limit_sources(self) -> None:
        """Let only some reach the addresses of the load balancer."""
        port = self._port
        sources = self._served.allowed_sources(self._layout.settings.node_ip)
        chain = f"firewall-{self._base}"
        self._found.chains[chain] = (f"{self._x} saddr != {{ {', '.join(sources)} }} drop",)
        for address in self._layout.settings.outside(port.balancer_ips):
            self._add(FIREWALL_IPS, self._at(address), f"goto {chain}")

    def _to(self, endpoints: Sequence[Endpoint]) -> tuple[str, ...]:
        """Return the rules that choose one of several endpoints."""
        if self._port.affinity_s:
            return tuple(self._as_before(endpoints))
        if len(endpoints) == 1:
            return (self._translation(endpoints[0]),)
        choices = ", ".join(f"{at} : {each.ip} . {each.port}" for at, each in enumerate(endpoints))
        return (
            f"meta l4proto {self._port.protocol} dnat {self._x} addr . port to"
            f" numgen random mod {len(endpoints)} map {{ {choices} }}",
        )

    def _translation(self, endpoint: Endpoint) -> str:
        return f"meta l4proto {self._port.protocol} dnat to {endpoint.text}"

    def _as_before(self, endpoints: Sequence[Endpoint]) -> Iterator[str]:
        names = [endpoint_base(self._port.name, each) for each in endpoints]
        for name in names:
            yield f"{self._x} saddr @affinity-{name} goto endpoint-{name}"
        choices = ", ".join(f"{at} : goto endpoint-{name}" for at, name in enumerate(names))
        yield f"numgen random mod {len(names)} vmap {{ {choices} }}"

    def _keep_clients(self) -> None:
        address = "ipv4_addr" if self._layout.family == 4 else "ipv6_addr"
        for each in dict.fromkeys((*self._served.cluster, *self._served.local)):
            name = endpoint_base(self._port.name, each)
            self._found.sets[f"affinity-{name}"] = (
                f"set {{ type {address} ; flags dynamic,timeout ;"
                f" timeout {self._port.affinity_s}s ; }}"
            )
            self._found.chains[f"endpoint-{name}"] = (
                f"update @affinity-{name} {{ {self._x} saddr }}",
                self._translation(each),
            )


def _refusal(verdict: Verdict) -> str:
    return f"goto {REJECT}" if verdict is Verdict.REJECT else "drop"
