"""The pages of a proxy, at two addresses, for whoever reaches them: as kube-proxy's.

:10256   /healthz /livez                                 whether balancers are to send here
:10249   /metrics /proxyMode /healthz /configz           on loopback, unless the flags say else
"""

from collections.abc import Mapping
from typing import Final

import orjson

from kvstack.agents.proxy.proxier import Proxier
from kvstack.agents.proxy.services import FAMILIES
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.request import Request
from kvstack.component.metrics.exposition import (
    CONTENT_TYPE,
    FamilyKind,
    FamilySamples,
    labels,
    render,
)
from kvstack.component.metrics.histograms import Histogram
from kvstack.component.metrics.process_families import read_process

_SAFE: Final = ("X-Content-Type-Options", "nosniff")
_TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"), _SAFE)
_JSON: Final = (("Content-Type", "application/json"), _SAFE)


class HealthPages:
    """Answers /healthz and /livez."""

    def __init__(self, proxier: Proxier) -> None:
        """Answer for a proxy."""
        self._health = proxier.health
        self.counts: Final[dict[str, dict[int, int]]] = {"/healthz": {}, "/livez": {}}
        """Page → answers by code."""

    async def handle(self, request: Request, answer: Answer) -> None:
        """Answer one request."""
        path = request.target.partition("?")[0]
        counts = self.counts.get(path)
        if counts is None:
            answer.send(404, _TEXT, b"404 page not found\n")
            return
        code, body = self._health.report(asks_eligible=path == "/healthz")
        counts[code] = counts.get(code, 0) + 1
        answer.send(code, _JSON, body)


class MetricsPages:
    """Answers what operators ask."""

    def __init__(
        self, proxier: Proxier, health: HealthPages, configuration: Mapping[str, object]
    ) -> None:
        """configuration: what /configz shows."""
        self._proxier = proxier
        self._health = health
        self._configuration = configuration

    async def handle(self, request: Request, answer: Answer) -> None:
        """Answer one request."""
        path = request.target.partition("?")[0]
        if path == "/metrics":
            answer.send(200, (("Content-Type", CONTENT_TYPE),), self._metrics())
        elif path == "/proxyMode":
            answer.send(200, _TEXT, self._proxier.mode.encode())
        elif path == "/configz":
            body = orjson.dumps({"kubeproxy.config.k8s.io": self._configuration})
            answer.send(200, _JSON, body)
        elif path == "/healthz":
            answer.send(200, _TEXT, b"ok")
        else:
            answer.send(404, _TEXT, b"404 page not found\n")

    def _metrics(self) -> bytes:
        return render([*readings(self._proxier, self._health), *read_process()])


def readings(proxier: Proxier, pages: HealthPages) -> list[FamilySamples]:
    """Return what a proxy counts, by kube-proxy's names."""
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
        _row("sync_proxy_rules_nftables_sync_failures_total", "Cumulative proxy nftables sync"
             " failures", {_family(f): n for f, n in counts.failures.items()}),
    ]  # fmt: skip
    for path, codes in pages.counts.items():
        name = path[1:]
        told = {labels(code=str(code)): count for code, count in sorted(codes.items())}
        rows.append(_row(f"proxy_{name}_total", f"Cumulative proxy {name} HTTP status", told))
    return rows


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
