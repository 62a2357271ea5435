"""Metrics of the client port: grpc_server_* as go-grpc-middleware names them, and etcd's own.

As in etcd, every method has its rows from the start, so that a rate begins at 0.
"""

from collections.abc import Mapping
from typing import Final

from kvstack.component.metrics.exposition import Family, FamilyKind, Number, labels
from kvstack.component.metrics.histograms import Histogram
from kvstore.errors import Code
from kvstore.server.metrics.call_labels import METHOD_LABELS, code_name
from kvstore.server.metrics.sources import MetricSources
from kvstore.wire import rpc
from kvstore.wire.rpc import METHODS

F = Family[MetricSources]
_COUNTER, _HISTOGRAM = FamilyKind.COUNTER, FamilyKind.HISTOGRAM
_HANDLED_LABELS: Final = {
    (method.id, int(code)): f"{labels(grpc_code=code_name(code))},{METHOD_LABELS[method.id]}"
    for code in sorted(Code, key=code_name)
    for method in METHODS
}
# Types of requests in etcd's own histogram that are not the method's name.
_REQUEST_TYPES: Final = {
    rpc.COMPACT: "Compaction",
} | {
    method.id: f"Auth{method.name}"
    for method in METHODS
    if method.service == "etcdserverpb.Auth" and method.name.startswith(("User", "Role"))
}


def _by_method(counts: list[int]) -> Mapping[str, Number]:
    return dict(zip(METHOD_LABELS, counts, strict=True))


def _handled(sources: MetricSources) -> Mapping[str, Number]:
    handled = sources.calls.handled
    return {text: handled.get(key, 0) for key, text in _HANDLED_LABELS.items()}


def _handling(sources: MetricSources) -> Mapping[str, Histogram]:
    handling = sources.calls.handling
    return {} if handling is None else dict(zip(METHOD_LABELS, handling, strict=True))


def _durations(sources: MetricSources) -> Mapping[str, Histogram]:
    return {
        labels(
            success="true" if succeeded else "false",
            type=_REQUEST_TYPES.get(method, METHODS[method].name),
        ): histogram
        for (method, succeeded), histogram in sorted(sources.calls.durations.items())
    }


def _versions(sources: MetricSources) -> Mapping[str, Number]:
    return {
        labels(client_api_version=version, type="unary" if is_unary else "stream"): count
        for (version, is_unary), count in sorted(sources.calls.versions.items())
        if count
    }


FAMILIES: Final[tuple[F, ...]] = (
    F("etcd_network_client_grpc_received_bytes_total", _COUNTER, "The total number of bytes received from grpc clients.", lambda r: r.calls.received_bytes),
    F("etcd_network_client_grpc_sent_bytes_total", _COUNTER, "The total number of bytes sent to grpc clients.", lambda r: r.calls.sent_bytes),
    F("etcd_server_client_requests_total", _COUNTER, "The total number of client requests per client version.", _versions),
    F("etcd_server_request_duration_seconds", _HISTOGRAM, "Response latency distribution in seconds for each type.", _durations),
    F("grpc_server_handled_total", _COUNTER, "Total number of RPCs completed on the server, regardless of success or failure.", _handled),
    F("grpc_server_handling_seconds", _HISTOGRAM, "Histogram of response latency (seconds) of gRPC that had been application-level handled by the server.", _handling),
    F("grpc_server_msg_received_total", _COUNTER, "Total number of RPC stream messages received on the server.", lambda r: _by_method(r.calls.received)),
    F("grpc_server_msg_sent_total", _COUNTER, "Total number of gRPC stream messages sent by the server.", lambda r: _by_method(r.calls.sent)),
    F("grpc_server_started_total", _COUNTER, "Total number of RPCs started on the server.", lambda r: _by_method(r.calls.started)),
)  # fmt: skip
