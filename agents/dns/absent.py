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
        "metrics of what this server does not do or count: `coredns_reload_*`, `coredns_health_*`,"
        " `coredns_hosts_*`, `coredns_local_localhost_requests_total`,"
        " `coredns_dns_do_requests_total`, `coredns_dns_https_responses_total`,"
        " `coredns_dns_https3_responses_total`, `coredns_dns_quic_responses_total`,"
        " `coredns_cache_drops_total`, `coredns_cache_prefetch_total`,"
        " `coredns_cache_served_stale_total`, `coredns_proxy_conn_cache_*`,"
        " `coredns_proxy_healthcheck_failures_total`, `coredns_kubernetes_rest_client_*`",
        "the other metrics of its usual plugins are served, with CoreDNS's names and labels; it has"
        " no Corefile to read again, asks itself nothing, and opens a socket for each question",
    ),
    Absent(
        "answers to any client",
        "only clients of `--client-ranges`, nodes and their pods get answers",
    ),
)
