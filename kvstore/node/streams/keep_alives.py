"""Lease keep-alives: renewed by the leader, and answered in order on each stream.

    leader    confirmed, the lease exists   ─► renewed at once
              the lease does not exist      ─► once what was committed at the request is applied
              its revoke, or the clearing of its checkpoint, under way ─► once that is applied
    others    forwarded to the leader, several at a time; answered in the order of the requests

The header is made when a keep-alive arrives: its revision is never newer than the renewal. What is
the same for a whole turn (who leads, whether that is confirmed, whether auth is enabled, the
header) is looked up once a turn; a renewal that depends on nothing else is one lookup in the
lessor. A leader that was stopped may have been replaced: it renews nothing until a quorum has
confirmed it, since a new leader may revoke the lease.
"""

from collections import deque
from typing import Final

from google.protobuf.message import DecodeError

from kvstore.batch import Outbox
from kvstore.errors import (
    LEASE_NOT_FOUND,
    TIMEOUT,
    TIMEOUT_WAIT_APPLY,
    TOO_MANY_REQUESTS,
    Code,
    Refusal,
)
from kvstore.failpoints import armed, hit
from kvstore.lease.lessor import NOT_PRIMARY, RENEW_LATER
from kvstore.node.auth.checker import AuthChecker
from kvstore.node.cluster.leadership import Leadership
from kvstore.node.parts import Parts
from kvstore.node.reads.lease_forwarding import RENEW, LeaderRequest
from kvstore.node.reads.lease_lookups import APPLY_TIMEOUT_NS
from kvstore.watch.request import MALFORMED
from kvstore.wire import splice
from kvstore.wire.gen import rpc_pb2 as pb

_WAITING_MAX: Final = 10_000  # keep-alives of one stream
_FORWARDED_MAX: Final = 16  # of them sent to the leader at once


Frame = tuple[int, bytes]  # (stream id, message)


class _Renewal:
    """One keep-alive that waits."""

    __slots__ = ("awaited_index", "header", "leader_request", "lease", "since_ns")

    def __init__(self, lease: int, header: bytes, since_ns: int, awaited_index: int) -> None:
        self.lease = lease
        self.header = header
        self.since_ns = since_ns
        self.awaited_index = awaited_index
        self.leader_request: LeaderRequest | None = None


class KeepAlives:
    """The keep-alive streams."""

    def __init__(self, parts: Parts, leadership: Leadership, checker: AuthChecker) -> None:
        self._parts = parts
        self._leadership = leadership
        self._checker = checker
        self._streams: dict[int, deque[_Renewal]] = {}
        self._for_peers: set[int] = set()  # streams of other members: never forwarded again
        self._half_closed: set[int] = set()
        self._busy: dict[int, None] = {}  # streams with something to do

    def open(self, stream_id: int, *, for_peer: bool) -> None:
        """Open a stream."""
        self._streams[stream_id] = deque()
        if for_peer:
            self._for_peers.add(stream_id)

    def close(self, stream_id: int) -> bool:
        """Close a stream; False: it is not a keep-alive stream."""
        self._busy.pop(stream_id, None)
        self._half_closed.discard(stream_id)
        self._for_peers.discard(stream_id)
        return self._streams.pop(stream_id, None) is not None

    def stream_ids(self) -> list[int]:
        """Return the open streams."""
        return list(self._streams)

    @property
    def is_waiting(self) -> bool:
        """Whether any stream has something to do."""
        return bool(self._busy)

    def __bool__(self) -> bool:
        return bool(self._streams)

    def __contains__(self, stream_id: int) -> bool:
        return stream_id in self._streams

    def receive(
        self, frames: list[Frame], now_ns: int, out: Outbox
    ) -> tuple[list[Frame], list[tuple[int, Refusal]]]:
        """Handle the keep-alives among a turn's frames.

        Returns the frames of other streams, and the streams that were refused, which are closed.
        """
        others: list[Frame] = []
        refused: list[tuple[int, Refusal]] = []
        streams, deliveries = self._streams, out.deliveries
        parts = self._parts
        header = parts.headers.field(parts.state.store.revision, parts.raft.term)
        renew, parse = parts.state.lessor.renew, pb.LeaseKeepAliveRequest.FromString
        response, is_plain = splice.keep_alive_response, self._is_plain(now_ns)
        for frame in frames:
            stream_id, body = frame
            queue = streams.get(stream_id)
            if queue is None:
                others.append(frame)
                continue
            try:
                lease = parse(body).ID
            except DecodeError:
                refusal: Refusal | None = MALFORMED
            else:
                if is_plain and not queue:
                    ttl_s = renew(lease, now_ns)
                    if type(ttl_s) is int and ttl_s > 0:
                        deliveries.append((stream_id, response(header, body, lease, ttl_s), b""))
                        continue
                refusal = self._handle(stream_id, lease, header, now_ns, out)
            if refusal is not None:
                self.close(stream_id)
                refused.append((stream_id, refusal))
        return others, refused

    def _is_plain(self, now_ns: int) -> bool:
        """Return whether in this turn a renewal needs nothing but the lease to exist."""
        parts = self._parts
        return (
            parts.raft.is_leader
            and parts.limits.fast_lease_keep_alive
            and not (parts.state.auth.enabled or armed)
            and self._leadership.is_confirmed(now_ns)
        )

    def _handle(
        self, stream_id: int, lease: int, header: bytes, now_ns: int, out: Outbox
    ) -> Refusal | None:
        """Answer one request, queue it, or return why its stream ends."""
        queue = self._streams[stream_id]
        if len(queue) >= _WAITING_MAX:
            return TOO_MANY_REQUESTS
        renewal = _Renewal(lease, header, now_ns, self._parts.raft.committed)
        if not queue:
            ttl_s = self._renew(stream_id, renewal, now_ns)
            if isinstance(ttl_s, int):
                answer = splice.lease_response(header, lease, ttl_s)
                out.deliveries.append((stream_id, answer, b""))
                return None
            if ttl_s is not None:
                return ttl_s
        queue.append(renewal)
        self._busy[stream_id] = None
        return None

    def half_close(self, stream_id: int) -> None:
        """Note that no more requests come: the stream ends after its last answer."""
        self._half_closed.add(stream_id)
        self._busy[stream_id] = None

    def step(self, now_ns: int, out: Outbox) -> list[tuple[int, Refusal | None]]:
        """Answer what can be answered; return the streams to end, None: after their last answer."""
        ends: list[tuple[int, Refusal | None]] = []
        for stream_id in list(self._busy):
            queue = self._streams[stream_id]
            refusal = self._answer(stream_id, queue, now_ns, out)
            if refusal is not None:
                ends.append((stream_id, refusal))
            elif not queue:
                del self._busy[stream_id]
                if stream_id in self._half_closed:
                    ends.append((stream_id, None))
        return ends

    def _answer(
        self, stream_id: int, queue: deque[_Renewal], now_ns: int, out: Outbox
    ) -> Refusal | None:
        if not (stream_id in self._for_peers or self._parts.raft.is_leader):
            for renewal in list(queue)[1:_FORWARDED_MAX]:
                self._forward(renewal, now_ns)
        while queue:
            renewal = queue[0]
            ttl_s = self._renew(stream_id, renewal, now_ns)
            if ttl_s is None:
                break
            if isinstance(ttl_s, Refusal):
                return ttl_s
            queue.popleft()
            answer = splice.lease_response(renewal.header, renewal.lease, ttl_s)
            out.deliveries.append((stream_id, answer, b""))
        return None

    def _renew(self, stream_id: int, renewal: _Renewal, now_ns: int) -> int | Refusal | None:
        """Return the lease's TTL in seconds (0: no such lease), a refusal, or None: not yet."""
        for_peer = stream_id in self._for_peers
        if not for_peer:
            refusal = self._checker.check_renew(stream_id, renewal.lease)
            if refusal is not None:
                return refusal
        if self._parts.raft.is_leader:
            if armed and for_peer:
                hit("beforeServeHTTPLeaseRenew")
            ttl_s = self._renew_here(renewal, now_ns)
            is_late = now_ns - renewal.since_ns >= self._parts.limits.request_timeout_ns
            return TIMEOUT if ttl_s is None and is_late else ttl_s
        return NOT_PRIMARY if for_peer else self._forward(renewal, now_ns)

    def _renew_here(self, renewal: _Renewal, now_ns: int) -> int | Refusal | None:
        if not self._leadership.is_confirmed(now_ns):
            return None
        parts = self._parts
        must_wait = not (
            parts.limits.fast_lease_keep_alive and parts.state.lessor.exists(renewal.lease)
        )
        if must_wait and parts.raft.applied < renewal.awaited_index:
            is_late = now_ns - renewal.since_ns >= APPLY_TIMEOUT_NS
            return TIMEOUT_WAIT_APPLY if is_late else None
        ttl_s = parts.state.lessor.renew(renewal.lease, now_ns)
        if ttl_s == LEASE_NOT_FOUND:
            return 0
        if ttl_s in (RENEW_LATER, NOT_PRIMARY):  # the term's first entry is still to be applied
            return None
        return ttl_s

    def _forward(self, renewal: _Renewal, now_ns: int) -> int | Refusal | None:
        request = renewal.leader_request
        if request is None:
            body = pb.LeaseKeepAliveRequest(ID=renewal.lease).SerializeToString()
            request = renewal.leader_request = LeaderRequest(RENEW, body, renewal.since_ns)
        answer = request.step(self._parts, now_ns)
        if answer is None:
            return None
        if isinstance(answer, Refusal):
            return 0 if answer == LEASE_NOT_FOUND else answer
        try:
            found = pb.LeaseKeepAliveResponse.FromString(answer)
        except DecodeError as error:
            return Refusal(Code.UNKNOWN, f"lease: the leader's answer cannot be read: {error}")
        if renewal.lease != found.ID:
            return Refusal(Code.UNKNOWN, "lease: renew id mismatch")
        return found.TTL
