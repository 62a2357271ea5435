"""Parses and checks the messages of a client on a watch stream.

    WatchRequest ──► Create | Refused | Cancel | Progress | None (a request that etcd ignores)
                └──► Refusal: the bytes are no WatchRequest, and the stream ends with it

A refused create gets a response (watch id -1, created and canceled, with the reason); the stream
and its other watchers continue. Whether an id is free or a revision compacted is not known here.
"""

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from kvstore.errors import COMPACTED, Code, Refusal
from kvstore.wire.gen.rpc_pb2 import WatchCreateRequest, WatchRequest

INVALID_WATCH_ID: Final = -1
AUTO_WATCH_ID: Final = 0

# Flavor: the options of a watcher that change its responses, as bits.
PREV_KV: Final = 1
NO_PUT: Final = 2
NO_DELETE: Final = 4
FRAGMENT: Final = 8

MALFORMED: Final = Refusal(
    int(Code.INTERNAL),
    "grpc: failed to unmarshal the received message: "
    "proto:\u00a0cannot parse invalid wire-format data",
)

_EMPTY_RANGE: Final = "mvcc: watcher range is empty"
_FILTER_FLAVOR: Final = {WatchCreateRequest.NOPUT: NO_PUT, WatchCreateRequest.NODELETE: NO_DELETE}

_parse: Final = WatchRequest.FromString


class Create(NamedTuple):
    """A request to watch; end: None: the single key, b"": every key >= key, else exclusive."""

    key: bytes
    end: bytes | None
    start_revision: int  # 0: from now on
    watch_id: int  # AUTO_WATCH_ID: the server chooses
    flavor: int
    progress_notify: bool


class Refused(NamedTuple):
    """A create request that is refused, and the reason.

    If key is set, a missing permission on it takes precedence over the reason.
    """

    reason: str
    key: bytes = b""
    end: bytes | None = None


class Cancel(NamedTuple):
    """A request to cancel a watcher."""

    watch_id: int


class Progress(NamedTuple):
    """A request for a progress notification."""


def parse_request(body: bytes) -> Create | Refused | Cancel | Progress | Refusal | None:
    """Return the request in one WatchRequest; None for an empty one."""
    try:
        request = _parse(body)
    except DecodeError:
        return MALFORMED
    match request.WhichOneof("request_union"):
        case "create_request":
            return _create(request.create_request)
        case "cancel_request":
            return Cancel(request.cancel_request.watch_id)
        case "progress_request":
            return Progress()
        case _:
            return None


def _create(create: WatchCreateRequest) -> Create | Refused:
    if create.start_revision < 0:
        return Refused(COMPACTED.text)
    key = create.key or b"\0"
    end: bytes | None = create.range_end or None
    if end == b"\0":
        end = b""
    elif end is not None and key >= end:
        return Refused(_EMPTY_RANGE, key, end)
    flavor = (PREV_KV if create.prev_kv else 0) | (FRAGMENT if create.fragment else 0)
    for kind in create.filters:
        flavor |= _FILTER_FLAVOR.get(kind, 0)
    return Create(key, end, create.start_revision, create.watch_id, flavor, create.progress_notify)
