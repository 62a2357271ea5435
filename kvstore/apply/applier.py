"""Applies one committed request: the result is response bytes, or a refusal that changed nothing.

Checks are made in etcd's order: CORRUPT alarm, NOSPACE alarm, permission, quota, store. They depend
only on replicated state and on the credential in the entry's header, so every member decides alike.
The quota is the exception etcd makes: a write above it is performed and then answered with NOSPACE,
and the alarm is raised.

Requests are identified by their field number in InternalRaftRequest. What an entry means to
watchers is collected in `events`, in order. The waiters for the result are not known here.

Rule: what belongs to one entry (credential, index) comes as an argument and is kept nowhere.
"""

from collections.abc import Iterable
from operator import add
from typing import TYPE_CHECKING, Final

from kvstore.apply.alarms import Alarms
from kvstore.apply.auth_guard import WRITE, Guard
from kvstore.apply.auth_requests import AuthRequests
from kvstore.apply.compare_and_put import Swap, Swaps, run_swaps
from kvstore.apply.entry_context import EntryContext
from kvstore.apply.membership import Membership
from kvstore.apply.quota import (
    KEY_OVERHEAD_BYTES,
    LEASE_COST_BYTES,
    NO_LIMIT_BYTES,
    Quota,
    put_cost_bytes,
    txn_cost_bound,
    txn_cost_bytes,
)
from kvstore.apply.txn import Result, TxnRunner, bind_lease, check_put, resolve_put
from kvstore.auth.store import AuthStore
from kvstore.auth.tokens import Credential
from kvstore.backend import Backend
from kvstore.errors import CORRUPT, NO_SPACE, CorruptionError, Refusal
from kvstore.lease.lessor import Lessor
from kvstore.mvcc.store import Event, Store
from kvstore.wire import splice
from kvstore.wire.columns import ABSENT, GOT
from kvstore.wire.gen import membership_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field
from kvstore.wire.splice import HeaderMaker

if TYPE_CHECKING:
    from collections.abc import Callable

_REFUSED_WHEN_CORRUPT: Final = frozenset(
    {
        Field.PUT,
        Field.RANGE,
        Field.DELETE_RANGE,
        Field.TXN,
        Field.COMPACTION,
        Field.LEASE_GRANT,
        Field.LEASE_REVOKE,
    }
)
_EMPTY: Final = b""

# Requests that are in the log only for the answer of the member that proposed them.
_ANSWERED_BY_PROPOSER_ONLY: Final = frozenset({Field.RANGE, Field.DOWNGRADE_VERSION_TEST})


class Applier:
    """Applies requests to the state of one member."""

    def __init__(
        self,
        *,
        backend: Backend,
        store: Store,
        lessor: Lessor,
        alarms: Alarms,
        membership: Membership,
        quota: Quota,
        headers: HeaderMaker,
        auth: AuthStore,
    ) -> None:
        self._backend = backend
        self._store = store
        self._lessor = lessor
        self._alarms = alarms
        self._membership = membership
        self._quota = quota
        self._headers = headers
        self._auth = auth
        self.guard = Guard(auth, lessor)
        self._auth_requests = AuthRequests(auth, self.header)
        self._auth_fields = self._auth_requests.fields
        self.term = 0  # raft's, for response headers
        self._room_bytes = NO_LIMIT_BYTES  # a write of this cost or more exceeds the quota
        self.events: list[Event] = []  # since they were last taken
        self.over_quota = False  # a write exceeded the quota: the caller proposes the alarm
        self.txns = TxnRunner(store, lessor)
        self._handlers: dict[int, Callable[[bytes, EntryContext], Result]] = {
            Field.DELETE_RANGE: self._delete_range,
            Field.TXN: self._txn_bytes,
            Field.COMPACTION: self._compaction,
            Field.LEASE_GRANT: self._lease_grant,
            Field.LEASE_REVOKE: self._lease_revoke,
            Field.LEASE_CHECKPOINT: self._lease_checkpoint,
            Field.ALARM: self._alarm,
            Field.CLUSTER_VERSION_SET: self._cluster_version_set,
            Field.CLUSTER_MEMBER_ATTR_SET: self._member_attributes,
            Field.DOWNGRADE_INFO_SET: self._downgrade_info,
        }

    def begin_batch(self, term: int) -> None:
        """Set what is the same for a batch of entries: raft's term, and the room for writes."""
        self.term = term
        self._room_bytes = self._quota.room_bytes(self._backend.size_in_use_bytes())

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        taken, self.events = self.events, []
        return taken

    def header(self) -> bytes:
        """Return the encoded header field of a response at the current revision."""
        return self._headers.field(self._store.revision, self.term)

    def apply(self, field: int, body: bytes, context: EntryContext) -> Result:
        """Apply one request given as bytes and return its response or why it was refused.

        An unknown request means that this binary does not understand the log: CorruptionError.
        """
        if field == Field.PUT:
            return self.put(pb.PutRequest.FromString(body), context.credential)
        if field in _ANSWERED_BY_PROPOSER_ONLY:
            return _EMPTY
        if field in self._auth_fields:
            return self._auth_requests.apply(field, body, context)
        handler = self._handlers.get(field)
        if handler is None:
            raise CorruptionError(
                f"the log contains a request of kind {field}, which this version cannot apply"
            )
        if self._alarms.corrupt and field in _REFUSED_WHEN_CORRUPT:
            return CORRUPT
        return handler(body, context)

    def put(self, request: pb.PutRequest, credential: Credential) -> Result:
        """Apply one put."""
        alarms = self._alarms
        if alarms.corrupt:
            return CORRUPT
        if alarms.no_space:
            return NO_SPACE
        if self._auth.enabled and (denied := self.guard.put(credential, request)) is not None:
            return denied
        store = self._store
        lessor = self._lessor
        key = request.key
        lease = request.lease
        if lease or request.prev_kv or request.ignore_value or request.ignore_lease:
            refusal = check_put(store, lessor, request)
            if refusal is not None:
                return refusal
            value, lease, previous = resolve_put(store, request)
            prev_kv = previous if request.prev_kv else None
            cost = put_cost_bytes(request)
        else:
            value = request.value
            prev_kv = None
            cost = KEY_OVERHEAD_BYTES + len(key) + len(value)
        event = store.put_one(key, value, lease)
        if lease or lessor.has_keys:
            bind_lease(lessor, key, lease)
        self.events.append(event)
        if cost >= self._room_bytes:
            self.over_quota = True
            return NO_SPACE
        header = self._headers.field(event.main, self.term)
        return header if prev_kv is None else splice.put_response(header, prev_kv)

    def put_run(self, keys: list[bytes], values: list[bytes]) -> int | None:
        """Apply puts that follow one another in the log (the hot path); return the first revision.

        None, with nothing done, if each must be applied by put().
        """
        if not self._may_run(map(len, keys), values):
            return None
        events = self._store.put_run(keys, values)
        self.events += events
        lessor = self._lessor
        if lessor.has_keys:
            for key in keys:
                bind_lease(lessor, key, 0)
        return self._store.revision + 1 - len(keys)

    def swap_run(self, swaps: list[Swap], values: list[bytes]) -> Swaps | None:
        """Apply planned transactions that follow one another in the log (a hot path).

        The results are those of txn() of their requests. None, with nothing done, if each must be
        applied by txn().
        """
        if not self._may_run((len(swap[4]) for swap in swaps), values):
            return None
        found = run_swaps(self._store, self._lessor, swaps, values)
        self.events += found.events
        reads = found.outcomes.count(ABSENT) + found.outcomes.count(GOT)
        self.txns.range_count += len(found.outcomes) + reads
        return found

    def _may_run(self, key_sizes: Iterable[int], values: list[bytes]) -> bool:
        """Return whether writes are refused for no other reason than those of each request."""
        alarms = self._alarms
        if alarms.corrupt or alarms.no_space or self._auth.enabled:
            return False
        largest: int = max(map(add, key_sizes, map(len, values)))
        return largest + KEY_OVERHEAD_BYTES < self._room_bytes

    def header_parts(self) -> tuple[bytes, bytes]:
        """Return what the headers of responses to a run have in common; see wire.columns."""
        return self._headers.parts(self.term)

    def txn(self, request: pb.TxnRequest, credential: Credential) -> Result:
        """Apply one transaction."""
        if self._alarms.corrupt:
            return CORRUPT
        if self._alarms.no_space and txn_cost_bytes(request) > 0:
            return NO_SPACE
        if self._auth.enabled and (denied := self.guard.txn(credential, request)) is not None:
            return denied
        room_bytes = self._room_bytes
        fits = (
            txn_cost_bound(request.ByteSize()) < room_bytes or txn_cost_bytes(request) < room_bytes
        )
        outcome = self.txns.run(request)
        if isinstance(outcome, Refusal):
            return outcome
        succeeded, ops, events = outcome
        self.events += events
        if not fits:
            self.over_quota = True
            return NO_SPACE
        return splice.txn_response(self.header(), succeeded, ops)

    def _txn_bytes(self, body: bytes, context: EntryContext) -> Result:
        return self.txn(pb.TxnRequest.FromString(body), context.credential)

    def _delete_range(self, body: bytes, context: EntryContext) -> Result:
        request = pb.DeleteRangeRequest.FromString(body)
        denied = self.guard.delete_range(context.credential, request)
        if denied is not None:
            return denied
        store = self._store
        previous: list[bytes] = []
        if request.prev_kv:
            found = store.range(request.key, request.range_end)
            previous = [] if isinstance(found, Refusal) else found.kvs
        store.begin()
        store.delete_range(request.key, request.range_end)
        events = store.end()
        for event in events:
            self._lessor.detach(event.key)
        self.events += events
        return splice.delete_response(self.header(), len(events), previous)

    def _compaction(self, body: bytes, _context: EntryContext) -> Result:
        request = pb.CompactionRequest.FromString(body)
        refusal = self._store.compact(request.revision)
        return self.header() if refusal is None else refusal

    def _lease_grant(self, body: bytes, context: EntryContext) -> Result:
        request = pb.LeaseGrantRequest.FromString(body)
        if self._alarms.no_space:
            return NO_SPACE
        fits = self._room_bytes > LEASE_COST_BYTES
        granted = self._lessor.grant(request.ID, request.TTL, context.now_ns)
        if isinstance(granted, Refusal):
            return granted
        if not fits:
            self.over_quota = True
            return NO_SPACE
        return splice.lease_response(self.header(), request.ID, granted)

    def _lease_revoke(self, body: bytes, context: EntryContext) -> Result:
        request = pb.LeaseRevokeRequest.FromString(body)
        if self._auth.enabled:
            denied = self.guard.lease_keys(context.credential, request.ID, WRITE)
            if denied is not None:
                return denied
        keys = self._lessor.revoke(request.ID)
        if isinstance(keys, Refusal):
            return keys
        if keys:
            store = self._store
            store.begin()
            for key in keys:
                store.delete_range(key, b"")
            self.events += store.end()
        return self.header()

    def _lease_checkpoint(self, body: bytes, _context: EntryContext) -> Result:
        request = pb.LeaseCheckpointRequest.FromString(body)
        for checkpoint in request.checkpoints:
            self._lessor.checkpoint(checkpoint.ID, checkpoint.remaining_TTL, persist=True)
        return self.header()

    def _alarm(self, body: bytes, _context: EntryContext) -> Result:
        request = pb.AlarmRequest.FromString(body)
        alarms = self._alarms
        alarm = (request.memberID, request.alarm)
        shown: list[tuple[int, int]] = []
        match request.action:
            case pb.AlarmRequest.GET:
                shown = alarms.raised(request.alarm)
            case pb.AlarmRequest.ACTIVATE if request.alarm != pb.AlarmType.NONE:
                alarms.activate(alarm)
                shown = [alarm]
            case pb.AlarmRequest.DEACTIVATE:
                shown = [alarm] if alarms.deactivate(alarm) else []
            case _:
                pass
        answer = pb.AlarmResponse(
            alarms=[pb.AlarmMember(memberID=member, alarm=kind) for member, kind in shown]  # type: ignore[arg-type]
        )
        return self.header() + answer.SerializeToString()

    def _cluster_version_set(self, body: bytes, _context: EntryContext) -> Result:
        request = membership_pb2.ClusterVersionSetRequest.FromString(body)
        self._membership.set_version(request.ver)
        return _EMPTY

    def _member_attributes(self, body: bytes, _context: EntryContext) -> Result:
        request = membership_pb2.ClusterMemberAttrSetRequest.FromString(body)
        attributes = request.member_attributes
        self._membership.set_attributes(
            request.member_ID, attributes.name, list(attributes.client_urls)
        )
        return _EMPTY

    def _downgrade_info(self, body: bytes, _context: EntryContext) -> Result:
        request = membership_pb2.DowngradeInfoSetRequest.FromString(body)
        self._membership.set_downgrade(request.ver if request.enabled else None)
        return _EMPTY
