"""Counts and durations of requests, under upstream's names.

    apiserver_request_total{verb="LIST",resource="pods",scope="namespace",code="200",…}
    apiserver_request_duration_seconds_bucket{verb="LIST",…,le="0.05"}

Requests with equal labels share a series, and a route caches its series: counting costs a lookup
and two additions. What cannot be served here has no label of its own, so that clients cannot create
arbitrary series.
"""

from collections.abc import Container, Iterator
from typing import Final

from kvstack.apimachinery.schema.resource import APPLY_PATCH
from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.http.request_series import Labels, Series
from kvstack.apiserver.http.routing import Route
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples

_VERBS: Final = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
    "connect": "CONNECT",
    "proxy": "CONNECT",
}
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_TERMINATED: Final = frozenset((429, 504))
_EVICTION: Final = "eviction"


class RequestMetrics:
    """Counts requests; see `RequestObserver`."""

    def __init__(self, pages: Container[str]) -> None:
        """pages: the paths that may be labels."""
        self._pages: Final = pages
        self._series: dict[Labels, Series] = {}

    def ended(self, context: RequestContext, took_ns: int) -> None:
        """Count a request whose handler has returned."""
        route, reply = context.route, context.reply
        series = route.series
        if series is None:
            series = route.series = self._find(self._labels(route, reply))
        if route.verb == "patch" and reply.request.header("content-type") == APPLY_PATCH:
            series = self._find(series.labels._replace(verb="APPLY"))
        series.add(reply.code, took_ns, reply.size)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        series = list(self._series.values())
        yield (
            "apiserver_request_total",
            FamilyKind.COUNTER,
            "Counter of apiserver requests broken out for each verb, dry run value, group, version,"
            " resource, scope, component, and HTTP response code.",
            {
                each.labels.text(code=str(code)): count
                for each in series
                for code, count in each.codes.items()
            },
        )
        yield (
            "apiserver_request_terminations_total",
            FamilyKind.COUNTER,
            "Number of requests which apiserver terminated in self-defense.",
            {
                each.labels.terminated(code): count
                for each in series
                if each.labels.subresource != _EVICTION  # 429: a disruption budget is used up
                for code, count in each.codes.items()
                if code in _TERMINATED
            },
        )
        durations = {
            each.labels.text(): each.durations.copy()
            for each in series
            if each.durations is not None
        }
        for name, help_ in (
            ("apiserver_request_duration_seconds", "Response latency distribution in seconds."),
            (
                "apiserver_request_sli_duration_seconds",
                "Response latency distribution, not counting webhook duration, in seconds.",
            ),
        ):
            yield name, FamilyKind.HISTOGRAM, help_, durations
        yield (
            "apiserver_response_sizes",
            FamilyKind.HISTOGRAM,
            "Response size distribution in bytes.",
            {each.labels.text(): each.sizes.copy() for each in series if each.sizes is not None},
        )

    def _find(self, labels_: Labels) -> Series:
        found = self._series.get(labels_)
        if found is None:
            found = self._series[labels_] = Series(labels_)
        return found

    def _labels(self, route: Route, reply: Reply) -> Labels:
        info, endpoint = route.info, route.endpoint
        method = reply.request.method
        verb = method if method in _METHODS else "other"
        if endpoint is None:
            return Labels(verb, subresource=info.path if info.path in self._pages else "")
        row = endpoint.row
        if info.name or route.verb == "create":
            scope = "resource"
        else:
            scope = "namespace" if info.namespace else "cluster"
        return Labels(
            _VERBS.get(route.verb, verb),
            "All" if "dryRun" in route.query else "",
            row.group,
            row.version,
            row.name,
            info.subresource,
            scope,
        )
