"""What clients of a cluster did and got, and whether one store could have answered so.

Revisions are a total order of all that was written. The history the cluster shows in the end, read
by a watch from the first revision on, is replayed through the simulation's model of a store:

    revision 7: events [put a=3:41] ◄── whose? the call that was acknowledged at 7,
                                        or one of those nobody knows the outcome of,
                                        or the end of a lease
                model.apply(its request) must make just these events and just the answer it got

- Every acknowledged write is in the history once, at its revision. Values are unique, so a write
  that was done twice is a revision without an owner.
- Who was refused in a way that says that nothing was done does not own any.
- Reads, of the present and of the past, are the model's at the revision in their header.
- Real time: what is asked after something was told is at no smaller revision (a write: a greater
  one). With the above that is linearizability.
- Watchers: ordered, complete from where they began, nothing twice, revisions not torn apart.
- A lease ends no sooner than was promised.
"""

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import Message

from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field
from tests.sim.model import StoreModel

FIELDS: Final = {
    pb.PutRequest: Field.PUT,
    pb.DeleteRangeRequest: Field.DELETE_RANGE,
    pb.TxnRequest: Field.TXN,
    pb.LeaseGrantRequest: Field.LEASE_GRANT,
    pb.LeaseRevokeRequest: Field.LEASE_REVOKE,
}
WRITES: Final = tuple(FIELDS)
REVOKE: Final = pb.LeaseRevokeRequest
EARLY_S: Final = 0.02  # clocks that are read in different threads


@dataclass(slots=True, eq=False)
class Call:
    """One attempt at one request."""

    request: Message
    member: str
    begin_s: float
    end_s: float = 0.0
    response: Any = None  # None: the outcome is unknown, or it is known that nothing was done
    is_refused: bool = False  # nothing was done
    error: str = ""

    @property
    def revision(self) -> int:
        """The revision it was answered at; 0 for none."""
        return int(self.response.header.revision) if self.response is not None else 0


@dataclass(slots=True, eq=False)
class Seen:
    """What one watcher of a range got: (when, events) of each response."""

    key: bytes
    range_end: bytes
    first: int  # revision
    responses: list[tuple[float, list[Any]]] = field(default_factory=list)

    @property
    def next_revision(self) -> int:
        """From where it goes on after its stream broke."""
        return int(self.responses[-1][1][-1].kv.mod_revision) + 1 if self.responses else self.first


@dataclass(slots=True)
class History:
    """All that was recorded; threads add to it."""

    calls: list[Call] = field(default_factory=list)
    watchers: list[Seen] = field(default_factory=list)
    renewals: dict[int, float] = field(
        default_factory=dict
    )  # lease → it lives until then, at least
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, request: Message, member: str) -> Call:
        """Note that a call leaves now."""
        call = Call(request, member, time.monotonic())
        with self.lock:
            self.calls.append(call)
        return call

    def promise(self, lease: int, begin_s: float, ttl_s: int) -> None:
        """Note that a lease was granted or renewed by a call that began then."""
        with self.lock:
            self.renewals[lease] = max(self.renewals.get(lease, 0.0), begin_s + ttl_s)

    @property
    def acknowledged(self) -> list[Call]:
        """The writes that were acknowledged."""
        return [
            each for each in self.calls if each.response is not None and _is_write(each.request)
        ]


class Checker:
    """Holds a history against the events the cluster shows."""

    def __init__(self, history: History, events: list[Any], min_ttl_s: int) -> None:
        self.history = history
        self.model = StoreModel(min_ttl_s)
        self.events: dict[int, list[Any]] = defaultdict(list)
        for event in events:
            self.events[event.kv.mod_revision].append(event)
        self._owners: dict[int, Call] = {}
        self._unsure: list[Call] = []
        self._grants: list[Call] = []
        self._ended_at: dict[int, int] = {}  # revision → lease whose end it is
        self._floors = _Floors(history)

    def check(self) -> StoreModel:
        """Check everything; return the model as it is in the end. AssertionError names a breach."""
        self._sort_calls()
        for revision in range(2, max(self.events, default=1) + 1):
            self._replay(revision)
        leftover = {revision: call for revision, call in self._owners.items() if revision}
        assert not leftover, f"acknowledged and lost: {leftover}"
        self._check_reads()
        self._check_times()
        for seen in self.history.watchers:
            self._check_watcher(seen)
        self._check_leases()
        return self.model

    def _sort_calls(self) -> None:
        for call in self.history.calls:
            kind = type(call.request)
            if not _is_write(call.request) or call.is_refused:
                continue
            if call.response is None:
                self._unsure.append(call)
            elif kind is pb.LeaseGrantRequest:
                self._grants.append(call)
            elif _has_changed(call):
                other = self._owners.setdefault(call.revision, call)
                assert other is call, f"two writes at revision {call.revision}: {other}, {call}"
        self._grants.sort(key=lambda call: call.revision, reverse=True)

    def _replay(self, revision: int) -> None:
        events = self.events.get(revision)
        assert events, f"there is no event of revision {revision}"
        while self._grants and self._grants[-1].revision < revision:
            grant = self._grants.pop().request
            self.model.apply(Field.LEASE_GRANT, grant.SerializeToString())
        owner = self._owners.pop(revision, None)
        if owner is None:
            self._replay_unowned(revision, events)
            return
        expected = self.model.apply(_field(owner.request), owner.request.SerializeToString())
        assert not isinstance(expected, str), f"{owner} at {revision} must be refused: {expected}"
        assert expected is not None
        _assert_same(owner, expected, revision)
        assert _same_events(self._model_events(revision), events), f"{owner} made {events}"

    def _replay_unowned(self, revision: int, events: list[Any]) -> None:
        """Find who did it among those that do not know, and the leases that may end."""
        keys = {event.kv.key for event in events}
        if all(event.type == event.DELETE for event in events):
            for lease, held in self.model.leases.items():
                if held.keys == keys:
                    request = pb.LeaseRevokeRequest(ID=lease)
                    self.model.apply(Field.LEASE_REVOKE, request.SerializeToString())
                    self._ended_at[revision] = lease
                    assert _same_events(self._model_events(revision), events)
                    return
        for call in self._unsure:
            if not self._could_be(call, revision, events):
                continue
            self.model.apply(_field(call.request), call.request.SerializeToString())
            if _same_events(self._model_events(revision), events):
                self._unsure.remove(call)
                return
            raise AssertionError(f"{call} at {revision} made {events}")
        raise AssertionError(f"nobody asked for revision {revision}: {events}")

    def _could_be(self, call: Call, revision: int, events: list[Any]) -> bool:
        if self._floors.at(call.begin_s) >= revision:
            return False
        told = _tags(call.request)
        made = {event.kv.value for event in events if event.type == event.PUT}
        if made:
            return bool(made & told)
        keys = {event.kv.key for event in events}
        request = call.request
        return isinstance(request, pb.DeleteRangeRequest) and keys == {
            kv.key for kv in self.model.live(request.key, request.range_end, self.model.revision)
        }

    def _model_events(self, revision: int) -> list[tuple[bytes, bytes, bool]]:
        return [(row.key, row.kv, row.tombstone) for row in self.model.rows_from(revision)]

    def _check_reads(self) -> None:
        model = self.model
        for call in self.history.calls:
            response, request = call.response, call.request
            if response is None:
                continue
            now = call.revision
            assert now <= model.revision, f"{call} is of the future of {model.revision}"
            if isinstance(request, pb.RangeRequest):
                _assert_same(call, model.range(request, now), now)
            elif isinstance(request, pb.TxnRequest) and not _is_write(request):
                _assert_same(call, model.read_txn(request, now), now)
            elif isinstance(request, pb.DeleteRangeRequest) and not response.deleted:
                assert not model.live(request.key, request.range_end, now), call
            elif isinstance(request, pb.LeaseRevokeRequest):
                held = [kv for kv in model.live(b"\0", b"\0", now) if kv.lease == request.ID]
                assert not held, f"{call} has left {held}"

    def _check_times(self) -> None:
        for call in self.history.calls:
            if call.response is None or getattr(call.request, "serializable", False):
                continue
            floor = self._floors.at(call.begin_s)
            if _is_write(call.request) and _has_changed(call):
                floor += 1
            assert call.revision >= floor, f"{call} was answered from before {floor}"

    def _check_watcher(self, seen: Seen) -> None:
        last = seen.first - 1
        got: list[Any] = []
        for _, events in seen.responses:
            revisions = [event.kv.mod_revision for event in events]
            assert revisions == sorted(revisions), f"a watcher got {revisions}"
            assert revisions[0] > last, f"a watcher got {revisions} after {last}"
            last = revisions[-1]
            got += events
        must = [
            event
            for revision in range(seen.first, last + 1)
            for event in self.events[revision]
            if _is_in(event.kv.key, seen.key, seen.range_end)
        ]
        for one, other in zip(got, must, strict=False):
            assert one == other, f"a watcher got {one} instead of {other}"
        assert len(got) == len(must), f"a watcher got {len(got)} events of {len(must)}"

    def _check_leases(self) -> None:
        calls = self.history.calls
        revoked = {each.request.ID for each in calls if isinstance(each.request, REVOKE)}
        for seen in self.history.watchers:
            for when_s, events in seen.responses:
                for event in events:
                    lease = self._ended_at.get(event.kv.mod_revision)
                    if lease is None or lease in revoked:
                        continue
                    early_s = self.history.renewals.get(lease, 0.0) - when_s
                    assert early_s < EARLY_S, f"lease {lease} ended {early_s} s early"


class _Floors:
    """What must be known at a time: the greatest revision in any answer before."""

    def __init__(self, history: History) -> None:
        told = [(call.end_s, call.revision) for call in history.calls if call.response is not None]
        for seen in history.watchers:
            told += [(when_s, events[-1].kv.mod_revision) for when_s, events in seen.responses]
        self._times: list[float] = []
        self._revisions: list[int] = []
        most = 1
        for when_s, revision in sorted(told):
            most = max(most, revision)
            self._times.append(when_s)
            self._revisions.append(most)

    def at(self, when_s: float) -> int:
        at = bisect_left(self._times, when_s)
        return self._revisions[at - 1] if at else 1


def _is_write(request: Message) -> bool:
    if isinstance(request, pb.TxnRequest):
        return _writes(request)
    return isinstance(request, WRITES)


def _writes(request: pb.TxnRequest) -> bool:
    return any(
        not op.HasField("request_range")
        and (not op.HasField("request_txn") or _writes(op.request_txn))
        for op in [*request.success, *request.failure]
    )


def _field(request: Message) -> int:
    return FIELDS[type(request)]


def _has_changed(call: Call) -> bool:
    """Whether an acknowledged write has a revision of its own. Our transactions always put."""
    match call.request:
        case pb.PutRequest() | pb.TxnRequest():
            return True
        case pb.DeleteRangeRequest():
            return bool(call.response.deleted)
        case _:  # leases: a revoke may delete or not, the events tell
            return False


def _tags(request: Message) -> set[bytes]:
    """Return the values a request may put: they are its alone."""
    if isinstance(request, pb.PutRequest):
        return {request.value}
    if not isinstance(request, pb.TxnRequest):
        return set()
    found: set[bytes] = set()
    for op in [*request.success, *request.failure]:
        found |= _tags(op.request_put) if op.HasField("request_put") else _tags(op.request_txn)
    return found


def _assert_same(call: Call, expected: Message, revision: int) -> None:
    response = type(call.response)()
    response.CopyFrom(call.response)
    wanted = type(call.response)()
    wanted.CopyFrom(expected)
    _forget_headers(response)
    _forget_headers(wanted)
    assert response == wanted, f"at {revision}: {call.request} got {response} instead of {wanted}"


def _forget_headers(message: Any) -> None:
    message.ClearField("header")
    if isinstance(message, pb.TxnResponse):
        for each in message.responses:
            _forget_headers(getattr(each, each.WhichOneof("response")))


def _same_events(made: list[tuple[bytes, bytes, bool]], events: list[Any]) -> bool:
    return made == [
        (
            event.kv.key,
            _stored(event),
            event.type == event.DELETE,
        )
        for event in events
    ]


def _stored(event: Any) -> bytes:
    """Return the row an event tells of; a tombstone's row holds the key alone."""
    kv = event.kv
    if event.type == event.DELETE:
        return type(kv)(key=kv.key).SerializeToString()
    return kv.SerializeToString()


def _is_in(key: bytes, first: bytes, range_end: bytes) -> bool:
    if not range_end:
        return key == first
    return key >= first and (range_end == b"\0" or key < range_end)
