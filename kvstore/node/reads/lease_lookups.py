"""LeaseTimeToLive: only the leader knows how long a lease has left.

    leader      once what was committed at the asking is applied ─► the lessor
    others      the leader is asked; its answer goes out under this member's header

A member asked on behalf of another answers for itself alone, and says that a lease is not there
where a client is told that it has -1 seconds left.
"""

from google.protobuf.message import DecodeError

from kvstore.batch import Outbox
from kvstore.errors import LEASE_NOT_FOUND, TIMEOUT_WAIT_APPLY, Code, Refusal
from kvstore.failpoints import hit
from kvstore.lease.lessor import NOT_PRIMARY
from kvstore.node.limits import SECOND_NS
from kvstore.node.parts import Parts
from kvstore.node.reads.lease_forwarding import TIME_TO_LIVE, Question
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.varint import BYTES, WireError, read_field, varint

APPLY_TIMEOUT_NS = SECOND_NS
_INTERNAL_TAG = varint(1 << 3 | BYTES)


class _Lookup:
    """One call."""

    __slots__ = ("awaited_index", "call_id", "for_peer", "question", "request", "since_ns")

    def __init__(
        self,
        call_id: int,
        request: pb.LeaseTimeToLiveRequest,
        since_ns: int,
        awaited_index: int,
        *,
        for_peer: bool,
    ) -> None:
        self.call_id = call_id
        self.request = request
        self.since_ns = since_ns
        self.awaited_index = awaited_index
        self.for_peer = for_peer
        self.question: Question | None = None


class LeaseLookups:
    """The calls under way."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lookups: list[_Lookup] = []

    def add(
        self,
        call_id: int,
        request: pb.LeaseTimeToLiveRequest,
        now_ns: int,
        out: Outbox,
        *,
        for_peer: bool,
    ) -> None:
        """Take a call; it is answered at once if it can be."""
        awaited = self._parts.raft.committed
        lookup = _Lookup(call_id, request, now_ns, awaited, for_peer=for_peer)
        if not self._step(lookup, now_ns, out):
            self._lookups.append(lookup)

    def cancel(self, call_id: int) -> None:
        """Forget a call whose client went away."""
        if self._lookups:
            self._lookups = [each for each in self._lookups if each.call_id != call_id]

    def step(self, now_ns: int, out: Outbox) -> None:
        """Answer what can be answered now."""
        if self._lookups:
            self._lookups = [each for each in self._lookups if not self._step(each, now_ns, out)]

    def _step(self, lookup: _Lookup, now_ns: int, out: Outbox) -> bool:
        """Do what can be done for a call; tell whether it is answered."""
        raft = self._parts.raft
        if raft.is_leader:
            if raft.applied >= lookup.awaited_index:
                self._look_up(lookup, now_ns, out)
                return True
            if now_ns - lookup.since_ns >= APPLY_TIMEOUT_NS:
                _refuse(lookup, TIMEOUT_WAIT_APPLY, out)
                return True
            return False
        if lookup.for_peer:
            _refuse(lookup, NOT_PRIMARY, out)
            return True
        question = lookup.question
        if question is None:
            body = _encode_internal(lookup.request.SerializeToString())
            question = lookup.question = Question(TIME_TO_LIVE, body, lookup.since_ns)
        answer = question.step(self._parts, now_ns)
        if answer is None:
            return False
        self._pass_on(lookup, answer, out)
        return True

    def _look_up(self, lookup: _Lookup, now_ns: int, out: Outbox) -> None:
        hit(
            "beforeLookupWhenForwardLeaseTimeToLive"
            if lookup.for_peer
            else "beforeLookupWhenLeaseTimeToLive"
        )
        lessor, request = self._parts.lessor, lookup.request
        found = lessor.time_to_live(request.ID, now_ns)
        if isinstance(found, Refusal):
            if found == LEASE_NOT_FOUND and not lookup.for_peer:
                self._answer(lookup, pb.LeaseTimeToLiveResponse(ID=request.ID, TTL=-1), out)
            else:
                _refuse(lookup, found, out)
            return
        remaining_s, granted_s = found
        answer = pb.LeaseTimeToLiveResponse(
            ID=request.ID,
            TTL=remaining_s,
            grantedTTL=granted_s,
            keys=lessor.keys(request.ID) if request.keys else (),
        )
        self._answer(lookup, answer, out)

    def _pass_on(self, lookup: _Lookup, answer: bytes | Refusal, out: Outbox) -> None:
        lease = lookup.request.ID
        if answer == LEASE_NOT_FOUND:
            self._answer(lookup, pb.LeaseTimeToLiveResponse(ID=lease, TTL=-1), out)
        elif isinstance(answer, Refusal):
            _refuse(lookup, answer, out)
        else:
            found = _decode_internal(answer)
            if isinstance(found, Refusal):
                _refuse(lookup, found, out)
            elif lease != found.ID:
                _refuse(lookup, Refusal(Code.UNKNOWN, "lease: TTL id mismatch"), out)
            else:
                found.ClearField("header")
                self._answer(lookup, found, out)

    def _answer(self, lookup: _Lookup, answer: pb.LeaseTimeToLiveResponse, out: Outbox) -> None:
        parts = self._parts
        header = parts.headers.field(parts.store.revision, parts.raft.term)
        out.replies.append((lookup.call_id, Code.OK, header + answer.SerializeToString()))


def _refuse(lookup: _Lookup, refusal: Refusal, out: Outbox) -> None:
    out.replies.append((lookup.call_id, refusal.code, refusal.text.encode()))


def _encode_internal(request: bytes) -> bytes:
    """Return etcd's LeaseInternalRequest around a LeaseTimeToLiveRequest."""
    return _INTERNAL_TAG + varint(len(request)) + request


def _decode_internal(data: bytes) -> pb.LeaseTimeToLiveResponse | Refusal:
    """Return what is inside a LeaseInternalResponse."""
    try:
        at = 0
        while at < len(data):
            field, _, value, at = read_field(data, at)
            if field == 1 and isinstance(value, bytes):
                return pb.LeaseTimeToLiveResponse.FromString(value)
    except (WireError, DecodeError) as error:
        return Refusal(Code.UNKNOWN, f"lease: the leader's answer cannot be read: {error}")
    return Refusal(Code.UNKNOWN, "lease: the leader's answer is empty")
