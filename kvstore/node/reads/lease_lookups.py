"""LeaseTimeToLive: only the leader knows the remaining time of a lease.

    leader      once what was committed at the request is applied ─► the lessor
    others      the request is forwarded; the answer is sent with this member's header

A request from another member is never forwarded again, and is answered with "lease not found" if
there is no lease, where a client gets a TTL of -1.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from google.protobuf.message import DecodeError

from kvstack.component.units import SECOND_NS
from kvstore.batch import Metadata, Outbox
from kvstore.errors import LEASE_NOT_FOUND, TIMEOUT_WAIT_APPLY, Code, Refusal
from kvstore.failpoints import hit
from kvstore.lease.lessor import NOT_PRIMARY
from kvstore.node.parts import Parts
from kvstore.node.reads.lease_forwarding import TIME_TO_LIVE, LeaderRequest
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.varint import BYTES, WireError, read_field, varint

KeysCheck: TypeAlias = Callable[[Metadata, Sequence[bytes]], Refusal | None]
"""(metadata of a call, keys) → why its caller may not be shown the keys, or None"""

APPLY_TIMEOUT_NS = SECOND_NS
_INTERNAL_TAG = varint(1 << 3 | BYTES)


class _Lookup:
    """One call."""

    __slots__ = (
        "awaited_index",
        "call_id",
        "for_peer",
        "leader_request",
        "metadata",
        "request",
        "since_ns",
    )

    def __init__(
        self,
        call_id: int,
        request: pb.LeaseTimeToLiveRequest,
        metadata: Metadata,
        since_ns: int,
        awaited_index: int,
        *,
        for_peer: bool,
    ) -> None:
        self.call_id = call_id
        self.request = request
        self.metadata = metadata
        self.since_ns = since_ns
        self.awaited_index = awaited_index
        self.for_peer = for_peer
        self.leader_request: LeaderRequest | None = None


class LeaseLookups:
    """The calls under way."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lookups: list[_Lookup] = []
        self.check_keys: KeysCheck | None = None  # before a client is shown keys

    def add(
        self,
        call_id: int,
        request: pb.LeaseTimeToLiveRequest,
        metadata: Metadata,
        now_ns: int,
        out: Outbox,
        *,
        for_peer: bool,
    ) -> None:
        """Add a call; it is answered at once if possible."""
        awaited = self._parts.raft.committed
        lookup = _Lookup(call_id, request, metadata, now_ns, awaited, for_peer=for_peer)
        if not self._step(lookup, now_ns, out):
            self._lookups.append(lookup)

    def cancel(self, call_id: int) -> None:
        """Forget a call whose client went away."""
        if self._lookups:
            self._lookups = [each for each in self._lookups if each.call_id != call_id]

    def refuse_with_keys(self, refusal: Refusal, out: Outbox) -> None:
        """Refuse clients' calls that show keys: their permission has to be checked."""
        for each in self._lookups:
            if each.request.keys and not each.for_peer:
                out.refuse(each.call_id, refusal)
        self._lookups = [each for each in self._lookups if each.for_peer or not each.request.keys]

    def step(self, now_ns: int, out: Outbox) -> None:
        """Answer what can be answered now."""
        if self._lookups:
            self._lookups = [each for each in self._lookups if not self._step(each, now_ns, out)]

    def _step(self, lookup: _Lookup, now_ns: int, out: Outbox) -> bool:
        """Continue a call as far as possible; return whether it is answered."""
        raft = self._parts.raft
        if raft.is_leader:
            if raft.applied >= lookup.awaited_index:
                self._look_up(lookup, now_ns, out)
                return True
            if now_ns - lookup.since_ns >= APPLY_TIMEOUT_NS:
                out.refuse(lookup.call_id, TIMEOUT_WAIT_APPLY)
                return True
            return False
        if lookup.for_peer:
            out.refuse(lookup.call_id, NOT_PRIMARY)
            return True
        request = lookup.leader_request
        if request is None:
            body = _encode_internal(lookup.request.SerializeToString())
            request = LeaderRequest(TIME_TO_LIVE, body, lookup.since_ns)
            lookup.leader_request = request
        answer = request.step(self._parts, now_ns)
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
        lessor, request = self._parts.state.lessor, lookup.request
        ttls = lessor.time_to_live(request.ID, now_ns)
        if isinstance(ttls, Refusal):
            if ttls == LEASE_NOT_FOUND and not lookup.for_peer:
                self._answer(lookup, pb.LeaseTimeToLiveResponse(ID=request.ID, TTL=-1), out)
            else:
                out.refuse(lookup.call_id, ttls)
            return
        remaining_s, granted_s = ttls
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
            out.refuse(lookup.call_id, answer)
        else:
            response = _decode_internal(answer)
            if isinstance(response, Refusal):
                out.refuse(lookup.call_id, response)
            elif lease != response.ID:
                out.refuse(lookup.call_id, Refusal(Code.UNKNOWN, "lease: TTL id mismatch"))
            else:
                response.ClearField("header")
                self._answer(lookup, response, out)

    def _answer(self, lookup: _Lookup, answer: pb.LeaseTimeToLiveResponse, out: Outbox) -> None:
        if answer.keys and not lookup.for_peer and self.check_keys is not None:
            # The leader may know keys that were put after this member checked those it knew.
            refusal = self.check_keys(lookup.metadata, answer.keys)
            if refusal is not None:
                out.refuse(lookup.call_id, refusal)
                return
        parts = self._parts
        header = parts.headers.field(parts.state.store.revision, parts.raft.term)
        out.replies.append((lookup.call_id, Code.OK, header + answer.SerializeToString()))


def _encode_internal(request: bytes) -> bytes:
    """Return etcd's LeaseInternalRequest around a LeaseTimeToLiveRequest."""
    return _INTERNAL_TAG + varint(len(request)) + request


def _decode_internal(data: bytes) -> pb.LeaseTimeToLiveResponse | Refusal:
    """Return the response in a LeaseInternalResponse."""
    try:
        at = 0
        while at < len(data):
            field, _, value, at = read_field(data, at)
            if field == 1 and isinstance(value, bytes):
                return pb.LeaseTimeToLiveResponse.FromString(value)
    except (WireError, DecodeError) as error:
        return Refusal(Code.UNKNOWN, f"lease: the leader's answer cannot be read: {error}")
    return Refusal(Code.UNKNOWN, "lease: the leader's answer is empty")
