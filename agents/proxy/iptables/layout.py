"""What the tables of a family have whatever the Services are: chains, and jumps that lead to them.

    layout = Layout(RuleSettings(4, local=LocalTraffic(cidrs=("10.244.0.0/16",))))
    layout.chains["nat"], layout.jumps

Names and rules are kube-proxy's. A rule is the text that follows `-A CHAIN`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kvstack.agents.proxy.rule_settings import RuleSettings
from kvstack.agents.proxy.services import Family

FILTER: Final = "filter"
NAT: Final = "nat"
MANGLE: Final = "mangle"
SERVICES: Final = "KUBE-SERVICES"
EXTERNAL_SERVICES: Final = "KUBE-EXTERNAL-SERVICES"
NODE_PORTS: Final = "KUBE-NODEPORTS"
PROXY_FIREWALL: Final = "KUBE-PROXY-FIREWALL"
FORWARD: Final = "KUBE-FORWARD"
POSTROUTING: Final = "KUBE-POSTROUTING"
MARK: Final = "KUBE-MARK-MASQ"
CANARY: Final = "KUBE-PROXY-CANARY"
LOOPBACK_FIREWALL: Final = "KUBE-FIREWALL"
"""A chain that kubelets have, too: it is never taken away."""

_NEW: Final = "-m conntrack --ctstate NEW"


class Jump(NamedTuple):
    """A rule of a chain of the system that leads to one of ours."""

    table: str
    chain: str
    rule: str

    @property
    def target(self) -> str:
        """Where it leads."""
        return self.rule.rpartition(" ")[2]


@dataclass(frozen=True, slots=True)
class Layout:
    """The fixed part of the tables."""

    settings: RuleSettings

    @property
    def family(self) -> Family:
        """Of its addresses."""
        return self.settings.family

    @property
    def guards_loopback(self) -> bool:
        """Whether the kernel routes loopback addresses, from which neighbours have to be kept."""
        return self.family == 4 and self.settings.serves_loopback

    @property
    def from_pods(self) -> str:
        """The match of what pods of this node send; empty: unknown."""
        return self._source("")

    @property
    def from_others(self) -> str:
        """The match of what others send; empty: unknown."""
        return self._source("! ")

    @property
    def jumps(self) -> tuple[Jump, ...]:
        """The jumps, in the order in which each is put before what there is."""
        external = f"{_NEW} {comment('kubernetes externally-visible service portals')}"
        portals = comment("kubernetes service portals")
        balancers = f"{_NEW} {comment('kubernetes load balancer firewall')}"
        found = [
            Jump(FILTER, "INPUT", f"{external} -j {EXTERNAL_SERVICES}"),
            Jump(FILTER, "FORWARD", f"{external} -j {EXTERNAL_SERVICES}"),
            Jump(
                FILTER,
                "INPUT",
                f"{comment('kubernetes health check service ports')} -j {NODE_PORTS}",
            ),
            Jump(FILTER, "FORWARD", f"{_NEW} {portals} -j {SERVICES}"),
            Jump(FILTER, "OUTPUT", f"{_NEW} {portals} -j {SERVICES}"),
            Jump(FILTER, "FORWARD", f"{comment('kubernetes forwarding rules')} -j {FORWARD}"),
            Jump(FILTER, "INPUT", f"{balancers} -j {PROXY_FIREWALL}"),
            Jump(FILTER, "OUTPUT", f"{balancers} -j {PROXY_FIREWALL}"),
            Jump(FILTER, "FORWARD", f"{balancers} -j {PROXY_FIREWALL}"),
            Jump(NAT, "OUTPUT", f"{portals} -j {SERVICES}"),
            Jump(NAT, "PREROUTING", f"{portals} -j {SERVICES}"),
            Jump(
                NAT,
                "POSTROUTING",
                f"{comment('kubernetes postrouting rules')} -j {POSTROUTING}",
            ),
        ]
        if self.guards_loopback:
            found += (
                Jump(FILTER, "INPUT", f"-j {LOOPBACK_FIREWALL}"),
                Jump(FILTER, "OUTPUT", f"-j {LOOPBACK_FIREWALL}"),
            )
        return tuple(found)

    @property
    def chains(self) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """Table → chain → its rules, which come after those of ports."""
        return {
            FILTER: {
                SERVICES: (),
                EXTERNAL_SERVICES: (),
                NODE_PORTS: (),
                PROXY_FIREWALL: (),
                FORWARD: self._forwarding,
                CANARY: (),
                **({LOOPBACK_FIREWALL: self._loopback} if self.guards_loopback else {}),
            },
            NAT: {
                SERVICES: self._to_node_ports,
                NODE_PORTS: (),
                POSTROUTING: self._leaving,
                MARK: (f"-j MARK --or-mark {self._mark}",),
                CANARY: (),
            },
            MANGLE: {CANARY: ()},
        }

    def _source(self, negation: str) -> str:
        local = self.settings.local
        ranges = local.of(self.family)
        if ranges:
            return f"{negation}-s {ranges[0]}"
        interface = local.bridge or (f"{local.interface_prefix}+" if local.interface_prefix else "")
        return f"{negation}-i {interface}" if interface else ""

    @property
    def _mark(self) -> str:
        return f"{self.settings.mark:#08x}"

    @property
    def _forwarding(self) -> tuple[str, ...]:
        marked = f"-m mark --mark {self._mark}/{self._mark}"
        invalid = ("-m conntrack --ctstate INVALID -j DROP",)
        return (
            *(invalid if self.settings.drops_invalid else ()),
            f"{comment('kubernetes forwarding rules')} {marked} -j ACCEPT",
            f"{comment('kubernetes forwarding conntrack rule')}"
            " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        )

    @property
    def _leaving(self) -> tuple[str, ...]:
        return (
            f"-m mark ! --mark {self._mark}/{self._mark} -j RETURN",
            f"-j MARK --xor-mark {self._mark}",
            f"{comment('kubernetes service traffic requiring SNAT')} -j MASQUERADE --random-fully",
        )

    @property
    def _loopback(self) -> tuple[str, ...]:
        return (
            f"{comment('block incoming localnet connections')} -d 127.0.0.0/8 ! -s 127.0.0.0/8"
            " -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
        )

    @property
    def _to_node_ports(self) -> tuple[str, ...]:
        about = comment(
            "kubernetes service nodeports; NOTE: this must be the last rule in this chain"
        )
        return tuple(f"{about} {each} -j {NODE_PORTS}" for each in self.node_port_addresses)

    @property
    def node_port_addresses(self) -> tuple[str, ...]:
        """The matches of packets to addresses on which node ports are served."""
        if self.settings.node_ips is not None:
            return tuple(f"-d {each}" for each in self.settings.node_ips)
        if self.guards_loopback:
            return ("-m addrtype --dst-type LOCAL",)
        loopback = "127.0.0.0/8" if self.family == 4 else "::1/128"
        return (f"-m addrtype --dst-type LOCAL ! -d {loopback}",)


def comment(text: str) -> str:
    """Return the match that every packet has and that tells readers what a rule is for."""
    return f'-m comment --comment "{text}"'
