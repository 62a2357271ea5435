"""The metrics of the DNS server, under the names that dashboards of CoreDNS read."""

from typing import Final

from dns.rcode import Rcode
from dns.rdatatype import RdataType

from kvstack.agents.dns.server import DnsServer
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples, labels
from kvstack.component.net.hosts import join_host_port
from kvstack.component.version import KUBERNETES_VERSION, VERSION

_ZONE: Final = "."
_PLUGINS: Final = ("kubernetes", "prometheus")
_FORWARDING_PLUGINS: Final = ("cache", "forward", "loop")
_SHOWN: Final = frozenset(
    ("A", "AAAA", "CNAME", "DNSKEY", "DS", "HTTPS", "MX", "NS", "NSEC", "PTR", "SOA", "SRV", "TXT")
)
"""Types with a counter of their own, so that queries for others do not grow the page."""


def dns_metrics(server: DnsServer, server_label: str) -> list[FamilySamples]:
    """Return the samples; server_label: where it listens, as dns://:53."""
    traffic = server.traffic
    of_server = {"server": server_label, "view": "", "zone": _ZONE}
    requests: dict[str, float] = {}
    for (protocol, family, kind), count in traffic.queries.items():
        key = labels(family=family, proto=protocol, server=server_label, type=_type(kind), view="",
                     zone=_ZONE)  # fmt: skip
        requests[key] = requests.get(key, 0) + count
    codes = {
        labels(plugin="", rcode=_code(code), **of_server): count
        for code, count in traffic.codes.items()
    }
    counter, histogram = FamilyKind.COUNTER, FamilyKind.HISTOGRAM
    own = labels(goversion="", revision=VERSION, version=KUBERNETES_VERSION)
    plugins = (*_PLUGINS, *(_FORWARDING_PLUGINS if server.forwarder is not None else ()))
    families: list[FamilySamples] = [
        ("coredns_build_info", FamilyKind.GAUGE, "Of this server; it is not CoreDNS.", {own: 1}),
        (
            "coredns_plugin_enabled",
            FamilyKind.GAUGE,
            "CoreDNS' plugins whose work this server does.",
            {labels(name=name, **of_server): 1 for name in plugins},
        ),
        ("coredns_dns_requests_total", counter, "Queries by protocol and type.", requests),
        ("coredns_dns_responses_total", counter, "Answers by code.", codes),
        (
            "coredns_dns_request_duration_seconds",
            histogram,
            "Time from a query to its answer; those of one wake-up share theirs.",
            {labels(**of_server): traffic.seconds.copy()},
        ),
    ]
    for name, text, sizes in (
        ("request", "Bytes of queries.", traffic.query_sizes),
        ("response", "Bytes of answers.", traffic.sizes),
    ):
        found = {labels(proto=each, **of_server): size.copy() for each, size in sizes.items()}
        families.append((f"coredns_dns_{name}_size_bytes", histogram, text, found))
    return [*families, *_own_work(server, server_label), *_forwarding(server, server_label)]


def _own_work(server: DnsServer, server_label: str) -> list[FamilySamples]:
    families: list[FamilySamples] = [
        (
            "coredns_panics_total",
            FamilyKind.COUNTER,
            "Queries at which this program failed.",
            server.faults.count,
        ),
        (
            "coredns_kubernetes_dns_programming_duration_seconds",
            FamilyKind.HISTOGRAM,
            "Time from a change of a Service's endpoints until its name has them.",
            {
                labels(service_kind=kind): seconds.copy()
                for kind, seconds in server.programming.seconds.items()
            },
        ),
    ]
    if server.responder.follows_paths:
        families.append(
            (
                "coredns_autopath_success_total",
                FamilyKind.COUNTER,
                "Queries whose search path was followed here.",
                {labels(server=server_label): server.responder.followed},
            )
        )
    return families


def _forwarding(server: DnsServer, server_label: str) -> list[FamilySamples]:
    forwarder = server.forwarder
    if forwarder is None:
        return []
    cache = forwarder.cache
    of_cache = {"server": server_label, "view": "", "zones": _ZONE}
    whole = labels(**of_cache)

    def by_kind(counts: dict[str, int]) -> dict[str, int]:
        return {
            labels(server=server_label, type=each, view="", zones=_ZONE): count
            for each, count in counts.items()
        }

    counter = FamilyKind.COUNTER
    return [
        (
            "coredns_cache_entries",
            FamilyKind.GAUGE,
            "Answers of others that are kept.",
            by_kind(cache.sizes),
        ),
        ("coredns_cache_hits_total", counter, "Queries that they answered.", by_kind(cache.hits)),
        ("coredns_cache_evictions_total", counter, "Answers that made room for others.",
         by_kind(cache.evictions)),
        ("coredns_cache_misses_total", counter, "Queries that they did not.",
         {whole: cache.misses}),
        ("coredns_cache_requests_total", counter, "Queries that looked there.",
         {whole: cache.misses + sum(cache.hits.values())}),
        ("coredns_forward_max_concurrent_rejects_total", counter,
         "Queries that were refused because too many waited.", forwarder.refused),
        ("coredns_forward_healthcheck_broken_total", counter,
         "Queries for which all resolvers had failed shortly before.", forwarder.without_health),
        ("coredns_proxy_request_duration_seconds", FamilyKind.HISTOGRAM,
         "Time that resolvers took for their answers.",
         {
             labels(proxy_name="forward", rcode=_code(code),
                    to=join_host_port(resolver.host, resolver.port)): seconds.copy()
             for (resolver, code), seconds in forwarder.seconds.items()
         }),
    ]  # fmt: skip


def _type(kind: bytes) -> str:
    if len(kind) != 2:
        return "other"
    name = RdataType.to_text(RdataType.make(int.from_bytes(kind, "big")))
    return name if name in _SHOWN else "other"


def _code(code: int) -> str:
    return Rcode.to_text(Rcode.make(code))
