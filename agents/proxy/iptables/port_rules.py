"""What one port of a Service adds to the tables: chains of its own, and rules of shared chains.

    rules_of(served, layout)     PortRules(chains={"KUBE-SVC-…": (…)}, claims={…})

All chains of a port are in the table `nat`. A rule of a shared chain is claimed by what it matches:
of several ports with the same address the first by name has it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kvstack.agents.proxy.choice import Served, Verdict
from kvstack.agents.proxy.endpoints import Endpoint
from kvstack.agents.proxy.iptables import names
from kvstack.agents.proxy.iptables.layout import (
    EXTERNAL_SERVICES,
    FILTER,
    MARK,
    NAT,
    NODE_PORTS,
    PROXY_FIREWALL,
    SERVICES,
    Layout,
    comment,
)

_COMMENT_CHARACTERS_MAX: Final = 255
"""What the kernel takes; a name of a Service and its namespace have 127 at most."""
_REFUSALS: Final = {
    Verdict.REJECT: ("has no endpoints", "REJECT"),
    Verdict.DROP: ("has no local endpoints", "DROP"),
}


class Claim(NamedTuple):
    """What a rule of a shared chain matches."""

    table: str
    chain: str
    match: str


class Answer(NamedTuple):
    """What becomes of packets that match."""

    about: str
    target: str
    since: str = ""
    """When the Service was created that it is for."""


@dataclass(frozen=True, slots=True)
class PortRules:
    """What one port adds."""

    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    claims: dict[Claim, Answer] = field(default_factory=dict)


def rules_of(served: Served, layout: Layout, *, has_comments: bool = True) -> PortRules:
    """Return what a port adds to the tables of a layout.

    has_comments: whether the rules that choose an endpoint say what they are for.
    """
    return _Writer(served, layout, has_comments=has_comments).write()


class _Writer:
    """Writes the rules of one port."""

    def __init__(self, served: Served, layout: Layout, *, has_comments: bool) -> None:
        self._served = served
        self._port = served.port
        self._layout = layout
        self._has_comments = has_comments
        self._name = served.port.name.text
        self._hash = names.service_hash(served.port.name)
        self._found = PortRules()

    def write(self) -> PortRules:
        served = self._served
        for prefix, endpoints in ((names.CLUSTER, served.cluster), (names.LOCAL, served.local)):
            if endpoints:
                self._found.chains[f"{prefix}{self._hash}"] = tuple(self._to(endpoints))
        self._serve_internal()
        if self._port.is_external:
            self._serve_external()
        for each in dict.fromkeys((*served.cluster, *served.local)):
            chain = names.endpoint_chain(self._port.name, each)
            self._found.chains[chain] = tuple(self._at_endpoint(each, chain))
        return self._found

    def _claim(self, table: str, chain: str, match: str, about: str, target: str) -> None:
        text = f"{self._name} {about}".strip()[:_COMMENT_CHARACTERS_MAX]
        self._found.claims[Claim(table, chain, match)] = Answer(text, target, self._port.since)

    def _chain(self, *, is_local: bool) -> str:
        return f"{names.LOCAL if is_local else names.CLUSTER}{self._hash}"

    @property
    def _protocol(self) -> str:
        return f"-m {self._port.protocol} -p {self._port.protocol}"

    def _at(self, address: str) -> str:
        return f"{self._protocol} -d {address} --dport {self._port.port}"

    def _serve_internal(self) -> None:
        served, port = self._served, self._port
        match = self._at(port.cluster_ip)
        if served.internal is not Verdict.ENDPOINTS:
            self._claim(FILTER, SERVICES, match, *_REFUSALS[served.internal])
            return
        chain = self._chain(is_local=port.is_internal_local)
        self._claim(NAT, SERVICES, match, "cluster IP", chain)
        others = "" if self._layout.settings.masquerades_all else self._layout.from_others
        if others or self._layout.settings.masquerades_all:
            rule = " ".join(filter(None, (self._about("cluster IP"), match, others, f"-j {MARK}")))
            self._found.chains[chain] = (rule, *self._found.chains[chain])

    def _serve_external(self) -> None:
        served, port, outside = self._served, self._port, self._layout.settings.outside
        if served.has_any:
            chain = f"{names.EXTERNAL}{self._hash}"
            self._found.chains[chain] = tuple(self._from_outside())
            for address in outside(port.external_ips):
                self._claim(NAT, SERVICES, self._at(address), "external IP", chain)
            self._lead_balancers(chain)
            if port.node_port:
                match = f"{self._protocol} --dport {port.node_port}"
                self._claim(NAT, NODE_PORTS, match, "", chain)
        if served.external is not Verdict.ENDPOINTS:
            refusal = _REFUSALS[served.external]
            for address in outside((*port.external_ips, *port.balancer_ips)):
                self._claim(FILTER, EXTERNAL_SERVICES, self._at(address), *refusal)
            if port.node_port:
                for address in self._layout.node_port_addresses:
                    match = f"{address} {self._protocol} --dport {port.node_port}"
                    self._claim(FILTER, EXTERNAL_SERVICES, match, *refusal)
        if port.health_check_port:
            match = f"-m tcp -p tcp --dport {port.health_check_port}"
            self._claim(FILTER, NODE_PORTS, match, "health check node port", "ACCEPT")

    def _lead_balancers(self, external: str) -> None:
        """Lead what comes to the addresses of the load balancer, if it is from an allowed source.

        What is not is not translated, and dropped where packets are filtered.
        """
        port, target = self._port, external
        if port.balancer_ips and port.source_ranges:
            target = f"{names.FIREWALL}{self._hash}"
            about = comment(f"{self._name} loadbalancer IP")
            dropped = comment(f"other traffic to {self._name} will be dropped by {PROXY_FIREWALL}")
            sources = self._served.allowed_sources(self._layout.settings.node_ip)
            self._found.chains[target] = (
                *(f"{about} -s {each} -j {external}" for each in sources),
                dropped,
            )
        for address in self._layout.settings.outside(port.balancer_ips):
            self._claim(NAT, SERVICES, self._at(address), "loadbalancer IP", target)
            if target != external:
                about = f"traffic not accepted by {target}"
                self._claim(FILTER, PROXY_FIREWALL, self._at(address), about, "DROP")

    def _from_outside(self) -> Iterator[str]:
        """Give the rules for traffic to external addresses and node ports."""
        layout, is_local = self._layout, self._port.is_external_local
        anywhere = self._chain(is_local=False)
        to = f"for {self._name} external destinations"
        if not is_local:
            yield f"{comment(f'masquerade traffic {to}')} -j {MARK}"
        elif self._served.has_bypass:
            if layout.from_pods:
                yield f"{comment(f'pod traffic {to}')} {layout.from_pods} -j {anywhere}"
            own = "-m addrtype --src-type LOCAL"
            yield f"{comment(f'masquerade LOCAL traffic {to}')} {own} -j {MARK}"
            yield f"{comment(f'route LOCAL traffic {to}')} {own} -j {anywhere}"
        if self._served.external is Verdict.ENDPOINTS:
            yield f"-j {self._chain(is_local=is_local)}"

    def _about(self, text: str) -> str:
        return comment(f"{self._name} {text}") if self._has_comments else ""

    def _to(self, endpoints: Sequence[Endpoint]) -> Iterator[str]:
        """Give the rules that choose one of several endpoints."""
        chains = [names.endpoint_chain(self._port.name, each) for each in endpoints]
        comments = [self._about(f"-> {each.text}") for each in endpoints]
        if self._port.affinity_s:
            for about, chain in zip(comments, chains, strict=True):
                known = (
                    f"-m recent --name {chain} --rcheck --seconds {self._port.affinity_s} --reap"
                )
                yield _joined(about, known, f"-j {chain}")
        for at, (about, chain) in enumerate(zip(comments, chains, strict=True)):
            left = len(chains) - at
            share = f"-m statistic --mode random --probability {1 / left:.10f}" if left > 1 else ""
            yield _joined(about, share, f"-j {chain}")

    def _at_endpoint(self, endpoint: Endpoint, chain: str) -> Iterator[str]:
        about = comment(self._name) if self._has_comments else ""
        yield _joined(about, f"-s {endpoint.ip}", f"-j {MARK}")
        kept = f"-m recent --name {chain} --set" if self._port.affinity_s else ""
        target = f"-j DNAT --to-destination {endpoint.text}"
        yield _joined(about, kept, self._protocol, target)


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))
