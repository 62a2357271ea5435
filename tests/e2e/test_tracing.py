"""A real server sends the span of a traced call to a collector, over the transport that serves."""

from pathlib import Path

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc
from tests.support.otlp_collector import collecting
from tests.support.rpc_client import TIMEOUT_S, Client
from tests.support.servers import ours, running

TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_a_traced_call_arrives_at_the_collector(tmp_path: Path) -> None:
    with collecting() as (collector, address):
        extra = ["--enable-distributed-tracing", f"--distributed-tracing-address={address}"]
        server = ours(tmp_path / "data", extra=extra)
        with running(server), Client(server.endpoint) as client:
            body = pb.PutRequest(key=b"k", value=b"v").SerializeToString()
            put = raw_grpc.unary(client.channel, rpc.METHODS[rpc.PUT].path)
            put(body, metadata=(("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"),))
            put(body)
            server.stop()  # sends what is left
        resource = collector.exports.get(timeout=TIMEOUT_S)
        (span,) = resource.scope_spans[0].spans
    assert (span.name, span.trace_id.hex()) == ("etcdserverpb.KV/Put", TRACE)
