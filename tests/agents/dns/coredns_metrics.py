"""The metrics of CoreDNS 1.14.7 with the plugins of its usual Corefile: type and labels.

`tests/agents/standalone/test_coredns.py` compares them with what a CoreDNS serves.
"""

import re
from typing import Final, NamedTuple

ZONE: Final = ("server", "view", "zone")
ZONES: Final = ("server", "view", "zones")


class Metric(NamedTuple):
    """A metric."""

    kind: str
    labels: frozenset[str]


def _metric(kind: str, *labels: str) -> Metric:
    return Metric(kind, frozenset(labels))


METRICS: Final = {
    "coredns_autopath_success_total": _metric("counter", "server"),
    "coredns_build_info": _metric("gauge", "goversion", "revision", "version"),
    "coredns_cache_drops_total": _metric("counter", *ZONES),
    "coredns_cache_entries": _metric("gauge", "type", *ZONES),
    "coredns_cache_evictions_total": _metric("counter", "type", *ZONES),
    "coredns_cache_hits_total": _metric("counter", "type", *ZONES),
    "coredns_cache_misses_total": _metric("counter", *ZONES),
    "coredns_cache_prefetch_total": _metric("counter", *ZONES),
    "coredns_cache_requests_total": _metric("counter", *ZONES),
    "coredns_cache_served_stale_total": _metric("counter", *ZONES),
    "coredns_dns_do_requests_total": _metric("counter", *ZONE),
    "coredns_dns_https3_responses_total": _metric("counter", "server", "status"),
    "coredns_dns_https_responses_total": _metric("counter", "server", "status"),
    "coredns_dns_quic_responses_total": _metric("counter", "server", "status"),
    "coredns_dns_request_duration_seconds": _metric("histogram", *ZONE),
    "coredns_dns_request_size_bytes": _metric("histogram", "proto", *ZONE),
    "coredns_dns_requests_total": _metric("counter", "family", "proto", "type", *ZONE),
    "coredns_dns_response_size_bytes": _metric("histogram", "proto", *ZONE),
    "coredns_dns_responses_total": _metric("counter", "plugin", "rcode", *ZONE),
    "coredns_forward_healthcheck_broken_total": _metric("counter"),
    "coredns_forward_max_concurrent_rejects_total": _metric("counter"),
    "coredns_health_request_duration_seconds": _metric("histogram"),
    "coredns_health_request_failures_total": _metric("counter"),
    "coredns_hosts_entries": _metric("gauge"),
    "coredns_hosts_reload_timestamp_seconds": _metric("gauge"),
    "coredns_kubernetes_dns_programming_duration_seconds": _metric("histogram", "service_kind"),
    "coredns_kubernetes_rest_client_rate_limiter_duration_seconds": _metric(
        "histogram", "host", "verb"
    ),
    "coredns_kubernetes_rest_client_request_duration_seconds": _metric("histogram", "host", "verb"),
    "coredns_kubernetes_rest_client_requests_total": _metric("counter", "code", "host", "method"),
    "coredns_local_localhost_requests_total": _metric("counter"),
    "coredns_panics_total": _metric("counter"),
    "coredns_plugin_enabled": _metric("gauge", "name", *ZONE),
    "coredns_proxy_conn_cache_hits_total": _metric("counter", "proto", "proxy_name", "to"),
    "coredns_proxy_conn_cache_misses_total": _metric("counter", "proto", "proxy_name", "to"),
    "coredns_proxy_healthcheck_failures_total": _metric("counter", "proxy_name", "to"),
    "coredns_proxy_request_duration_seconds": _metric("histogram", "proxy_name", "rcode", "to"),
    "coredns_reload_failed_total": _metric("counter"),
    "coredns_reload_version_info": _metric("gauge", "hash", "value"),
}

_SAMPLE: Final = re.compile(r"(\w+)(?:\{(.*)\})? \S+")


def metrics_of(page: str) -> dict[str, Metric]:
    """Return CoreDNS' metrics of a page that has samples of them."""
    kinds = dict(re.findall(r"^# TYPE (coredns_\w+) (\w+)$", page, re.MULTILINE))
    labels: dict[str, frozenset[str]] = {}
    for line in page.splitlines():
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            continue
        name = sample[1]
        if name not in kinds:
            name = re.sub("_(bucket|sum|count)$", "", name)
        if name in kinds:
            labels[name] = frozenset(re.findall(r'(\w+)="', sample[2] or "")) - {"le"}
    return {name: Metric(kinds[name], labels[name]) for name in labels}
