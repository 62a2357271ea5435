"""The clients of a cluster: their requests are drawn, the answers go to the checkers.

All clients of a world are one object, since only the mix of requests that arrive together matters.
Each call and stream goes to one member; a crash ends those of the crashed member. Watchers are
resumed at any member, and leases are used further. The operator, who adds and removes members, is
here as well.
"""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from kvstore.batch import AS_ROOT, HAS_LEADER, Inbox, Outbox, messages
from kvstore.errors import TIMEOUT, TIMEOUT_WAIT_APPLY
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.sim.access.auth_clients import AuthClients
from tests.sim.access.auth_model import ROOT
from tests.sim.calls import NOBODY, Call, Caller, CallerKind
from tests.sim.checks import UNSURE, Checker, tag
from tests.sim.drawn_requests import DrawnRequests, any_of
from tests.sim.options import Options
from tests.sim.violation import demand
from tests.sim.watches import Stream, Watches

EMPTY_KEY = "etcdserver: key is not provided"
_PROCESS = Caller(CallerKind.PROCESS, ROOT, metadata=AS_ROOT)
_R = pb.RangeRequest


@dataclass(slots=True)
class _KeepAlives:
    member: int
    caller: Caller
    asked: deque[Call] = field(default_factory=deque)
    is_closing: bool = False


class Clients:
    """All clients, and the operator."""

    def __init__(
        self, rng: random.Random, options: Options, checker: Checker, watches: Watches
    ) -> None:
        self._rng = rng
        self._options = options
        self._checker = checker
        self.watches = watches
        self.machines = options.members  # that exist, or were asked for
        self.chunks: dict[int, list[pb.RangeResponse]] = {}  # of range streams under way
        self.snapshots: set[int] = set()
        self.operations = 0
        self._users = AuthClients(rng, options, checker.auth)
        self._keep_alives: dict[int, _KeepAlives] = {}
        self._next_id = 1
        self._drawn = DrawnRequests(rng, options, checker)
        self._garbage: dict[int, int] = {}  # malformed calls → the member
        self._inbox = Inbox()
        self._member = 0  # that gets the requests
        self._now_ns = 0
        names = list(options.weights)
        self._names = names
        self._weights = [options.weights[name] for name in names]

    # Sending.

    def ask(self, member: int, now_ns: int, inbox: Inbox) -> None:
        """Put drawn requests into a member's inbox."""
        self._turn_to(member, now_ns, inbox)
        rng = self._rng
        for name in rng.choices(self._names, self._weights, k=rng.randrange(self._batch())):
            self.operations += 1
            getattr(self, f"_{name}")()
        self._continue_all()

    def continue_streams(self, member: int, now_ns: int, inbox: Inbox, *, learns: bool) -> None:
        """Continue streams without new requests; a learner serves no watchers."""
        self._turn_to(member, now_ns, inbox)
        if not learns:
            self._continue_all()
        for stream in self._streams():
            self.watches.read(stream, 1 << 30)

    def probe(self, member: int, now_ns: int, inbox: Inbox, *, learns: bool) -> None:
        """Send calls that must succeed without faults: a read, and to a voter a write."""
        self._turn_to(member, now_ns, inbox)
        caller = _PROCESS if self._checker.auth.enabled else NOBODY
        read = _R(key=b"\0", range_end=b"\0", serializable=learns)
        self._call(rpc.RANGE, read, caller=caller, serializable=learns, must_succeed=True)
        if not learns:
            nothing = pb.DeleteRangeRequest(key=b"nothing at all")  # which needs no room
            self._call(
                rpc.DELETE_RANGE, nothing, caller=caller, reads_only=False, must_succeed=True
            )
            password = self._users.password_of(ROOT)
            if self._checker.auth.enabled and password:
                login = pb.AuthenticateRequest(name=ROOT, password=password)
                self._call(rpc.AUTHENTICATE, login, caller=NOBODY, must_succeed=True)

    def _turn_to(self, member: int, now_ns: int, inbox: Inbox) -> None:
        self._member, self._inbox, self._now_ns = member, inbox, now_ns

    def _continue_all(self) -> None:
        rng = self._rng
        while self.watches.again:
            self._create(self.watches.again.pop())
        for stream in self._streams():
            if rng.random() < self._options.reading:
                self.watches.read(stream, rng.choice((10, 1000, 1 << 30)))

    def backlog(self, member: int) -> dict[int, int]:
        """Return the unread bytes of each stream of a member."""
        return {
            stream.id: stream.unread_bytes
            for stream in self.watches.streams.values()
            if stream.unread_bytes and stream.member == member
        }

    def _streams(self) -> list[Stream]:
        return [each for each in self.watches.streams.values() if each.member == self._member]

    def _batch(self) -> int:
        return self._options.batch_max + 1

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _call(
        self, method: int, request: Message, *, caller: Caller | None = None, **fields: Any
    ) -> None:
        call_id = self._take_id()
        body = request.SerializeToString() + tag(call_id)
        if caller is None:
            caller = self._users.caller(method)
        call = Call(call_id, method, request, body, caller=caller, member=self._member, **fields)
        self._checker.invoke(call, self._now_ns)
        self._inbox.calls.append((call.id, method, body))
        self._add_metadata(call_id, caller, may_want_leader=not (call.refusal or call.must_succeed))

    def _add_metadata(self, call_id: int, caller: Caller, *, may_want_leader: bool = True) -> None:
        metadata = caller.metadata
        if may_want_leader and self._rng.randrange(8) == 0:
            metadata = {**(metadata or {}), HAS_LEADER: "true"}
        if metadata is not None:
            self._inbox.metadata[call_id] = metadata

    def _write(self, method: int, request: Message, refusal: str = "") -> None:
        self._call(method, request, reads_only=bool(refusal), refusal=refusal)

    # Users.

    def _log_in(self) -> None:
        method, request = self._users.login()
        self._call(method, request, caller=NOBODY)

    def _administer(self) -> None:
        self._write(*self._users.administer())

    def _look_up(self) -> None:
        self._write(*self._users.look_up())

    def _switch_auth(self) -> None:
        self._write(*self._users.switch())

    # Calls.

    def _put(self) -> None:
        if self._rng.randrange(50) == 0:
            self._write(rpc.PUT, pb.PutRequest(value=b"v"), EMPTY_KEY)
        else:
            self._write(rpc.PUT, self._drawn.put(self._drawn.key()))

    def _delete(self) -> None:
        key, end = (
            self._drawn.range_of() if self._rng.randrange(4) == 0 else (self._drawn.key(), b"")
        )
        prev_kv = self._rng.randrange(2) == 0
        self._write(
            rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=key, range_end=end, prev_kv=prev_kv)
        )

    def _range(self) -> None:
        rng = self._rng
        request = self._drawn.range()
        if rng.randrange(4) == 0:
            request.sort_order = any_of(rng, _R.SortOrder)
            request.sort_target = any_of(rng, _R.SortTarget)
        if rng.randrange(6) == 0:
            top = self._checker.model.revision + 1
            request.min_mod_revision = rng.randrange(top)
            request.max_create_revision = rng.randrange(top)
        self._call(rpc.RANGE, request, serializable=request.serializable)

    def _range_stream(self) -> None:
        request = self._drawn.range()
        self._call(rpc.RANGE_STREAM, request, serializable=request.serializable)
        self.chunks[self._next_id] = []

    def _txn(self) -> None:
        rng = self._rng
        keys = self._options.keys[:]
        rng.shuffle(keys)
        request = self._drawn.txn(keys, depth=0)
        ops = [*request.success, *request.failure]
        if all(op.HasField("request_range") for op in ops):
            serializable = all(op.request_range.serializable for op in ops)
            self._call(rpc.TXN, request, serializable=serializable)
        else:
            self._write(rpc.TXN, request)

    def _compact(self) -> None:
        rng, model = self._rng, self._checker.model
        revision = rng.randrange(max(model.compacted - 2, 0), model.revision + 3)
        self._write(
            rpc.COMPACT, pb.CompactionRequest(revision=revision, physical=rng.randrange(2) == 0)
        )

    def _grant(self) -> None:
        rng = self._rng
        lease = rng.choice((0, rng.randrange(1, 1 << 62), self._drawn.lease()))
        ttl_s = rng.randrange(self._options.ttl_max_s)
        self._write(rpc.LEASE_GRANT, pb.LeaseGrantRequest(ID=lease, TTL=ttl_s))

    def _revoke(self) -> None:
        self._write(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=self._drawn.lease()))

    def _time_to_live(self) -> None:
        keys = self._rng.randrange(2) == 0
        request = pb.LeaseTimeToLiveRequest(ID=self._drawn.lease(), keys=keys)
        self._call(rpc.LEASE_TIME_TO_LIVE, request, serializable=True)

    def _leases(self) -> None:
        self._call(rpc.LEASE_LEASES, pb.LeaseLeasesRequest(), serializable=True)

    def _hash_kv(self) -> None:
        self._call(rpc.HASH_KV, pb.HashKVRequest(revision=self._drawn.past()), serializable=True)

    def _hash(self) -> None:
        self._call(rpc.HASH, pb.HashRequest(), serializable=True)

    def _defragment(self) -> None:
        self._call(rpc.DEFRAGMENT, pb.DefragmentRequest(), serializable=True)

    def _snapshot(self) -> None:
        self._call(rpc.SNAPSHOT, pb.SnapshotRequest(), serializable=True)
        self.snapshots.add(self._next_id)

    def _status(self) -> None:
        self._call(rpc.STATUS, pb.StatusRequest(), serializable=True)

    def _member_list(self) -> None:
        linearizable = self._rng.randrange(2) == 0
        request = pb.MemberListRequest(linearizable=linearizable)
        self._call(rpc.MEMBER_LIST, request, serializable=not linearizable)

    def _disarm(self) -> None:
        if self._options.quota_bytes:
            kind = self._rng.choice((pb.AlarmRequest.GET, pb.AlarmRequest.DEACTIVATE))
            request = pb.AlarmRequest(
                action=kind, memberID=self._any_member(), alarm=pb.AlarmType.NOSPACE
            )
            self._write(rpc.ALARM, request)

    # The operator.

    def _any_member(self) -> int:
        return self._rng.choice(sorted(self._checker.roster.members))

    def _member_add(self) -> None:
        """Ask for one more member; its machine is started once the change is applied."""
        rng, roster = self._rng, self._checker.roster
        if roster.has_version and len(roster.members) < self._options.members_max:
            self.machines += 1
            urls = [f"http://10.0.0.{self.machines}:2380"]
            request = pb.MemberAddRequest(peerURLs=urls, isLearner=rng.randrange(2) == 0)
            self._call(rpc.MEMBER_ADD, request)

    def _member_remove(self) -> None:
        if len(self._checker.roster.voters()) > 1:
            self._call(rpc.MEMBER_REMOVE, pb.MemberRemoveRequest(ID=self._any_member()))

    def _member_promote(self) -> None:
        learners = [
            each for each, known in self._checker.roster.members.items() if known.is_learner
        ]
        if learners:
            request = pb.MemberPromoteRequest(ID=self._rng.choice(sorted(learners)))
            self._call(rpc.MEMBER_PROMOTE, request)

    def _member_update(self) -> None:
        rng, members = self._rng, self._checker.roster.members
        member = self._any_member()
        first = min(members[member].peer_urls)
        more = [first.replace(":2380", f":{port}") for port in (2381, 2382) if rng.randrange(2)]
        request = pb.MemberUpdateRequest(ID=member, peerURLs=[first, *more])
        self._call(rpc.MEMBER_UPDATE, request)

    def _move_leader(self) -> None:
        self._call(rpc.MOVE_LEADER, pb.MoveLeaderRequest(targetID=self._any_member()))

    def _broken(self) -> None:
        """Send bytes that are no request: other calls of the batch must not be affected."""
        self._inbox.calls.append((self._take_id(), rpc.PUT, b"\xff\xff"))
        self._garbage[self._next_id] = self._member

    def _vanish(self) -> None:
        """Disconnect a client that waits for an answer."""
        waiting = [
            each
            for each in self._checker.calls.values()
            if not each.gone and each.member == self._member
        ]
        arrived = {call_id for call_id, _, _ in self._inbox.calls}
        waiting = [each for each in waiting if each.id not in arrived]
        if waiting:
            call = self._rng.choice(waiting)
            call.gone = True
            self._inbox.gone.append(call.id)
            self.chunks.pop(call.id, None)
            self.snapshots.discard(call.id)

    # Streams.

    def _watch(self) -> None:
        rng = self._rng
        key, end = self._drawn.range_of()
        create = pb.WatchCreateRequest(
            key=key,
            range_end=end,
            start_revision=self._drawn.past(),
            prev_kv=rng.randrange(2) == 0,
            progress_notify=rng.randrange(2) == 0,
            fragment=rng.randrange(2) == 0,
            watch_id=rng.choice((0, 0, 0, rng.randrange(8))),
        )
        if rng.randrange(5) == 0:
            create.filters.append(any_of(rng, pb.WatchCreateRequest.FilterType))
        self._create(create)

    def _create(self, create: pb.WatchCreateRequest) -> None:
        rng, streams = self._rng, self._streams()
        if streams and (rng.randrange(3) or len(streams) > 5):
            stream = rng.choice(streams)
        else:
            stream = Stream(self._take_id(), self._member, self._users.caller(rpc.WATCH))
            self.watches.streams[stream.id] = stream
            self._inbox.opened.append((stream.id, rpc.WATCH))
            self._add_metadata(stream.id, stream.caller)
        stream.creates.append((create, self._checker.applied.get(self._member, 0)))
        self._frame(stream.id, pb.WatchRequest(create_request=create))

    def _frame(self, stream_id: int, request: Message) -> None:
        self._inbox.frames.append((stream_id, request.SerializeToString()))

    def _unwatch(self) -> None:
        rng, streams = self._rng, self._streams()
        if streams:
            stream = rng.choice(streams)
            if stream.watchers:
                watch_id = rng.choice(list(stream.watchers))
                if watch_id not in stream.canceling:
                    stream.canceling.add(watch_id)
                    cancel = pb.WatchCancelRequest(watch_id=watch_id)
                    self._frame(stream.id, pb.WatchRequest(cancel_request=cancel))

    def _progress(self) -> None:
        streams = self._streams()
        if streams:
            stream = self._rng.choice(streams)
            self._frame(stream.id, pb.WatchRequest(progress_request=pb.WatchProgressRequest()))

    def _renewals(self) -> dict[int, _KeepAlives]:
        return {
            each: stream
            for each, stream in self._keep_alives.items()
            if stream.member == self._member
        }

    def _keep_alive(self) -> None:
        rng = self._rng
        streams = [each for each, stream in self._renewals().items() if not stream.is_closing]
        if not streams or (len(streams) < 3 and rng.randrange(4) == 0):
            streams.append(self._take_id())
            caller = self._users.caller(rpc.LEASE_KEEP_ALIVE)
            self._keep_alives[self._next_id] = _KeepAlives(self._member, caller)
            self._inbox.opened.append((self._next_id, rpc.LEASE_KEEP_ALIVE))
            self._add_metadata(self._next_id, caller)
        stream_id = rng.choice(streams)
        request = pb.LeaseKeepAliveRequest(ID=self._drawn.lease())
        caller = self._keep_alives[stream_id].caller
        renewal = Call(
            stream_id, rpc.LEASE_KEEP_ALIVE, request, b"", caller=caller, member=self._member
        )
        self._checker.stamp(renewal, self._now_ns)
        self._keep_alives[stream_id].asked.append(renewal)
        self._frame(stream_id, request)

    def _leave(self) -> None:
        """Close a stream: by a disconnect, or after all its requests are answered."""
        rng = self._rng
        renewals, streams = self._renewals(), self._streams()
        if renewals and rng.randrange(2):
            stream_id = rng.choice(list(renewals))
            stream = renewals[stream_id]
            if rng.randrange(2):
                if not stream.is_closing:
                    stream.is_closing = True
                    self._inbox.half_closed.append(stream_id)
            else:
                del self._keep_alives[stream_id]
                self._abandon(stream_id)
        elif streams:
            stream_id = rng.choice(streams).id
            self.watches.ended(stream_id)
            self._abandon(stream_id)

    def _abandon(self, stream_id: int) -> None:
        """Disconnect; messages that are still in the inbox are dropped."""
        inbox = self._inbox
        arrived = len(inbox.opened)
        inbox.opened = [each for each in inbox.opened if each[0] != stream_id]
        inbox.frames = [each for each in inbox.frames if each[0] != stream_id]
        inbox.half_closed = [each for each in inbox.half_closed if each != stream_id]
        if len(inbox.opened) == arrived:
            inbox.gone.append(stream_id)

    # Receiving.

    def take(self, member: int, now_ns: int, out: Outbox) -> None:
        """Check everything a member sends to clients."""
        checker = self._checker
        checker.now_ns = now_ns
        for call_id, code, body in out.replies:
            if call_id in self._garbage:
                del self._garbage[call_id]
                is_right = code == 13 or (checker.may_fail and body.decode() in UNSURE)
                demand(is_right, "garbage was answered with", code, body)
                continue
            call = checker.reply(member, call_id, code, body)
            if call is not None and call.method == rpc.LEASE_GRANT and not code:
                self._drawn.leases.append(pb.LeaseGrantResponse.FromString(body).ID)
            elif call is not None and call.method == rpc.AUTHENTICATE and not code:
                token = pb.AuthenticateResponse.FromString(body).token
                self._users.logged_in(call.request.name, token)  # type: ignore[attr-defined]
        for stream_id, head, tail in messages(out.deliveries):
            self._delivered(stream_id, head + tail)
        for stream_id, code, text in out.ends:
            self._ended(stream_id, code, text.decode())
        for call_id, _ in out.snapshots:
            demand(call_id in self.snapshots, "a snapshot for", call_id)
            checker.access.check_answered(checker.calls[call_id], None)
            self.snapshots.discard(call_id)
            del checker.calls[call_id]

    def _delivered(self, stream_id: int, body: bytes) -> None:
        stream = self.watches.streams.get(stream_id)
        if stream is not None:
            self.watches.delivered(stream, body)
        elif stream_id in self._keep_alives:
            asked = self._keep_alives[stream_id].asked
            demand(asked, "a renewal without a request")
            response = pb.LeaseKeepAliveResponse.FromString(body)
            self._checker.access.check_renewal(asked[0])
            self._checker.renewed(asked.popleft(), response)
        elif not self._has_left(stream_id):
            demand(stream_id in self.chunks, "a message for stream", stream_id)
            chunk = pb.RangeStreamResponse.FromString(body).range_response
            self._checker.access.check_shown(self._checker.calls[stream_id], chunk)
            self.chunks[stream_id].append(chunk)

    def _has_left(self, call_id: int) -> bool:
        call = self._checker.calls.get(call_id)
        return call is not None and call.gone

    def _ended(self, stream_id: int, code: int, text: str) -> None:
        if stream_id in self.watches.streams:
            is_right = "too many requests" in text or (self._checker.may_fail and text in UNSURE)
            demand(is_right, "watch stream", stream_id, "ends:", code, text)
            self.watches.ended(stream_id)
            return
        renewals = self._keep_alives.pop(stream_id, None)
        if renewals is not None:
            is_over = renewals.is_closing and not renewals.asked and not code
            is_over |= self._checker.may_fail and text in UNSURE
            if text == TIMEOUT.text and renewals.asked:
                is_over |= self._checker.was_paused(renewals.asked[0])
            is_over |= any(
                self._checker.access.explains_renewal(each, text) for each in renewals.asked
            )
            # A lease that is not known yet may be in an entry that a stalled disk delays.
            is_over |= bool(self._options.faults["stall"]) and text == TIMEOUT_WAIT_APPLY.text
            demand(is_over, "renewals", renewals, "end:", code, text)
            return
        call = self._checker.calls.pop(stream_id, None)
        demand(call, "the end of stream", stream_id, code, text)
        assert call is not None
        self.snapshots.discard(stream_id)
        chunks = self.chunks.pop(stream_id, [])
        if not call.gone:
            self._checker.streamed(call, chunks, code, text)

    def crashed(self, member: int) -> None:
        """Break every connection to a member."""
        gone = {each.id for each in self._checker.calls.values() if each.member == member}
        self._checker.crashed(member)
        self.watches.crashed(member)
        self._keep_alives = {
            each: stream for each, stream in self._keep_alives.items() if stream.member != member
        }
        self._garbage = {each: at for each, at in self._garbage.items() if at != member}
        self.chunks = {each: chunks for each, chunks in self.chunks.items() if each not in gone}
        self.snapshots -= gone

    def waiting(self) -> list[str]:
        """Return what is still to be answered."""
        found = [f"call {each.request}" for each in self._checker.calls.values() if not each.gone]
        found += [
            f"renewals {each}"
            for each in self._keep_alives.values()
            if each.asked or each.is_closing
        ]
        found += [
            f"creates {each.creates}" for each in self.watches.streams.values() if each.creates
        ]
        return found + [f"garbage {each}" for each in self._garbage]
