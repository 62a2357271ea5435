"""The flags of `kvstack dns`, one row a line."""

from typing import Final

from kvstack.agents.dns.cluster import INSECURE
from kvstack.agents.process.flag_rows import (
    CLIENT,
)
from kvstack.component.flags.component_flags import SHORT
from kvstack.component.flags.flag_table import (
    BOOL,
    INT,
    LIST,
    LIVE,
    TEXT,
    FlagTable,
    flag_group,
)

PRIVATE: Final = (
    "127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,169.254.0.0/16,"
    "::1/128,fc00::/7,fe80::/10"
)
"""Addresses that nobody has from the outside."""

TABLE: Final = FlagTable(
    (
        *flag_group(
            "Serving",
            ("bind-addresses", LIST, "127.0.0.1", LIVE, "where queries are answered; never all addresses"),
            ("port", INT, "53", LIVE, "of UDP and TCP; 0: any"),
            ("client-ranges", LIST, PRIVATE, LIVE, "who gets answers; nodes and their pods always do"),
            ("client-queries-per-second", INT, "5000", LIVE, "of one client; more are not answered"),
            ("health-address", TEXT, "127.0.0.1:8080", LIVE, "of /health; none: no page"),
            ("ready-address", TEXT, "127.0.0.1:8181", LIVE, "of /ready; none: no page"),
            ("metrics-address", TEXT, "127.0.0.1:9153", LIVE, "of /metrics; none: no page"),
        ),
        *flag_group(
            "Names",
            ("cluster-domain", TEXT, "cluster.local", LIVE, "of all Services and pods"),
            ("ttl", INT, "30", LIVE, "seconds that clients may keep an answer"),
            ("pods", TEXT, INSECURE, LIVE, "names made of addresses: insecure (any), verified (of pods that are) or disabled"),
            ("autopath", BOOL, "false", LIVE, "walk the search paths of pods here, so that names of others are one query"),
            ("endpoint-pod-names", BOOL, "false", LIVE, "name endpoints without hostname by their pods, not by their addresses"),
        ),
        *flag_group(
            "Forwarding",
            ("forward", LIST, "", LIVE, "addresses that are asked about other names; none: nobody; default: --resolv-conf"),
            ("resolv-conf", TEXT, "/etc/resolv.conf", LIVE, "file that names them, read again when it changes"),
            ("stub-domains", LIST, "", LIVE, "DOMAIN=ADDRESS: who is asked about a domain; a domain may be given several times"),
            ("forward-max", INT, "500", LIVE, "questions that wait at once"),
            ("cache-ttl", INT, "3600", LIVE, "seconds that an answer of others is kept at most"),
            ("cache-denial-ttl", INT, "1800", LIVE, "seconds that it is kept that there is none"),
        ),
        *CLIENT,
        *flag_group(
            "Global",
            ("help", BOOL, "false", LIVE, "show this text"),
            ("v", INT, "0", LIVE, "4 and more: debug"),
        ),
    ),
    SHORT,
)  # fmt: skip
