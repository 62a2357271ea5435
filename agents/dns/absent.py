"""Features of CoreDNS that this server lacks; listed in docs/differences.md."""

from typing import Final

from kvstack.agents.process.absent import Absent

ABSENT: Final = (
    Absent(
        "a Corefile, and its plugins (`rewrite`, `hosts`, `template`, `acl`, …)",
        "flags; CoreDNS itself can take over (docs/dns.md)",
    ),
    Absent(
        "`autopath` of pods with a `dnsConfig` of their own or the address of their node, of names"
        " without a dot, and with search domains of each node",
        "`--autopath` follows the search path of all other pods, with the search domains of its own"
        " machine; these clients query each name of their path themselves",
    ),
    Absent("DNS over TLS, HTTPS or QUIC, to clients and to resolvers", "UDP and TCP"),
    Absent(
        "`prefetch` and `serve_stale` of the cache",
        "an expired answer is queried again",
    ),
    Absent("more than 1000 records in one answer", "the first 1000 endpoints are returned"),
    Absent(
        "`coredns_kubernetes_dns_programming_duration_seconds`, `coredns_panics_total`,"
        " `coredns_forward_healthcheck_broken_total`, `coredns_reload_failed_total`,"
        " `coredns_health_request_duration_seconds`",
        "they are not served; the other metrics have CoreDNS's names",
    ),
    Absent(
        "answers to any client",
        "only clients of `--client-ranges`, nodes and their pods get answers",
    ),
)
