"""An OTLP collector in the test's own process: keeps the spans that are exported to it."""

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as collector_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as collector_grpc
from opentelemetry.proto.trace.v1 import trace_pb2
from typing_extensions import override


class Collector(collector_grpc.TraceServiceServicer):
    """What has been exported, in order."""

    def __init__(self) -> None:
        self.exports: queue.SimpleQueue[trace_pb2.ResourceSpans] = queue.SimpleQueue()

    @override
    def Export(
        self, request: collector_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> collector_pb2.ExportTraceServiceResponse:
        for each in request.resource_spans:
            self.exports.put(each)
        return collector_pb2.ExportTraceServiceResponse()

    def spans(self) -> list[trace_pb2.Span]:
        """Return the spans that have arrived so far."""
        found = []
        while not self.exports.empty():
            found += [span for scope in self.exports.get().scope_spans for span in scope.spans]
        return found


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    """Serve on loopback; give the collector and its address."""
    made = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    collector_grpc.add_TraceServiceServicer_to_server(made, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield made, f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
