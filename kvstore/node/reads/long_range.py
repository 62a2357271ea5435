"""A Range call over many keys: gathered over several turns, answered in one message.

If a compaction passes the pinned revision meanwhile, the range is read again in one go: its client
did not ask for that revision.
"""

from kvstore.apply.ranges import RangeAnswer, execute_range, shape
from kvstore.batch import Outbox
from kvstore.errors import Code, Refusal
from kvstore.node.parts import Parts
from kvstore.node.reads import slow_read
from kvstore.node.reads.range_slices import RangeSlices
from kvstore.wire import splice
from kvstore.wire.gen import rpc_pb2 as pb


class LongRange:
    """One such call."""

    __slots__ = ("_began_ns", "_count", "_parts", "_request", "_slices", "call_id")

    def __init__(self, parts: Parts, call_id: int, request: pb.RangeRequest, count: int) -> None:
        """Begin a call whose range has count keys."""
        self.call_id = call_id
        self._parts = parts
        self._request = request
        self._count = count
        self._slices = RangeSlices(parts, request, count)
        self._began_ns = parts.counters.clock()

    def step(self, out: Outbox) -> bool:
        """Read one slice; answer and return True after the last."""
        gathered = self._slices.gather()
        if gathered is None:
            return False
        answer: RangeAnswer | Refusal
        if isinstance(gathered, Refusal):
            answer = execute_range(self._parts.state.store, self._request)
        else:
            kvs, more = shape(self._request, gathered)
            answer = RangeAnswer(kvs, more, self._count, self._slices.revision)
        slow_read.note_long(self._parts, self._request, answer, self._began_ns)
        if isinstance(answer, Refusal):
            out.refuse(self.call_id, answer)
        else:
            out.replies.append((self.call_id, Code.OK, range_response(self._parts, answer)))
        return True


def range_response(parts: Parts, answer: RangeAnswer) -> bytes:
    """Return the encoded RangeResponse."""
    header = parts.headers.field(answer.revision, parts.raft.term)
    return splice.range_response(header, answer.kvs, answer.more, answer.count)
