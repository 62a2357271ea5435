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
            ("metric-resolution", DURATION, "15s", LIVE, "how often nodes and pods are read"),
            ("custom", TEXT, "", LIVE, "file that says which metrics custom.metrics.k8s.io and external.metrics.k8s.io have"),
        ),
        *flag_group(
            "Kubelets",
            ("kubelet-certificate-authority", TEXT, "", LIVE, "authorities of their certificates; default: those of the API server's"),
            ("kubelet-client-certificate", TEXT, "", LIVE, "certificate that they are shown; default: the kubeconfig's, or its token"),
            ("kubelet-client-key", TEXT, "", LIVE, "key of the certificate"),
            ("kubelet-insecure-tls", BOOL, "false", LIVE, "believe any kubelet; who poses as one then learns the token"),
            ("kubelet-preferred-address-types", LIST, "InternalIP,Hostname,InternalDNS,ExternalDNS,ExternalIP", LIVE, "of a node's addresses the first of these is used"),
            ("kubelet-port", INT, "0", LIVE, "of all; 0: as their nodes say"),
            ("kubelet-request-timeout", DURATION, "10s", LIVE, "for one node"),
        ),
        *CLIENT,
        *page_flags(10252),
        *AUTHENTICATION,
        *AUTHORIZATION,
        *flag_group(
            "Global",
            ("help", BOOL, "false", LIVE, "show this text"),
            ("v", INT, "0", LIVE, "4 and more: debug"),
        ),
    ),
    SHORT,
)  # fmt: skip
