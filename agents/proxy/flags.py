"""Every flag of kube-proxy 1.37: name, type, default, the field that it stands for, help."""

from typing import Any, Final

from kvstack.agents.process.flag_rows import CLIENT
from kvstack.agents.proxy.configuration import DEFAULTS, SECTIONS
from kvstack.component.flags.component_flags import GLOBAL, LOGS, SHORT
from kvstack.component.flags.flag_table import (
    BOOL,
    DURATION,
    FLOAT,
    IGNORED,
    INT,
    IP,
    LIST,
    LIVE,
    MAP,
    TEXT,
    FlagTable,
    Kind,
    flag_group,
)

RULES: Final = "*"
"""Stands for the section of each mode that writes rules."""
FIELDS: Final[dict[str, tuple[Kind, tuple[str, ...], str]]] = {
    "bind-address": (IP, ("bindAddress",), "the node's address, if it is no 0.0.0.0 or ::"),
    "bind-address-hard-fail": (BOOL, ("bindAddressHardFail",), "end if a page cannot be served"),
    "cluster-cidr": (TEXT, ("clusterCIDR",), "ranges of pods, whose address is kept"),
    "detect-local-mode": (TEXT, ("detectLocalMode",), "how pods are known: ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix"),
    "healthz-bind-address": (TEXT, ("healthzBindAddress",), "where /healthz and /livez are; empty: nowhere"),
    "hostname-override": (TEXT, ("hostnameOverride",), "name of the node"),
    "iptables-localhost-nodeports": (BOOL, ("iptables", "localhostNodePorts"), "serve node ports on 127.0.0.0/8, too, in mode iptables"),
    "masquerade-all": (BOOL, (RULES, "masqueradeAll"), "hide all clients of cluster IPs behind the node's address"),
    "iptables-masquerade-bit": (INT, (RULES, "masqueradeBit"), "bit of the mark of packets that get the node's address"),
    "iptables-sync-period": (DURATION, (RULES, "syncPeriod"), "longest time between two tries"),
    "iptables-min-sync-period": (DURATION, (RULES, "minSyncPeriod"), "shortest time between two writes"),
    "metrics-bind-address": (TEXT, ("metricsBindAddress",), "where /metrics, /proxyMode and /configz are; empty: nowhere"),
    "nodeport-addresses": (LIST, ("nodePortAddresses",), "where node ports are served: ranges, primary, localhost or all; empty: primary, in mode iptables all"),
    "pod-bridge-interface": (TEXT, ("detectLocal", "bridgeInterface"), "bridge of the pods"),
    "pod-interface-name-prefix": (TEXT, ("detectLocal", "interfaceNamePrefix"), "prefix of the names of pods' interfaces"),
    "proxy-mode": (TEXT, ("mode",), "nftables, iptables, userspace (node ports alone), or empty: the first that works here"),
}  # fmt: skip
"""Flag → its type, the field that it stands for, help."""
_OWN: Final = flag_group(
    "Proxy",
    ("config", TEXT, "", LIVE, "file with a KubeProxyConfiguration, which other flags change nothing of"),
    ("write-config-to", TEXT, "", LIVE, "write the configuration to this file, and end"),
    ("cleanup", BOOL, "false", LIVE, "take the proxy's rules away, and end"),
    ("init-only", BOOL, "false", LIVE, "do what needs more rights than the rest, which is nothing, and end"),
)  # fmt: skip
_IGNORED: Final = (
    ("config-sync-period", DURATION, "15m0s"),
    ("conntrack-max-per-core", INT, "32768"),
    ("conntrack-min", INT, "131072"),
    ("conntrack-tcp-be-liberal", BOOL, "false"),
    ("conntrack-tcp-timeout-close-wait", DURATION, "1h0m0s"),
    ("conntrack-tcp-timeout-established", DURATION, "24h0m0s"),
    ("conntrack-udp-timeout", DURATION, "0s"),
    ("conntrack-udp-timeout-stream", DURATION, "0s"),
    ("feature-gates", MAP, ""),
    ("healthz-port", INT, "10256"),
    ("ipvs-exclude-cidrs", LIST, ""),
    ("ipvs-min-sync-period", DURATION, "0s"),
    ("ipvs-scheduler", TEXT, ""),
    ("ipvs-strict-arp", BOOL, "false"),
    ("ipvs-sync-period", DURATION, "30s"),
    ("ipvs-tcp-timeout", DURATION, "0s"),
    ("ipvs-tcpfin-timeout", DURATION, "0s"),
    ("ipvs-udp-timeout", DURATION, "0s"),
    ("kube-api-burst", INT, "10"),
    ("kube-api-content-type", TEXT, "application/vnd.kubernetes.protobuf"),
    ("kube-api-qps", FLOAT, "5"),
    ("metrics-port", INT, "10249"),
    ("oom-score-adj", INT, "-999"),
    ("profiling", BOOL, "false"),
    ("show-hidden-metrics-for-version", TEXT, ""),
)


def paths_of(path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the fields of a path."""
    if path[0] != RULES:
        return [path]
    return [(section, *path[1:]) for section in SECTIONS]


def _default(path: tuple[str, ...]) -> str:
    found: Any = DEFAULTS
    for name in paths_of(path)[0]:
        found = found[name]
    if isinstance(found, bool):
        return str(found).lower()
    return ",".join(found) if isinstance(found, list) else str(found)


TABLE: Final = FlagTable(
    (
        *_OWN,
        *CLIENT,
        *flag_group(
            "Proxy",
            *(
                (name, kind, _default(path), LIVE, told)
                for name, (kind, path, told) in FIELDS.items()
            ),
        ),
        *flag_group(
            "Without effect",
            *(
                (name, kind, default, IGNORED, "")
                for name, kind, default in _IGNORED
            ),
        ),
        *LOGS,
        *GLOBAL,
    ),
    SHORT,
)  # fmt: skip
