"""The flags of `kvstack metrics`, one row a line."""

from typing import Final

from kvstack.agents.process.flag_rows import (
    AUTHENTICATION,
    AUTHORIZATION,
    CLIENT,
    page_flags,
)
from kvstack.component.flags.component_flags import SHORT
from kvstack.component.flags.flag_table import (
    BOOL,
    DURATION,
    INT,
    LIST,
    LIVE,
    TEXT,
    FlagTable,
    flag_group,
)

TABLE: Final = FlagTable(
    (
        *flag_group(
            "Metrics",
            ("metric-resolution", DURATION, "15s", LIVE, "interval of scrapes of nodes and pods"),
            ("custom", TEXT, "", LIVE, "file with the rules of custom.metrics.k8s.io and external.metrics.k8s.io"),
        ),
        *flag_group(
            "Kubelets",
            ("kubelet-certificate-authority", TEXT, "", LIVE, "CA certificates that verify kubelets; default: those of the kubeconfig"),
            ("kubelet-client-certificate", TEXT, "", LIVE, "client certificate for kubelets; default: the kubeconfig's credentials"),
            ("kubelet-client-key", TEXT, "", LIVE, "key of the client certificate"),
            ("kubelet-insecure-tls", BOOL, "false", LIVE, "do not verify kubelets' certificates; an impostor then receives the token"),
            ("kubelet-preferred-address-types", LIST, "InternalIP,Hostname,InternalDNS,ExternalDNS,ExternalIP", LIVE, "types of node addresses in order of preference"),
            ("kubelet-port", INT, "0", LIVE, "port of all kubelets; 0: the port in each node's status"),
            ("kubelet-request-timeout", DURATION, "10s", LIVE, "timeout of a scrape of one node"),
        ),
        *CLIENT,
        *page_flags(10252),
        *AUTHENTICATION,
        *AUTHORIZATION,
        *flag_group(
            "Global",
            ("help", BOOL, "false", LIVE, "show this text"),
            ("v", INT, "0", LIVE, "verbosity of the log: 4 and more shows debug lines"),
        ),
    ),
    SHORT,
)  # fmt: skip
