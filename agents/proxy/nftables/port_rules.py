"""What one port of a Service adds to the table: chains of its own, elements of maps and sets.

    rules_of(served, layout)     PortRules(chains={"service-…": (…)}, elements={…}, sets={…})

A chain of one endpoint jumps nowhere: it translates. With session affinity each endpoint has a
chain and a set of the clients that are to come back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
)
from kvstack.agents.proxy.nftables.names import endpoint_base, service_base
from kvstack.agents.proxy.nftables.rules import (
    Drop,
    FromClientOf,
    FromRanges,
    FromThisNode,
    Goto,
    GotoOneOf,
    Remember,
    Rule,
    Target,
    To,
    ToOneOf,
    endpoint_map,
)
from kvstack.agents.proxy.nftables.transaction import ClientSet, Element, Key, Value

_COMMENT_BYTES_MAX = 128


@dataclass(frozen=True, slots=True)
class PortRules:
    """What one port adds."""

    chains: dict[str, tuple[Rule, ...]] = field(default_factory=dict)
    elements: dict[Element, Value] = field(default_factory=dict)
    sets: dict[str, ClientSet] = field(default_factory=dict)


def rules_of(served: Served, layout: Layout) -> PortRules:
    """Return what a port adds to the table of a layout."""
    return _Writer(served, layout).write()


class _Writer:
    """Writes the rules of one port."""

    def __init__(self, served: Served, layout: Layout) -> None:
        self._served = served
        self._port = served.port
        self._layout = layout
        self._base = service_base(served.port.name)
        self._found = PortRules()

    def write(self) -> PortRules:
        port, served = self._port, self._served
        for prefix, endpoints in (("service", served.cluster), ("local", served.local)):
            if endpoints:
                chain = f"{prefix}-{self._base}"
                self._found.chains[chain] = self._to(endpoints, endpoint_map(port.protocol, chain))
        if port.affinity_s:
            self._keep_clients()
        self._add(CLUSTER_IPS, (port.cluster_ip,))
        self._serve_internal()
        if port.is_external:
            self._serve_external()
        for each in served.on_this_node:
            self._add(HAIRPINS, (each.ip, each.ip, port.protocol, each.port))
        return self._found

    def _add(self, container: str, key: Key, to: Goto | Drop | None = None) -> None:
        comment = ""
        if container in (NO_ENDPOINTS, NO_ENDPOINT_NODE_PORTS):
            comment = self._port.name.text[:_COMMENT_BYTES_MAX]
        since = self._port.since if to is not None else ""
        self._found.elements[Element(container, key)] = Value(to, comment, since)

    def _at(self, address: str) -> Key:
        return (address, self._port.protocol, self._port.port)

    @property
    def _node_port(self) -> Key:
        return (self._port.protocol, self._port.node_port)

    def _chain(self, *, is_local: bool) -> str:
        return f"{'local' if is_local else 'service'}-{self._base}"

    def _serve_internal(self) -> None:
        served, port = self._served, self._port
        where = self._at(port.cluster_ip)
        if served.internal is Verdict.ENDPOINTS:
            chain = self._chain(is_local=port.is_internal_local)
            self._add(SERVICE_IPS, where, Goto(chain))
        else:
            self._add(NO_ENDPOINTS, where, _refusal(served.internal))

    def _serve_external(self) -> None:
        served, port = self._served, self._port
        addresses = self._layout.settings.outside((*port.external_ips, *port.balancer_ips))
        if served.has_any:
            chain = f"external-{self._base}"
            self._found.chains[chain] = tuple(self._from_outside())
            for address in addresses:
                self._add(SERVICE_IPS, self._at(address), Goto(chain))
            if port.node_port:
                self._add(SERVICE_NODE_PORTS, self._node_port, Goto(chain))
            if port.balancer_ips and port.source_ranges:
                self._limit_sources()
        if served.external is not Verdict.ENDPOINTS:
            refusal = _refusal(served.external)
            for address in addresses:
                self._add(NO_ENDPOINTS, self._at(address), refusal)
            if port.node_port:
                self._add(NO_ENDPOINT_NODE_PORTS, self._node_port, refusal)

    def _from_outside(self) -> Iterator[Rule]:
        """Give the rules for traffic to external addresses and node ports."""
        layout, is_local = self._layout, self._port.is_external_local
        mark, anywhere = layout.set_mark, Goto(self._chain(is_local=False))
        if not is_local:
            yield Rule((mark,), "masquerade")
        elif self._served.has_bypass:
            if layout.from_pods is not None:
                yield Rule((layout.from_pods, anywhere), "short-circuit pod traffic")
            yield Rule((FromThisNode(), mark), "masquerade local traffic")
            yield Rule((FromThisNode(), anywhere), "short-circuit local traffic")
        if self._served.external is Verdict.ENDPOINTS:
            yield Rule((Goto(self._chain(is_local=is_local)),))

    def _limit_sources(self) -> None:
        """Let only some reach the addresses of the load balancer."""
        port = self._port
        sources = self._served.allowed_sources(self._layout.settings.node_ip)
        chain = f"firewall-{self._base}"
        self._found.chains[chain] = (Rule((FromRanges(sources, is_not=True), Drop())),)
        for address in self._layout.settings.outside(port.balancer_ips):
            self._add(FIREWALL_IPS, self._at(address), Goto(chain))

    def _to(self, endpoints: Sequence[Endpoint], map_: str) -> tuple[Rule, ...]:
        """Return the rules that choose one of several endpoints, which stand in a map."""
        if self._port.affinity_s:
            return tuple(self._as_before(endpoints))
        if len(endpoints) == 1:
            return (self._translation(endpoints[0]),)
        targets = tuple(Target(each.ip, each.port) for each in endpoints)
        return (Rule((ToOneOf(self._port.protocol, targets, map_),)),)

    def _translation(self, endpoint: Endpoint) -> Rule:
        return Rule((To(self._port.protocol, Target(endpoint.ip, endpoint.port)),))

    def _as_before(self, endpoints: Sequence[Endpoint]) -> Iterator[Rule]:
        names = [endpoint_base(self._port.name, each) for each in endpoints]
        for name in names:
            yield Rule((FromClientOf(f"affinity-{name}"), Goto(f"endpoint-{name}")))
        yield Rule((GotoOneOf(tuple(f"endpoint-{name}" for name in names)),))

    def _keep_clients(self) -> None:
        for each in dict.fromkeys((*self._served.cluster, *self._served.local)):
            name = endpoint_base(self._port.name, each)
            self._found.sets[f"affinity-{name}"] = ClientSet(self._port.affinity_s)
            remember = Rule((Remember(f"affinity-{name}"),))
            self._found.chains[f"endpoint-{name}"] = (remember, self._translation(each))


def _refusal(verdict: Verdict) -> Goto | Drop:
    return Goto(REJECT) if verdict is Verdict.REJECT else Drop()
