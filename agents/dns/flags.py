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
"""Addresses that are never those of clients outside."""

TABLE: Final = FlagTable(
    (
        *flag_group(
            "Serving",
            ("bind-addresses", LIST, "127.0.0.1", LIVE, "addresses to listen on; auto: the one by which the API server is reached; wildcard addresses are refused"),
            ("port", INT, "53", LIVE, "port for UDP and TCP; 0: any free one"),
            ("client-ranges", LIST, PRIVATE, LIVE, "ranges of clients that are answered; nodes and pods always are"),
            ("client-queries-per-second", INT, "5000", LIVE, "maximum rate of one client; more queries are dropped"),
            ("health-address", TEXT, "127.0.0.1:8080", LIVE, "address of /health; none: not served"),
            ("ready-address", TEXT, "127.0.0.1:8181", LIVE, "address of /ready; none: not served"),
            ("metrics-address", TEXT, "127.0.0.1:9153", LIVE, "address of /metrics; none: not served"),
        ),
        *flag_group(
            "Service",
            ("cluster-dns", TEXT, "", LIVE, "cluster IP of the Service kube-system/kube-dns, which is made if it does not exist and leads to this server; empty: no object is written"),
            ("server-name", TEXT, "", LIVE, "name of this server, which its EndpointSlice bears; default: host name"),
        ),
        *flag_group(
            "Names",
            ("cluster-domain", TEXT, "cluster.local", LIVE, "domain of Services and pods"),
            ("ttl", INT, "30", LIVE, "TTL of answers in seconds"),
            ("pods", TEXT, INSECURE, LIVE, "names of pod addresses: insecure (any address), verified (of existing pods) or disabled"),
            ("autopath", BOOL, "false", LIVE, "walk the search path of a pod at its first query"),
            ("endpoint-pod-names", BOOL, "false", LIVE, "name endpoints without hostname after their pods, not their addresses"),
        ),
        *flag_group(
            "Forwarding",
            ("forward", LIST, "", LIVE, "resolvers for other names; none: no forwarding; default: those of --resolv-conf"),
            ("resolv-conf", TEXT, "/etc/resolv.conf", LIVE, "file with the resolvers; read again when it changes"),
            ("stub-domains", LIST, "", LIVE, "DOMAIN=ADDRESS: resolver of a domain; may be repeated"),
            ("forward-max", INT, "500", LIVE, "maximum number of concurrent forwarded queries"),
            ("cache-ttl", INT, "3600", LIVE, "maximum seconds for which a forwarded answer is cached"),
            ("cache-denial-ttl", INT, "1800", LIVE, "maximum seconds for which a negative answer is cached"),
        ),
        *CLIENT,
        *flag_group(
            "Global",
            ("help", BOOL, "false", LIVE, "show this text"),
            ("v", INT, "0", LIVE, "verbosity of the log: 4 and more shows debug lines"),
        ),
    ),
    SHORT,
)  # fmt: skip
