"""The labels of gRPC metrics, as go-grpc-middleware writes them."""

from typing import Final

from kvstack.component.metrics.exposition import labels
from kvstore.errors import Code
from kvstore.wire.rpc import METHODS, Kind

_TYPES: Final = {
    Kind.UNARY: "unary",
    Kind.SERVER_STREAM: "server_stream",
    Kind.BIDI: "bidi_stream",
}
METHOD_LABELS: Final = tuple(
    labels(grpc_method=method.name, grpc_service=method.service, grpc_type=_TYPES[method.kind])
    for method in METHODS
)  # by method id


def code_name(code: int) -> str:
    """Return Go's name of a gRPC code: OK, NotFound."""
    return "OK" if code == Code.OK else Code(code).name.title().replace("_", "")
