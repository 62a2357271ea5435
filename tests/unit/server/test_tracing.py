"""Spans of calls, delivered to a real OTLP collector of the test's own."""

from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1 import trace_pb2

from kvstore.batch import Inbox, Outbox
from kvstore.config.checks import SAMPLING_RATE_MAX
from kvstore.errors import Code
from kvstore.server.tracing import Tracing
from kvstore.wire import rpc
from tests.support.otlp_collector import Collector, collecting

WAIT_S = 60.0
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-00"}


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    with collecting() as made:
        yield made


def _tracing(address: str, rate: int) -> Tracing:
    return Tracing("etcd", "one", rate, OTLPSpanExporter(endpoint=address, insecure=True))


def test_a_sampling_callers_call_is_in_its_trace(collector: tuple[Collector, str]) -> None:
    kept, address = collector
    tracing = _tracing(address, 0)
    tracing.fill(Inbox(calls=[(1, rpc.PUT, b""), (2, rpc.PUT, b"")], metadata={1: SAMPLED}))
    tracing.drain(Outbox(replies=[(1, Code.OK, b""), (2, Code.OK, b"")]))
    tracing.close()
    resource = kept.exports.get(timeout=WAIT_S)
    (span,) = resource.scope_spans[0].spans
    assert span.name == "etcdserverpb.KV/Put"
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert span.kind == trace_pb2.Span.SPAN_KIND_SERVER
    assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    attributes = {each.key: each.value for each in span.attributes}
    assert attributes["rpc.service"].string_value == "etcdserverpb.KV"
    assert attributes["rpc.grpc.status_code"].int_value == 0
    named = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (named["service.name"], named["service.instance.id"]) == ("etcd", "one")


def test_a_caller_that_does_not_sample_is_not_traced(collector: tuple[Collector, str]) -> None:
    kept, address = collector
    tracing = _tracing(address, SAMPLING_RATE_MAX)
    tracing.fill(Inbox(calls=[(1, rpc.PUT, b"")], metadata={1: UNSAMPLED}))
    tracing.drain(Outbox(replies=[(1, Code.OK, b"")]))
    tracing.close()
    assert kept.spans() == []


def test_all_calls_begin_a_trace_at_the_full_rate(collector: tuple[Collector, str]) -> None:
    kept, address = collector
    tracing = _tracing(address, SAMPLING_RATE_MAX)
    tracing.fill(Inbox(calls=[(i, rpc.RANGE, b"") for i in range(1, 11)], opened=[(11, rpc.WATCH)]))
    tracing.drain(Outbox(replies=[(i, Code.OK, b"") for i in range(1, 11)]))
    tracing.drain(Outbox(ends=[(11, Code.UNAVAILABLE, b"")]))
    tracing.close()
    spans = kept.spans()
    assert len({span.trace_id for span in spans}) == 11
    (watch,) = [span for span in spans if span.name == "etcdserverpb.Watch/Watch"]
    assert watch.status.code == trace_pb2.Status.STATUS_CODE_ERROR


def test_a_client_that_goes_away_ends_its_span(collector: tuple[Collector, str]) -> None:
    kept, address = collector
    tracing = _tracing(address, SAMPLING_RATE_MAX)
    tracing.fill(Inbox(calls=[(1, rpc.PUT, b"")]))
    tracing.fill(Inbox(gone=[1]))
    tracing.close()
    (span,) = kept.spans()
    assert span.status.message == "CANCELED"


def test_calls_of_the_process_itself_are_not_traced(collector: tuple[Collector, str]) -> None:
    kept, address = collector
    tracing = _tracing(address, SAMPLING_RATE_MAX)
    tracing.fill(Inbox(calls=[(-1, rpc.PUT, b"")]))
    tracing.close()
    assert kept.spans() == []
