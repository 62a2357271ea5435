"""Gets: ranges of one key at the current revision without any option, which is what most reads are.

plain_calls ──► Reads.add_gets ──► answer_gets: one header and one lookup for all of a turn
"""

from typing import TypeAlias

from kvstore.batch import Outbox
from kvstore.node.parts import Parts
from kvstore.wire.columns import get_replies

Get: TypeAlias = tuple[int, bytes]  # (call id, key)


def answer_gets(parts: Parts, gets: list[Get], out: Outbox) -> None:
    """Answer gets from the store as it is."""
    store = parts.state.store
    header = parts.headers.field(store.revision, parts.raft.term)
    out.replies += get_replies(gets, store.kvs([key for _, key in gets]), header)
    parts.counters.ranges += len(gets)
