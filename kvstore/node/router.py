"""Admission: each call is checked, and becomes a refusal, a read, a proposal or a task.

    calls ──► plain_calls ──────┬─► runs, gets         (most calls, a batch at a time)
    call ──► parse ──► checks ──┼─► out.replies        (a refusal is sent at once)
                                ├─► pending.add        (a write: one entry of the log)
                                ├─► reads.add          (answered after this turn's applies)
                                └─► maintenance / members

A handler gets the call's id, its body and its CallContext. Whatever a client sends, the only
exception of a handler is the DecodeError of bytes that are no message; admit makes a refusal of it.
Calls are handled in the order of their arrival.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError, Message

from kvstore.apply.quota import (
    KEY_OVERHEAD_BYTES,
    LEASE_COST_BYTES,
    NO_LIMIT_BYTES,
    put_cost_bytes,
    txn_cost_bound,
    txn_cost_bytes,
)
from kvstore.apply.txn import is_read_only, is_serializable
from kvstore.auth.tokens import NO_CREDENTIAL, Credential
from kvstore.batch import AS_PEER, AS_ROOT, HAS_LEADER, Inbox, Metadata, Outbox
from kvstore.errors import (
    BAD_LEADER_TRANSFEREE,
    CORRUPT,
    LEARNER_NOT_SUPPORTED,
    NO_LEADER,
    NO_SPACE,
    NOT_LEADER,
    REQUEST_TOO_LARGE,
    TOO_MANY_REQUESTS,
    Code,
    Refusal,
)
from kvstore.node.auth.checker import AuthChecker
from kvstore.node.auth.logins import AuthLogins
from kvstore.node.call_context import UNRESTRICTED, CallContext, Handler
from kvstore.node.cluster.cluster import Cluster
from kvstore.node.cluster.leadership import Leadership
from kvstore.node.disk_budget import DiskBudget
from kvstore.node.fence import REFUSED as REFUSED_BEHIND_FENCE
from kvstore.node.maintenance.long_jobs import LongJobs
from kvstore.node.parts import Parts
from kvstore.node.pending import ResultCallback
from kvstore.node.plain_calls import PLAIN_CALLS, RECOGNIZED, Call
from kvstore.node.reads.reads import Reads
from kvstore.node.waiters import PlainRun, Waiter
from kvstore.watch.request import MALFORMED as MALFORMED_MESSAGE
from kvstore.wire import checks, rpc
from kvstore.wire.gen import health_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, wrap

_LEASE_ID_MASK: Final = (1 << 63) - 1
_SERVING: Final = health_pb2.HealthCheckResponse(
    status=health_pb2.HealthCheckResponse.SERVING
).SerializeToString()
_SERVICES: Final = health_pb2.HealthListResponse(
    statuses={"": health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)}
).SerializeToString()
_UNKNOWN_SERVICE: Final = Refusal(Code.NOT_FOUND, "unknown service")

# Go's gRPC and protobuf answer this to bytes that cannot be parsed (streams: MALFORMED_MESSAGE).
MALFORMED_REQUEST: Final = Refusal(
    Code.INTERNAL,
    "grpc: error unmarshalling request: proto:\u00a0cannot parse invalid wire-format data",
)


class Router:
    """Handles the calls of every method."""

    def __init__(
        self,
        parts: Parts,
        reads: Reads,
        jobs: LongJobs,
        cluster: Cluster,
        checker: AuthChecker,
        logins: AuthLogins,
        leadership: Leadership,
        budget: DiskBudget,
    ) -> None:
        self._parts = parts
        self._budget = budget
        self._time = parts.time
        self._reads = reads
        self._checker = checker
        self._leadership = leadership
        self._jobs = jobs
        self._out = Outbox()
        self._room_bytes = NO_LIMIT_BYTES  # a write of this cost or more is refused in this turn
        self._gap = 0  # entries committed and not applied
        self._is_behind = False  # the gap is too large: writes are refused
        self._is_learner = self._no_leader = self._is_fenced = False
        self._handlers: dict[int, Handler] = {
            rpc.RANGE: self._range,
            rpc.RANGE_STREAM: self._range_stream,
            rpc.PUT: self._put,
            rpc.DELETE_RANGE: self._delete_range,
            rpc.TXN: self._txn,
            rpc.COMPACT: self._compact,
            rpc.LEASE_GRANT: self._lease_grant,
            rpc.LEASE_REVOKE: self._lease_revoke,
            rpc.LEASE_TIME_TO_LIVE: self._lease_time_to_live,
            rpc.LEASE_LEASES: self._lease_leases,
            rpc.MEMBER_LIST: self._member_list,
            rpc.ALARM: self._alarm,
            rpc.STATUS: self._status,
            rpc.DEFRAGMENT: self._defragment,
            rpc.HASH: self._hash,
            rpc.HASH_KV: self._hash_kv,
            rpc.SNAPSHOT: self._snapshot,
            rpc.MOVE_LEADER: self._move_leader,
            rpc.HEALTH_CHECK: self._health_check,
            rpc.HEALTH_LIST: self._health_list,
            rpc.HEALTH_WATCH: self._health_watch,
        }
        self._handlers |= cluster.handlers()
        self._handlers |= {method: partial(self._service, method) for method in rpc.COMPOSED}
        self._handlers |= logins.handlers(self._propose)

    def methods(self) -> frozenset[int]:
        """Return the ids of the methods served here (streams of messages are not)."""
        return frozenset(self._handlers)

    def admit(self, inbox: Inbox, out: Outbox) -> bool:
        """Handle every call of the inbox; return whether all were plain writes and reads."""
        self._out = out
        parts = self._parts
        raft = parts.raft
        if parts.state.alarms.no_space or parts.host.room.is_short:
            # What grows the store is not even written to the log, whose space is limited, too.
            self._room_bytes = 1
        else:
            self._room_bytes = parts.state.quota.room_bytes(parts.state.backend.size_in_use_bytes())
        self._gap = raft.committed - raft.applied
        self._is_behind = self._gap > parts.limits.apply_gap_max
        no_leader = raft.lead == 0
        own = parts.state.membership.members.get(parts.member_id)
        is_learner = own is not None and own.is_learner
        is_fenced = parts.replication.fence.refusal is not None
        if no_leader or is_learner or is_fenced or self._checker.is_enabled or self._is_behind:
            self._is_learner, self._no_leader, self._is_fenced = is_learner, no_leader, is_fenced
            for call in inbox.calls:
                self._admit_checked(call, inbox.metadata, out)
            return False
        return self._admit_free(inbox.calls, inbox.metadata, out)

    def _admit_free(self, calls: list[Call], metadata: Mapping[int, Metadata], out: Outbox) -> bool:
        """Handle calls that are refused for no other reason than their own contents.

        Returns as admit.
        """
        parts, reads = self._parts, self._reads
        ids, pending = parts.replication.request_ids, parts.replication.pending
        limits = self._room_bytes, parts.limits.request_bytes_max
        are_plain = True
        at, end = 0, len(calls)
        while at < end:
            at, runs, gets, local_gets = PLAIN_CALLS.recognize(calls, at, limits, ids.last)
            for field, call_ids, bodies, datas, keys, values in runs:
                ids.skip(len(datas))
                pending.add_run(datas, PlainRun(field, call_ids, bodies, keys, values))
            if gets:
                reads.add_gets(gets, serializable=False)
            if local_gets:
                reads.add_gets(local_gets, serializable=True)
            are_plain &= at == end
            while at < end:
                call_id, method, body = calls[at]
                at += 1
                carried = metadata.get(call_id) if metadata else None
                context = UNRESTRICTED if carried is None else CallContext(carried)
                self._handle(call_id, method, body, context, out)
                if at < end and calls[at][1] in RECOGNIZED:
                    break
        return are_plain

    def _admit_checked(self, call: Call, metadata: Mapping[int, Metadata], out: Outbox) -> None:
        """Handle a call that may be refused, or needs a credential."""
        call_id, method, body = call
        carried = metadata.get(call_id)
        refusal: Refusal | None = None
        context = UNRESTRICTED if carried is None else CallContext(carried)
        try:
            if self._is_learner and carried is not AS_ROOT and not _learner_serves(method, body):
                refusal = LEARNER_NOT_SUPPORTED
            elif self._no_leader and carried and carried.get(HAS_LEADER) == "true":
                refusal = NO_LEADER
            elif self._is_fenced and method in REFUSED_BEHIND_FENCE:
                refusal = self._parts.replication.fence.refusal
            elif self._checker.is_enabled:
                admitted = self._checker.admit(call_id, method, body, carried)
                if isinstance(admitted, Refusal):
                    refusal = admitted
                else:
                    context = admitted
        except DecodeError:
            refusal = _malformed(method)
        if refusal is not None:
            _refuse(call_id, method, refusal, out)
        else:
            self._handle(call_id, method, body, context, out)

    def _handle(
        self, call_id: int, method: int, body: bytes, context: CallContext, out: Outbox
    ) -> None:
        try:
            refusal = self._handlers[method](call_id, body, context)
        except DecodeError:
            refusal = _malformed(method)
        if refusal is not None:
            _refuse(call_id, method, refusal, out)

    # Writes.

    def _propose(
        self,
        call_id: int,
        field: int,
        body: bytes,
        credential: Credential,
        request: Message | None = None,
        verdict: Refusal | None = None,
        *,
        callback: ResultCallback | None = None,
    ) -> Refusal | None:
        """Propose a request for the log; credential: goes into the header of its entry."""
        if self._is_behind and not self._has_priority(field):
            return TOO_MANY_REQUESTS
        parts = self._parts
        request_id = parts.replication.request_ids.next()
        if credential is NO_CREDENTIAL:
            data = wrap(field, body, request_id)
        else:
            data = wrap(field, body, request_id, *credential)
        if len(data) > parts.limits.request_bytes_max:
            return REQUEST_TOO_LARGE
        if self._budget.is_counting and not self._budget.admits(field, body, len(data)):
            return NO_SPACE
        pending = parts.replication.pending
        waiter = Waiter(call_id, field, request, body, verdict, credential, callback)
        pending.add(data, waiter)
        return None

    def _has_priority(self, field: int) -> bool:
        """Return whether a request is accepted although the member is behind."""
        limits = self._parts.limits
        is_urgent = limits.priority_request and field == Field.LEASE_REVOKE
        return is_urgent and self._gap <= 2 * limits.apply_gap_max

    def _no_space(self, call_id: int) -> Refusal | None:
        """Refuse a write for lack of space: at once, or when the alarm it raises is applied."""
        parts = self._parts
        if parts.state.alarms.corrupt:  # which is also checked first when a request is applied
            return CORRUPT
        if parts.state.alarms.no_space or parts.host.room.is_short:
            return NO_SPACE
        return self.raise_no_space(call_id)

    def raise_no_space(self, call_id: int) -> Refusal | None:
        """Propose the NOSPACE alarm; the call is answered with NOSPACE when it is applied."""
        self._parts.state.quota.was_exceeded = True
        alarm = pb.AlarmRequest(
            action=pb.AlarmRequest.ACTIVATE,
            memberID=self._parts.member_id,
            alarm=pb.AlarmType.NOSPACE,
        )
        body = alarm.SerializeToString()
        return self._propose(call_id, Field.ALARM, body, NO_CREDENTIAL, None, NO_SPACE)

    def _put(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        request = pb.PutRequest.FromString(body)
        refusal = checks.check_put(request)
        if refusal is not None:
            return refusal
        # The estimated cost is at most the body's size and the overhead.
        room_bytes = self._room_bytes
        if len(body) + KEY_OVERHEAD_BYTES >= room_bytes <= put_cost_bytes(request):
            return self._no_space(call_id)
        return self._propose(call_id, Field.PUT, body, context.credential, request)

    def _delete_range(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        refusal = checks.check_delete_range(pb.DeleteRangeRequest.FromString(body))
        return refusal or self._propose(call_id, Field.DELETE_RANGE, body, context.credential)

    def _txn(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        request = pb.TxnRequest.FromString(body)
        refusal = checks.check_txn(request, self._parts.limits.txn_ops_max)
        if refusal is not None:
            return refusal
        if is_read_only(request):
            self._reads.add_txn(call_id, context, request, serializable=is_serializable(request))
            return None
        if txn_cost_bound(len(body)) >= self._room_bytes <= txn_cost_bytes(request):
            return self._no_space(call_id)
        return self._propose(call_id, Field.TXN, body, context.credential, request)

    def _compact(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        request = pb.CompactionRequest.FromString(body)
        return self._propose(call_id, Field.COMPACTION, body, context.credential, request)

    def _lease_grant(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        request = pb.LeaseGrantRequest.FromString(body)
        if self._room_bytes <= LEASE_COST_BYTES:
            return self._no_space(call_id)
        while request.ID == 0:
            request.ID = self._parts.replication.request_ids.next() & _LEASE_ID_MASK
        body = request.SerializeToString()
        return self._propose(call_id, Field.LEASE_GRANT, body, context.credential)

    def _lease_revoke(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        pb.LeaseRevokeRequest.FromString(body)
        return self._propose(call_id, Field.LEASE_REVOKE, body, context.credential)

    def _alarm(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        pb.AlarmRequest.FromString(body)
        return self._propose(call_id, Field.ALARM, body, context.credential)

    # Reads.

    def _range(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        request = pb.RangeRequest.FromString(body)
        refusal = checks.check_range(request)
        if refusal is None:
            self._reads.add_range(call_id, context, request)
        return refusal

    def _range_stream(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        request = pb.RangeRequest.FromString(body)
        refusal = checks.check_range_stream(request)
        if refusal is None:
            self._reads.add_range_stream(call_id, context, request)
        return refusal

    def _lease_time_to_live(
        self, call_id: int, body: bytes, context: CallContext
    ) -> Refusal | None:
        self._reads.add_time_to_live(
            call_id,
            context,
            pb.LeaseTimeToLiveRequest.FromString(body),
            for_peer=context.metadata is AS_PEER,
        )
        return None

    def _lease_leases(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        pb.LeaseLeasesRequest.FromString(body)
        self._reads.add_leases(call_id, context)
        return None

    def _member_list(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        request = pb.MemberListRequest.FromString(body)
        self._reads.add_member_list(call_id, context, linearizable=request.linearizable)
        return None

    # Maintenance and health.

    def _status(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        pb.StatusRequest.FromString(body)
        self._reads.add_status(call_id, context)
        return None

    def _defragment(self, call_id: int, body: bytes, _context: CallContext) -> Refusal | None:
        pb.DefragmentRequest.FromString(body)
        self._jobs.defragment(call_id)
        return None

    def _hash(self, call_id: int, body: bytes, _context: CallContext) -> Refusal | None:
        pb.HashRequest.FromString(body)
        self._jobs.hash(call_id)
        return None

    def _hash_kv(self, call_id: int, body: bytes, _context: CallContext) -> Refusal | None:
        self._jobs.hash_kv(call_id, pb.HashKVRequest.FromString(body).revision)
        return None

    def _snapshot(self, call_id: int, body: bytes, _context: CallContext) -> Refusal | None:
        pb.SnapshotRequest.FromString(body)
        self._jobs.snapshot(call_id)
        return None

    def _move_leader(self, call_id: int, body: bytes, _context: CallContext) -> Refusal | None:
        """Transfer leadership; answered when the target leads."""
        target = pb.MoveLeaderRequest.FromString(body).targetID
        parts = self._parts
        if not parts.raft.is_leader:
            return NOT_LEADER
        member = parts.state.membership.members.get(target)
        if member is None or member.is_learner:
            return BAD_LEADER_TRANSFEREE
        if target == parts.member_id:
            self._out.replies.append((call_id, Code.OK, b""))
        else:
            self._leadership.move(call_id, target, self._time.now_ns)
        return None

    def _service(
        self, method: int, call_id: int, body: bytes, context: CallContext
    ) -> Refusal | None:
        """Put the call of a composed method into the outbox as it is."""
        self._out.services.append((call_id, method, body, context.metadata))
        return None

    def _health_check(self, call_id: int, body: bytes, _context: CallContext) -> Refusal | None:
        if health_pb2.HealthCheckRequest.FromString(body).service:
            return _UNKNOWN_SERVICE
        self._out.replies.append((call_id, Code.OK, _SERVING))
        return None

    def _health_list(self, call_id: int, body: bytes, _context: CallContext) -> Refusal | None:
        health_pb2.HealthListRequest.FromString(body)
        self._out.replies.append((call_id, Code.OK, _SERVICES))
        return None

    def _health_watch(self, call_id: int, body: bytes, _context: CallContext) -> Refusal | None:
        if health_pb2.HealthCheckRequest.FromString(body).service:
            return _UNKNOWN_SERVICE
        self._out.deliveries.append((call_id, _SERVING, b""))  # it stays open and never changes
        return None


def _malformed(method: int) -> Refusal:
    return MALFORMED_MESSAGE if method in rpc.SERVER_STREAMS else MALFORMED_REQUEST


def _refuse(call_id: int, method: int, refusal: Refusal, out: Outbox) -> None:
    (out.end if method in rpc.SERVER_STREAMS else out.refuse)(call_id, refusal)


def _learner_serves(method: int, body: bytes) -> bool:
    """Return whether a learner, whose log may lag far behind, serves a call."""
    if method == rpc.RANGE:
        return pb.RangeRequest.FromString(body).serializable
    return method in (rpc.STATUS, rpc.SNAPSHOT)
