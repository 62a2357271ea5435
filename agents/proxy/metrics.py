"""What a proxy counts, by kube-proxy's names."""

from collections.abc import Iterator, Mapping

from kvstack.agents.proxy.modes import IPTABLES, NFTABLES
from kvstack.agents.proxy.proxier import Proxier
from kvstack.agents.proxy.services import FAMILIES, Family
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples, labels
from kvstack.component.metrics.histograms import Histogram


def readings(proxier: Proxier, answers: Mapping[str, Mapping[int, int]]) -> list[FamilySamples]:
    """Return what a proxy counts; answers: of the health pages, by path and code."""
    counts, health = proxier.counts, proxier.health
    every: dict[str, Histogram] = {}
    for kept in (counts.full, counts.partial):
        for family, one in kept.items():
            known = every.get(_family(family))
            every[_family(family)] = one if known is None else _sum(known, one)
    rows: list[FamilySamples] = [
        _row("sync_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds", every),
        _row("sync_full_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for"
             " full resyncs", {_family(f): each for f, each in counts.full.items()}),
        _row("sync_partial_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for"
             " partial resyncs", {_family(f): each for f, each in counts.partial.items()}),
        _row("sync_proxy_rules_last_timestamp_seconds", "The last time proxy rules were"
             " successfully synced", {_family(f): s for f, s in health.synced_s.items()}),
        _row("sync_proxy_rules_last_queued_timestamp_seconds", "The last time a sync of proxy"
             " rules was queued", {_family(f): s for f, s in health.queued_s.items()}),
        _row("sync_proxy_rules_service_changes_total", "Cumulative proxy rules Service changes",
             {"": counts.service_changes}),
        _row("sync_proxy_rules_endpoint_changes_total", "Cumulative proxy rules Endpoint changes",
             {"": counts.endpoint_changes}),
        _row("sync_proxy_rules_service_changes_pending", "Pending proxy rules Service changes",
             {"": counts.service_changes_pending}),
        _row("sync_proxy_rules_endpoint_changes_pending", "Pending proxy rules Endpoint changes",
             {"": counts.endpoint_changes_pending}),
        _without_local_endpoints(proxier),
    ]  # fmt: skip
    rows += _of_mode(proxier)
    rows += _of_flows(proxier)
    for path, codes in answers.items():
        name = path[1:]
        told = {labels(code=str(code)): count for code, count in sorted(codes.items())}
        rows.append(_row(f"proxy_{name}_total", f"Cumulative proxy {name} HTTP status", told))
    return rows


def _without_local_endpoints(proxier: Proxier) -> FamilySamples:
    values = {
        labels(ip_family=FAMILIES[family], traffic_policy=policy): count
        for family, both in proxier.without_local_endpoints().items()
        for policy, count in zip(("internal", "external"), both, strict=True)
    }
    name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total"
    text = "Number of services with a Local traffic policy and no endpoints"
    return name, FamilyKind.GAUGE, text, values


def _of_flows(proxier: Proxier) -> Iterator[FamilySamples]:
    """Give what is counted of flows of UDP, in modes that write rules."""
    of_families = {_family(f): b.flows for f, b in proxier.backends.items() if b.flows is not None}
    if of_families:
        name = "conntrack_reconciler_sync_duration_seconds"
        text = "ReconcileConntrackFlowsLatency latency in seconds"
        yield _row(name, text, {family: each.seconds for family, each in of_families.items()})
        name = "conntrack_reconciler_deleted_entries_total"
        text = "Cumulative conntrack flows deleted by conntrack reconciler"
        yield _row(name, text, {family: each.deleted for family, each in of_families.items()})


def _of_mode(proxier: Proxier) -> Iterator[FamilySamples]:
    """Give what is counted in the mode of the proxy alone."""
    counts = proxier.counts
    all_, partial = (
        {_family(f): n for f, n in each.items()}
        for each in (counts.failures, counts.partial_failures)
    )
    if proxier.mode == NFTABLES:
        every = {f: all_.get(f, 0) + partial.get(f, 0) for f in {**all_, **partial}}
        name = "sync_proxy_rules_nftables_sync_failures_total"
        yield _row(name, "Cumulative proxy nftables sync failures", every)
        left = {_family(f): backend.cleanup_failures for f, backend in proxier.backends.items()}
        name = "sync_proxy_rules_nftables_cleanup_failures_total"
        yield _row(name, "Cumulative proxy nftables cleanup failures", left)
    if proxier.mode == IPTABLES:
        name = "sync_proxy_rules_iptables_restore_failures_total"
        yield _row(name, "Cumulative proxy iptables restore failures", all_)
        name = "sync_proxy_rules_iptables_partial_restore_failures_total"
        yield _row(name, "Cumulative proxy iptables partial restore failures", partial)
        totals = {f: backend.rule_counts for f, backend in proxier.backends.items()}
        name = "kubeproxy_sync_proxy_rules_iptables_total"
        text = "Total number of iptables rules owned by kube-proxy"
        yield name, FamilyKind.GAUGE, text, _by_table(totals)
        last = {f: backend.last_rule_counts for f, backend in proxier.backends.items()}
        name = "kubeproxy_sync_proxy_rules_iptables_last"
        text = "Number of iptables rules written by kube-proxy in last sync"
        yield name, FamilyKind.GAUGE, text, _by_table(last)


def _by_table(counts: Mapping[Family, Mapping[str, int]]) -> dict[str, int]:
    return {
        labels(ip_family=FAMILIES[family], table=table): count
        for family, tables in counts.items()
        for table, count in tables.items()
    }


def _row(
    name: str, text: str, values: Mapping[str, int | float] | Mapping[str, Histogram]
) -> FamilySamples:
    kind = FamilyKind.GAUGE
    if name.endswith("_total"):
        kind = FamilyKind.COUNTER
    elif name.endswith("_duration_seconds"):
        kind = FamilyKind.HISTOGRAM
    return f"kubeproxy_{name}", kind, text, values


def _family(family: int) -> str:
    return labels(ip_family=FAMILIES[4 if family == 4 else 6])


def _sum(one: Histogram, other: Histogram) -> Histogram:
    found = one.copy()
    found.counts = [a + b for a, b in zip(one.counts, other.counts, strict=True)]
    found.total += other.total
    return found
