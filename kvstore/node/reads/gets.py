"""Gets: ranges of one key at the current revision without any option, which is what most reads are.

    Router ──► is_get ──► Reads.add_get ──► answer_gets: one header and one lookup for all

No option of a range (an end, a revision, filters, keys only, ...) has to be looked at, so a turn's
gets are answered as one batch.
"""

from collections.abc import Sequence
from typing import Final

from kvstore.batch import Outbox
from kvstore.errors import Code
from kvstore.node.parts import Parts
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.splice import get_response

Get = tuple[int, bytes]  # (call id, key)

_KEY_MAX: Final = 127  # bytes; its length is encoded in one byte
_OK: Final = int(Code.OK)


def is_get(request: pb.RangeRequest, body: bytes) -> bool:
    """Tell whether a parsed request has a key, perhaps serializable, and no other field.

    The body's size tells: the key, two bytes for its tag and length, and two for serializable leave
    no room for another field.
    """
    key_size = len(request.key)
    room = len(body) - key_size - (4 if request.serializable else 2)
    return room == 0 and 0 < key_size <= _KEY_MAX


def answer_gets(parts: Parts, gets: Sequence[Get], out: Outbox) -> None:
    """Answer gets from the store as it is."""
    store = parts.state.store
    header = parts.headers.field(store.revision, parts.raft.term)
    kvs = store.kvs([key for _, key in gets])
    out.replies += [
        (call_id, _OK, header if kv is None else get_response(header, kv))
        for (call_id, _), kv in zip(gets, kvs, strict=True)
    ]
    parts.counters.ranges += len(gets)
