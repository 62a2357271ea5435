"""Distributed tracing: a span for each remote call, sent to an OTLP collector.

    traceparent: 00-<trace>-<parent>-01    a call whose caller samples is traced
    --distributed-tracing-sampling-rate    the number of other calls, of a million, that are traced

A span lasts from the turn in which a call arrives to the turn that answers it. It has the name and
the attributes of etcd's spans (rpc.system, rpc.service, rpc.method, rpc.grpc.status_code). Tracing
is a source of the driver; the node does not know it. Without a traced call it costs a turn one look
at the metadata. The exporter has threads of its own and drops spans that it cannot deliver.
"""

import time
from typing import Final

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from typing_extensions import override

from kvstore.batch import Inbox, Metadata, Outbox
from kvstore.config.checks import SAMPLING_RATE_MAX
from kvstore.config.model import Config
from kvstore.errors import Code
from kvstore.wire.rpc import METHODS

SPANS_MAX: Final = 65_536  # open at once; calls beyond are not traced
PARENT_KEY: Final = "traceparent"


class Tracing:
    """A source of the driver that makes spans of calls."""

    def __init__(
        self,
        service_name: str,
        instance_id: str,
        sampling_rate: int,
        exporter: SpanExporter,
    ) -> None:
        """Trace sampling_rate of a million calls, and all calls whose callers sample."""
        named = {"service.name": service_name}
        if instance_id:
            named["service.instance.id"] = instance_id
        ratio = sampling_rate / SAMPLING_RATE_MAX
        self._provider = TracerProvider(
            resource=Resource.create(named),
            sampler=ParentBased(TraceIdRatioBased(ratio) if ratio else ALWAYS_OFF),
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("kvstore")
        self._context = TraceContextTextMapPropagator()
        self._is_root_sampled = sampling_rate > 0
        self._spans: dict[int, Span] = {}

    def fill(self, inbox: Inbox) -> None:
        """Start spans for new calls, and end those of clients that went away."""
        if inbox.metadata or self._is_root_sampled:
            metadata = inbox.metadata
            for call_id, method, _ in inbox.calls:
                self._begin(call_id, method, metadata.get(call_id))
            for stream_id, method in inbox.opened:
                self._begin(stream_id, method, metadata.get(stream_id))
        if self._spans:
            for call_id in inbox.gone:
                self._end(call_id, Code.CANCELED)

    def drain(self, out: Outbox) -> None:
        """End the spans of answered calls."""
        if not self._spans:
            return
        for call_id, code, _ in out.replies:
            self._end(call_id, code)
        for stream_id, code, _ in out.ends:
            self._end(stream_id, code)

    def close(self) -> None:
        """Send the remaining spans; waits for the collector up to the exporter's timeout."""
        for call_id in list(self._spans):
            self._end(call_id, Code.UNAVAILABLE)
        self._provider.shutdown()

    def _begin(self, call_id: int, method_id: int, metadata: Metadata | None) -> None:
        has_parent = metadata is not None and PARENT_KEY in metadata
        if call_id < 0 or not (has_parent or self._is_root_sampled):
            return
        if len(self._spans) >= SPANS_MAX:
            return
        method = METHODS[method_id]
        span = self._tracer.start_span(
            f"{method.service}/{method.name}",
            context=self._context.extract(metadata or {}, getter=_GETTER),
            kind=SpanKind.SERVER,
            start_time=time.time_ns(),
            attributes={
                "rpc.system": "grpc",
                "rpc.service": method.service,
                "rpc.method": method.name,
            },
        )
        if span.is_recording():
            self._spans[call_id] = span

    def _end(self, call_id: int, code: int) -> None:
        span = self._spans.pop(call_id, None)
        if span is None:
            return
        span.set_attribute("rpc.grpc.status_code", int(code))
        if code != Code.OK:
            span.set_status(StatusCode.ERROR, Code(code).name)
        span.end(time.time_ns())


class _MetadataGetter(Getter[Metadata]):
    """Reads a trace's context from a call's metadata."""

    @override
    def get(self, carrier: Metadata, key: str) -> list[str] | None:
        value = carrier.get(key)
        return None if value is None else [value]

    @override
    def keys(self, carrier: Metadata) -> list[str]:
        return list(carrier)


_GETTER: Final = _MetadataGetter()


def tracing_of(config: Config) -> Tracing:
    """Return the tracing that the flags configure; the collector need not be reachable yet."""
    tracing = config.tracing
    return Tracing(
        tracing.service_name,
        tracing.instance_id,
        tracing.sampling_rate,
        OTLPSpanExporter(endpoint=tracing.address, insecure=True),
    )
