"""Every path of the JSON gateway, with its method and its request and response messages.

    ROUTES["/v3/kv/range"] == Route(RANGE, RangeRequest, RangeResponse, Kind.UNARY)

The table is `kvstore.wire.rpc`'s, which has the paths beside each method. All are POST with the
whole message as the body; etcd binds nothing to paths or queries. RangeStream has no path.
"""

from typing import Final, NamedTuple

from google.protobuf.message import Message

from kvstore.wire import rpc
from kvstore.wire.rpc import Kind

PREFIX: Final = "/v3/"
OLD_PREFIX: Final = "/v3beta/"  # rewritten to PREFIX


class Route(NamedTuple):
    """One path."""

    method_id: int
    request: type[Message]
    response: type[Message]
    kind: Kind


ROUTES: Final[dict[str, Route]] = {
    path: Route(method.id, method.request, method.response, method.kind)
    for path, method in rpc.BY_GATEWAY_PATH.items()
}
