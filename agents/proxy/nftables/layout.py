"""What the table of a family has whatever the Services are: base chains, jumps, sets and maps.

    layout = Layout(RuleSettings(4, local=LocalTraffic(cidrs=("10.244.0.0/16",))))
    layout.base_chains, layout.chains, layout.sets

Names, types and priorities are kube-proxy's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kvstack.agents.proxy.nftables.rules import (
    FromInterface,
    FromRanges,
    Mark,
    Rule,
    endpoint_maps,
    ip,
    text_of,
)
from kvstack.agents.proxy.rule_settings import RuleSettings
from kvstack.agents.proxy.services import Family

CLUSTER_IPS: Final = "cluster-ips"
NODE_PORT_IPS: Final = "nodeport-ips"
HAIRPINS: Final = "hairpin-connections"
SERVICE_IPS: Final = "service-ips"
SERVICE_NODE_PORTS: Final = "service-nodeports"
NO_ENDPOINTS: Final = "no-endpoint-services"
NO_ENDPOINT_NODE_PORTS: Final = "no-endpoint-nodeports"
FIREWALL_IPS: Final = "firewall-ips"
REJECT: Final = "reject-chain"
CANARY: Final = "nat-prerouting"
"""A chain that is empty or gone if somebody has flushed the rules of the machine."""

_NEW: Final = "ct state new"


@dataclass(frozen=True, slots=True)
class Layout:
    """The fixed part of a table."""

    settings: RuleSettings

    @property
    def family(self) -> Family:
        """Of its addresses."""
        return self.settings.family

    @property
    def mark(self) -> str:
        """The bit of packets that leave with the node's address."""
        return f"{self.settings.mark:#010x}"

    @property
    def set_mark(self) -> Mark:
        """What gives a packet the bit."""
        return Mark(self.settings.mark)

    @property
    def from_pods(self) -> FromRanges | FromInterface | None:
        """The match of what pods of this node send; None: unknown."""
        local = self.settings.local
        if ranges := local.of(self.family):
            return FromRanges(ranges)
        interface = local.bridge or (f"{local.interface_prefix}*" if local.interface_prefix else "")
        return FromInterface(interface) if interface else None

    @property
    def base_chains(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        """Chain → its hook and its rules."""
        check, ips = f"{_NEW} jump service-endpoints-check", f"{_NEW} jump cluster-ips-check"
        ports = f"{_NEW} jump nodeport-endpoints-check"
        return {
            "filter-prerouting-pre-dnat": _filter(
                "prerouting", -110, f"{_NEW} jump firewall-check"
            ),
            "filter-output-pre-dnat": _filter("output", -110, f"{_NEW} jump firewall-check"),
            "filter-input": _filter("input", 0, ports, check),
            "filter-forward": _filter("forward", 0, check, ips),
            "filter-output": _filter("output", 0, check, ips),
            "nat-prerouting": _nat("prerouting", -100, "jump services"),
            "nat-output": _nat("output", -100, "jump services"),
            "nat-postrouting": _nat("postrouting", 100, "jump masquerading"),
        }

    @property
    def chains(self) -> Mapping[str, tuple[str, ...]]:
        """Chain → its rules."""
        x, where = ip(self.family), self._node_port_match
        target = f"{x} daddr . meta l4proto . th dport vmap"
        unallocated: tuple[str, ...] = ()
        if self.settings.service_ranges:
            unallocated = (
                f"{x} daddr {_set(self.settings.service_ranges)} drop"
                ' comment "Drop traffic to unallocated ClusterIPs"',
            )
        return {
            "services": (
                *self._masquerade_cluster_ips(),
                f"{target} @{SERVICE_IPS}",
                f"{self._local_match}{where} meta l4proto . th dport vmap @{SERVICE_NODE_PORTS}",
            ),
            "service-endpoints-check": (f"{target} @{NO_ENDPOINTS}",),
            "nodeport-endpoints-check": (
                f"{where} meta l4proto . th dport vmap @{NO_ENDPOINT_NODE_PORTS}",
            ),
            "cluster-ips-check": (
                f"{x} daddr @{CLUSTER_IPS} reject"
                ' comment "Reject traffic to invalid ports of ClusterIPs"',
                *unallocated,
            ),
            "firewall-check": (f"{target} @{FIREWALL_IPS}",),
            "masquerading": (
                f"mark and {self.mark} != 0 mark set mark xor {self.mark} masquerade fully-random",
                f"ct status dnat {x} saddr . {x} daddr . meta l4proto . th dport @{HAIRPINS}"
                " masquerade fully-random",
            ),
            REJECT: ("reject",),
        }

    @property
    def sets(self) -> Mapping[str, str]:
        """Set or map → its declaration."""
        a = "ipv4_addr" if self.family == 4 else "ipv6_addr"
        whole = f"map {{ type {a} . inet_proto . inet_service : verdict ; }}"
        by_port = "map { type inet_proto . inet_service : verdict ; }"
        found = {
            **endpoint_maps(self.family),
            CLUSTER_IPS: f"set {{ type {a} ; }}",
            HAIRPINS: f"set {{ type {a} . {a} . inet_proto . inet_service ; }}",
            SERVICE_IPS: whole,
            SERVICE_NODE_PORTS: by_port,
            NO_ENDPOINTS: whole,
            NO_ENDPOINT_NODE_PORTS: by_port,
            FIREWALL_IPS: whole,
        }
        if self.settings.node_ips is not None:
            found[NODE_PORT_IPS] = f"set {{ type {a} ; }}"
        return found

    @property
    def _local_match(self) -> str:
        return "" if self.settings.node_ips is not None else "fib daddr type local "

    @property
    def _node_port_match(self) -> str:
        x = ip(self.family)
        if self.settings.node_ips is not None:
            return f"{x} daddr @{NODE_PORT_IPS}"
        return f"{x} daddr != {'127.0.0.0/8' if self.family == 4 else '::1'}"

    def _masquerade_cluster_ips(self) -> tuple[str, ...]:
        to = f"{ip(self.family)} daddr @{CLUSTER_IPS}"
        if self.settings.masquerades_all:
            all_of_it = Rule((self.set_mark,), "masquerade all clusterIP traffic")
            return (f"{to} {text_of(all_of_it, self.family)}",)
        if self.from_pods is None:
            return ()
        comment = "masquerade clusterIP traffic from outside cluster"
        rule = Rule((replace(self.from_pods, is_not=True), self.set_mark), comment)
        return (f"{to} {text_of(rule, self.family)}",)


def _filter(hook: str, priority: int, *rules: str) -> tuple[str, tuple[str, ...]]:
    return f"type filter hook {hook} priority {priority} ;", rules


def _nat(hook: str, priority: int, *rules: str) -> tuple[str, tuple[str, ...]]:
    return f"type nat hook {hook} priority {priority} ;", rules


def _set(members: tuple[str, ...]) -> str:
    return f"{{ {', '.join(members)} }}"
