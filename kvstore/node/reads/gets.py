"""Gets: ranges of one key as it is now and nothing more, which is what most reads are.

    Router ──► is_get ──► Reads.add_get ──► answer_gets: one header and one look-up for all

Whatever more a range can ask (an end, a revision, filters, keys only, ...) has no meaning to be
looked at here, so a turn's gets are answered as one batch.
"""

from collections.abc import Sequence
from typing import Final

from kvstore.batch import Outbox
from kvstore.errors import Code
from kvstore.node.parts import Parts
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.splice import get_response

Get = tuple[int, bytes]  # (call id, key)

_KEY_MAX: Final = 127  # whose length takes one byte
_OK: Final = int(Code.OK)


def is_get(request: pb.RangeRequest, body: bytes) -> bool:
    """Tell whether a parsed request names a key, perhaps says serializable, and nothing else.

    The sizes tell: with the key in it, two bytes for its tag and length, and two for a set
    serializable, the body has no room for any other field.
    """
    key_size = len(request.key)
    room = len(body) - key_size - (4 if request.serializable else 2)
    return room == 0 and 0 < key_size <= _KEY_MAX


def answer_gets(parts: Parts, gets: Sequence[Get], out: Outbox) -> None:
    """Answer gets from the store as it is."""
    store = parts.store
    header = parts.headers.field(store.revision, parts.raft.term)
    kvs = store.kvs([key for _, key in gets])
    out.replies += [
        (call_id, _OK, header if kv is None else get_response(header, kv))
        for (call_id, _), kv in zip(gets, kvs, strict=True)
    ]
    parts.counters.ranges += len(gets)
