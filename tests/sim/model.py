"""A plain model of the store: the log's requests applied one by one.

    apply(field, body) → the response it must have (header: revision alone), or the error text

Every version of every key is kept; a compaction only sets a mark. Any revision can therefore be
read: for a read that was answered late, a watcher that lags, a hash.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.gen.kv_pb2 import KeyValue
from kvstore.wire.internal import Field
from tests.support.models.mvcc_model import ModelRow, compaction_keep, hash_keep, hash_rows

COMPACTED = "etcdserver: mvcc: required revision has been compacted"
FUTURE = "etcdserver: mvcc: required revision is a future revision"
NO_LEASE = "etcdserver: requested lease not found"
LEASE_EXISTS = "etcdserver: lease already exists"
KEY_NOT_FOUND = "etcdserver: key not found"
NO_SPACE = "etcdserver: mvcc: database space exceeded"

Answer = Message | str
_R = pb.RangeRequest
_COLUMNS = {
    _R.KEY: "key",
    _R.VERSION: "version",
    _R.CREATE: "create_revision",
    _R.MOD: "mod_revision",
    _R.VALUE: "value",
}


@dataclass(slots=True)
class Key:
    """All versions of one key; kv None: deleted."""

    mains: list[int] = field(default_factory=list)
    kvs: list[KeyValue | None] = field(default_factory=list)

    def at(self, main: int) -> KeyValue | None:
        """Return the version at a revision."""
        at = bisect_right(self.mains, main)
        return self.kvs[at - 1] if at else None


@dataclass(slots=True)
class ModelLease:
    """A lease and the keys on it."""

    ttl_s: int
    keys: set[bytes] = field(default_factory=set)


class StoreModel:
    """One store; every member that has applied the same entries must be equal to it."""

    def __init__(self, min_ttl_s: int) -> None:
        self.min_ttl_s = min_ttl_s
        self.revision = 1
        self.compacted = -1
        self.compactions: list[int] = []
        self.rows: list[ModelRow] = []  # all there ever were
        self.leases: dict[int, ModelLease] = {}
        self.lease_changes = 0  # how often leases or their keys have changed
        self.alarms: set[int] = set()  # members without space
        self._keys: dict[bytes, Key] = {}
        self._order: list[bytes] = []
        self._lease_of: dict[bytes, int] = {}
        self._row_mains: list[int] = []
        self._sub = 0  # writes so far of the entry under way

    @property
    def no_space(self) -> bool:
        """Whether writes that grow the store are refused."""
        return bool(self.alarms)

    # Reads.

    def keys(self, key: bytes, range_end: bytes) -> list[bytes]:
        """Return the keys ever written of a range, ascending."""
        if not range_end:
            return [key] if key in self._keys else []
        first = bisect_left(self._order, key)
        end = len(self._order) if range_end == b"\0" else bisect_left(self._order, range_end)
        return self._order[first:end]

    def at(self, key: bytes, main: int) -> KeyValue | None:
        """Return a key's value at a revision."""
        found = self._keys.get(key)
        return found.at(main) if found else None

    def live(self, key: bytes, range_end: bytes, main: int) -> list[KeyValue]:
        """Return what a range holds at a revision, ascending."""
        found = (self._keys[each].at(main) for each in self.keys(key, range_end))
        return [kv for kv in found if kv is not None]

    def range(self, request: pb.RangeRequest, now: int) -> pb.RangeResponse:
        """Answer a range as of revision now; whether its revision may be read is not checked."""
        kvs = self.live(request.key, request.range_end, request.revision or now)
        answer = pb.RangeResponse(count=len(kvs))
        answer.header.revision = now
        if request.count_only:
            return answer
        kvs = [kv for kv in kvs if _passes(request, kv)]
        order = request.sort_order
        if order == _R.NONE and 0 < request.limit < len(kvs) and not _has_filters(request):
            kvs = kvs[: request.limit + 1]  # etcd applies the limit before it sorts
        if order == _R.NONE and request.sort_target != _R.KEY:
            order = _R.ASCEND
        if order != _R.NONE:
            column = _COLUMNS[request.sort_target]
            kvs.sort(key=lambda kv: getattr(kv, column), reverse=order == _R.DESCEND)
        answer.more = 0 < request.limit < len(kvs)
        for kv in kvs[: request.limit or None]:
            shown = answer.kvs.add()
            shown.CopyFrom(kv)
            if request.keys_only:
                shown.ClearField("value")
                if request.sort_target != _R.VALUE:
                    shown.ClearField("lease")
        return answer

    def hash_kv(self, revision: int, compacted: int) -> set[int]:
        """Return what HashKV may be at a revision of a store compacted there."""
        keep = compaction_keep(self.rows, compacted)
        rows = [row for row in self.rows if row.main > compacted or (row.main, row.sub) in keep]
        found = {hash_rows(rows, compacted, revision, hash_keep(rows, revision))}
        if revision in self.compactions:  # the hash computed by that compaction
            found.add(hash_rows(rows, compacted, revision, compaction_keep(rows, revision)))
        return found

    def left(self) -> list[ModelRow]:
        """Return the rows that remain after the last compaction."""
        keep = compaction_keep(self.rows, self.compacted)
        return [row for row in self.rows if row.main > self.compacted or row[:2] in keep]

    def rows_from(self, main: int) -> Iterator[ModelRow]:
        """Return the rows from a revision on."""
        return iter(self.rows[bisect_left(self._row_mains, main) :])

    # Requests.

    def apply(self, request_field: int, body: bytes, denied: str = "") -> Answer | None:
        """Apply one request of the log; None: nobody is answered.

        denied: why its caller may not make it, or nothing.
        """
        self._sub = 0
        match request_field:
            case Field.PUT:
                if self.no_space or denied:
                    return NO_SPACE if self.no_space else denied
                return self._put_entry(_of(pb.PutRequest, body))
            case Field.DELETE_RANGE:
                return denied or self._end(self._delete(_of(pb.DeleteRangeRequest, body)))
            case Field.TXN:
                return self._txn_entry(_of(pb.TxnRequest, body), denied)
            case Field.COMPACTION:
                return self._compact(_of(pb.CompactionRequest, body).revision)
            case Field.LEASE_GRANT:
                return self._grant(_of(pb.LeaseGrantRequest, body))
            case Field.LEASE_REVOKE:
                return denied or self._revoke(_of(pb.LeaseRevokeRequest, body).ID)
            case Field.ALARM:
                return self._alarm(_of(pb.AlarmRequest, body))
            case _:
                return None

    def _end(self, answer: Any) -> Any:
        """End an entry: the revision goes up if anything was written."""
        self.revision += self._sub > 0
        self._sub = 0
        answer.header.revision = self.revision
        return answer

    @property
    def _now(self) -> int:
        return self.revision + (self._sub > 0)

    def _put_entry(self, request: pb.PutRequest) -> Answer:
        refusal = self._check_put(request)
        return refusal or self._end(self._put(request))

    def _check_put(self, request: pb.PutRequest) -> str:
        if request.lease and request.lease not in self.leases:
            return NO_LEASE
        if request.ignore_value or request.ignore_lease:
            return "" if self.at(request.key, self._now) else KEY_NOT_FOUND
        return ""

    def _put(self, request: pb.PutRequest) -> pb.PutResponse:
        key, main = request.key, self.revision + 1
        before = self.at(key, main)
        kv = KeyValue(
            key=key,
            create_revision=before.create_revision if before else main,
            mod_revision=main,
            version=before.version + 1 if before else 1,
            value=before.value if before and request.ignore_value else request.value,
            lease=before.lease if before and request.ignore_lease else request.lease,
        )
        self._write(key, kv, kv.SerializeToString(), tombstone=False)
        self._attach(key, kv.lease)
        answer = pb.PutResponse(prev_kv=before if before and request.prev_kv else None)
        answer.header.revision = main
        return answer

    def _delete(self, request: pb.DeleteRangeRequest) -> pb.DeleteRangeResponse:
        answer = pb.DeleteRangeResponse()
        for kv in self.live(request.key, request.range_end, self._now):
            answer.deleted += 1
            if request.prev_kv:
                answer.prev_kvs.add().CopyFrom(kv)
            self._remove(kv.key)
        answer.header.revision = self._now
        return answer

    def _remove(self, key: bytes) -> None:
        self._write(key, None, KeyValue(key=key).SerializeToString(), tombstone=True)
        self._attach(key, 0)

    def _write(self, key: bytes, kv: KeyValue | None, data: bytes, *, tombstone: bool) -> None:
        main = self.revision + 1
        versions = self._keys.get(key)
        if versions is None:
            versions = self._keys[key] = Key()
            self._order.insert(bisect_left(self._order, key), key)
        versions.mains.append(main)
        versions.kvs.append(kv)
        self.rows.append(ModelRow(main, self._sub, key, data, tombstone))
        self._row_mains.append(main)
        self._sub += 1

    def _attach(self, key: bytes, lease: int) -> None:
        old = self._lease_of.pop(key, 0)
        self.lease_changes += old != lease
        if old in self.leases:
            self.leases[old].keys.discard(key)
        if lease:
            self._lease_of[key] = lease
            self.leases[lease].keys.add(key)

    def _txn_entry(self, request: pb.TxnRequest, denied: str) -> Answer:
        if self.no_space and _puts_anything(request):
            return NO_SPACE
        if denied:
            return denied
        path = list(self._choose(request, self.revision))
        refusal = self._check(request, iter(path))
        return refusal or self._end(self._txn(request, iter(path), self.revision))

    def read_txn(self, request: pb.TxnRequest, now: int) -> pb.TxnResponse:
        """Answer a transaction that writes nothing, as of revision now."""
        answer = self._txn(request, self._choose(request, now), now)
        answer.header.revision = now
        return answer

    def _choose(self, request: pb.TxnRequest, now: int) -> Iterator[bool]:
        holds = all(self._holds(compare, now) for compare in request.compare)
        yield holds
        for op in request.success if holds else request.failure:
            if op.HasField("request_txn"):
                yield from self._choose(op.request_txn, now)

    def _holds(self, compare: pb.Compare, now: int) -> bool:
        kvs = self.live(compare.key, compare.range_end, now)
        if not kvs and compare.target == pb.Compare.VALUE:
            return False
        return all(_compares(compare, kv) for kv in kvs or [KeyValue()])

    def _check(self, request: pb.TxnRequest, path: Iterator[bool]) -> str:
        for op in request.success if next(path) else request.failure:
            refusal = ""
            if op.HasField("request_put"):
                refusal = self._check_put(op.request_put)
            elif op.HasField("request_txn"):
                refusal = self._check(op.request_txn, path)
            elif op.HasField("request_range"):
                refusal = self.readable(op.request_range.revision, self.revision)
            if refusal:
                return refusal
        return ""

    def readable(self, revision: int, now: int) -> str:
        """Return why a revision cannot be read, or nothing."""
        if revision > now:
            return FUTURE
        return COMPACTED if 0 < revision < self.compacted else ""

    def _txn(self, request: pb.TxnRequest, path: Iterator[bool], now: int) -> pb.TxnResponse:
        answer = pb.TxnResponse(succeeded=next(path))
        answer.header.SetInParent()
        for op in request.success if answer.succeeded else request.failure:
            shown = answer.responses.add()
            if op.HasField("request_put"):
                shown.response_put.CopyFrom(self._put(op.request_put))
            elif op.HasField("request_delete_range"):
                shown.response_delete_range.CopyFrom(self._delete(op.request_delete_range))
            elif op.HasField("request_range"):
                at = now + (self._sub > 0)
                shown.response_range.CopyFrom(self.range(op.request_range, at))
            else:
                shown.response_txn.CopyFrom(self._txn(op.request_txn, path, now))
        return answer

    def _compact(self, revision: int) -> Answer:
        if revision <= self.compacted:
            return COMPACTED
        if revision > self.revision:
            return FUTURE
        self.compacted = revision
        self.compactions.append(revision)
        return self._end(pb.CompactionResponse())

    def _grant(self, request: pb.LeaseGrantRequest) -> Answer:
        if self.no_space:
            return NO_SPACE
        if request.ID in self.leases:
            return LEASE_EXISTS
        ttl_s = max(request.TTL, self.min_ttl_s)
        self.leases[request.ID] = ModelLease(ttl_s)
        self.lease_changes += 1
        return self._end(pb.LeaseGrantResponse(ID=request.ID, TTL=ttl_s))

    def _revoke(self, lease: int) -> Answer:
        found = self.leases.pop(lease, None)
        if found is None:
            return NO_LEASE
        self.lease_changes += 1
        for key in sorted(found.keys):
            self._remove(key)
        return self._end(pb.LeaseRevokeResponse())

    def _alarm(self, request: pb.AlarmRequest) -> Answer:
        alarms, member = self.alarms, request.memberID
        shown: list[int] = []
        match request.action:
            case pb.AlarmRequest.GET:
                shown = sorted(alarms)
            case pb.AlarmRequest.ACTIVATE:
                alarms.add(member)
                shown = [member]
            case _:
                shown = [member] if member in alarms else []
                alarms.discard(member)
        answer = pb.AlarmResponse()
        for each in shown:
            answer.alarms.add(memberID=each, alarm=pb.AlarmType.NOSPACE)
        return self._end(answer)


def _of(kind: Any, body: bytes) -> Any:
    return kind.FromString(body)


def _has_filters(request: pb.RangeRequest) -> bool:
    return bool(
        request.min_mod_revision
        or request.max_mod_revision
        or request.min_create_revision
        or request.max_create_revision
    )


def _passes(request: pb.RangeRequest, kv: KeyValue) -> bool:
    least, most = request.min_mod_revision, request.max_mod_revision or 1 << 62
    first, last = request.min_create_revision, request.max_create_revision or 1 << 62
    return least <= kv.mod_revision <= most and first <= kv.create_revision <= last


def _puts_anything(request: pb.TxnRequest) -> bool:
    return any(
        op.HasField("request_put")
        or (op.HasField("request_txn") and _puts_anything(op.request_txn))
        for op in [*request.success, *request.failure]
    )


def _compares(compare: pb.Compare, kv: KeyValue) -> bool:
    names = {
        pb.Compare.VERSION: "version",
        pb.Compare.CREATE: "create_revision",
        pb.Compare.MOD: "mod_revision",
        pb.Compare.VALUE: "value",
        pb.Compare.LEASE: "lease",
    }
    name = names[compare.target]
    left, right = getattr(kv, name), getattr(compare, name)
    match compare.result:
        case pb.Compare.EQUAL:
            return bool(left == right)
        case pb.Compare.NOT_EQUAL:
            return bool(left != right)
        case pb.Compare.GREATER:
            return bool(left > right)
        case _:
            return bool(left < right)
