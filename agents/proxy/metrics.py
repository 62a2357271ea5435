"""What a proxy counts, by kube-proxy's names."""

from collections.abc import Iterator, Mapping

from kvstack.agents.proxy.modes import IPTABLES, NFTABLES
from kvstack.agents.proxy.proxier import Proxier
from kvstack.agents.proxy.services import FAMILIES
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
    ]  # fmt: skip
    rows += _of_mode(proxier)
    for path, codes in answers.items():
        name = path[1:]
        told = {labels(code=str(code)): count for code, count in sorted(codes.items())}
        rows.append(_row(f"proxy_{name}_total", f"Cumulative proxy {name} HTTP status", told))
    return rows


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
    if proxier.mode == IPTABLES:
        name = "sync_proxy_rules_iptables_restore_failures_total"
        yield _row(name, "Cumulative proxy iptables restore failures", all_)
        name = "sync_proxy_rules_iptables_partial_restore_failures_total"
        yield _row(name, "Cumulative proxy iptables partial restore failures", partial)
        rules = {
            labels(ip_family=FAMILIES[family], table=table): count
            for family, backend in proxier.backends.items()
            for table, count in backend.rule_counts.items()
        }
        name = "kubeproxy_sync_proxy_rules_iptables_total"
        yield name, FamilyKind.GAUGE, "Total number of iptables rules owned by kube-proxy", rules


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
