"""What must always hold, whatever fails: every answer is held against a model that replays the log.

    invoke ──► proposed ──► advance (whoever applies an entry first lets the model) ──► reply

The first member to apply an index decides what stands there for all; from then on the model knows
the state at that index for good, and whoever comes to it must be equal.

- An entry belongs to exactly one call, or is one the servers may make themselves: a name, the
  cluster version, the end of a lease whose time is up, the alarm of a full database.
- A write's answer is the model's at its entry, which is behind everything applied anywhere before
  the write was asked. A read's answer is the model's at the revision in its header; a linearizable
  one comes from a member that has applied whatever anybody had applied when it was asked.
  (The log is the order: this is linearizability.) Others come from what the member itself has.
- Who got an error, or none before a crash, does not know; but what is refused before it could
  enter the log never shows up in it.
- A lease ends no sooner than promised by a grant or a renewal.
- A member alone times nothing out, unless it stood still, or its disk did, for so long.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf.message import Message

from kvstore import errors
from kvstore.raft.model import Entry, EntryType
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, unwrap
from kvstore.wire.raft_codec import decode_conf_change
from tests.sim.model import COMPACTED, FUTURE, NO_SPACE, Answer, StoreModel
from tests.sim.roster import Roster
from tests.sim.violation import Violation as Violation
from tests.sim.violation import demand

SECOND_NS = 1_000_000_000
FIELDS = {
    rpc.PUT: Field.PUT,
    rpc.DELETE_RANGE: Field.DELETE_RANGE,
    rpc.TXN: Field.TXN,
    rpc.COMPACT: Field.COMPACTION,
    rpc.LEASE_GRANT: Field.LEASE_GRANT,
    rpc.LEASE_REVOKE: Field.LEASE_REVOKE,
    rpc.ALARM: Field.ALARM,
}
CHANGES = frozenset(
    {rpc.MEMBER_ADD, rpc.MEMBER_REMOVE, rpc.MEMBER_UPDATE, rpc.MEMBER_PROMOTE, rpc.MOVE_LEADER}
)
_OWN = frozenset({Field.CLUSTER_MEMBER_ATTR_SET, Field.CLUSTER_VERSION_SET})
_NEVER = frozenset(  # the call did not get so far as to the log
    each.text
    for each in (
        errors.TOO_MANY_REQUESTS,
        errors.LEARNER_NOT_SUPPORTED,
        errors.PROPOSAL_DROPPED,
        errors.NO_LEADER,
    )
)
UNSURE = _NEVER | {
    each.text
    for each in (
        errors.LEADER_CHANGED,
        errors.TIMEOUT,
        errors.TIMEOUT_LEADER_FAIL,
        errors.TIMEOUT_CONNECTION_LOST,
        errors.TIMEOUT_WAIT_APPLY,
    )
}


def tag(number: int) -> bytes:
    """Return an unknown field to end a request with, by which the log tells whose it is."""
    return b"\xc5\x3e" + number.to_bytes(4, "little")


_TAG_BYTES = len(tag(0))


@dataclass(slots=True)
class Call:
    """One call under way."""

    id: int
    method: int
    request: Message
    body: bytes
    refusal: str = ""  # what admission must answer
    reads_only: bool = True
    serializable: bool = False
    must_succeed: bool = False
    member: int = 0  # asked
    asked_ns: int = 0
    local: int = 0  # what that member had applied when it was asked
    floor: int = 0  # what anybody had applied when it was asked
    low: int = 0  # what everybody had
    starts: int = 0  # how many members had started when it was asked
    answer: Answer | None = None  # the model's, of an applied write
    index: int = 0  # where it was applied; 0: nowhere
    gone: bool = False  # the client has left


class Mark(NamedTuple):
    """The state behind one entry of the log."""

    revision: int
    compacted: int
    leases: int  # which of lease_states
    roster: int  # which of roster.states
    alarms: frozenset[int]


class Checker:
    """The promises of one cluster; its members are known by their numbers."""

    def __init__(
        self, model: StoreModel, roster: Roster, *, has_quota: bool, compacts: bool
    ) -> None:
        self.model = model
        self.roster = roster
        self.answered = 0
        self.calls: dict[int, Call] = {}
        self.promises: dict[int, int] = {}  # lease → until when it must live
        self.may_fail = False  # whether errors of a cluster in trouble are to be expected
        self.now_ns = 0  # of what comes out
        self.timeout_ns = 0  # how long a request waits for the log
        self.applied: dict[int, int] = {}  # by member
        self.log: list[Entry | None] = [None]  # by index: what was applied
        self.marks = [Mark(1, -1, 0, 0, frozenset())]
        self.lease_states: list[dict[int, tuple[int, tuple[bytes, ...]]]] = [{}]
        self._lease_changes = 0
        self._granted: dict[int, int] = {}  # lease → index of its grant
        self._starts: list[int] = []  # the index each member stood at
        self._held_up: list[tuple[int, int]] = []  # from when to when, in ns
        self._ending: dict[tuple[int, int], int] = {}  # own revoke → grant of what it is to end
        self._has_quota = has_quota
        self._own = _OWN | ({Field.COMPACTION} if compacts else set())
        self._proposed: set[tuple[int, int]] = set()
        self._by_tag: dict[bytes, Call] = {}  # every write there ever was
        self._refused: set[bytes] = set()  # tags
        self._cluster_id = 0
        self._ids: dict[int, int] = {}  # member → its raft id
        self._terms: dict[int, int] = {}  # member → the last one it named

    @property
    def index(self) -> int:
        """What the first of all has applied."""
        return len(self.log) - 1

    # What goes in.

    def stamp(self, call: Call, now_ns: int) -> None:
        """Note what there was when a call was asked."""
        call.asked_ns, call.floor = now_ns, self.index
        call.local = self.applied.get(call.member, 0)
        call.low = min(self.applied.values(), default=0)
        call.starts = len(self._starts)

    def invoke(self, call: Call, now_ns: int) -> None:
        """Note that a call is on its way."""
        self.stamp(call, now_ns)
        self.calls[call.id] = call
        if not call.reads_only:
            self._by_tag[call.body[-_TAG_BYTES:]] = call

    def crashed(self, member: int) -> None:
        """Forget who waits at a member: their calls were carried out or not, the log will tell."""
        self.calls = {each: call for each, call in self.calls.items() if call.member != member}
        self.applied.pop(member, None)

    def held_up(self, since_ns: int, until_ns: int) -> None:
        """Note that nothing could be done for a while, which may have begun during the last one."""
        since_ns = max(since_ns, self._held_up[-1][1] if self._held_up else 0)
        if until_ns > since_ns:
            self._held_up.append((since_ns, until_ns))

    # The log.

    def proposed(self, entries: Sequence[Entry]) -> None:
        """Look at what is being written to a log, the first time."""
        for entry in entries:
            where = entry.index, entry.term
            if where in self._proposed or entry.type != EntryType.NORMAL or not entry.data:
                continue
            self._proposed.add(where)
            request_field, body, _ = unwrap(entry.data)
            call = self._by_tag.get(body[-_TAG_BYTES:])
            if call is not None:
                same = FIELDS[call.method] == request_field and _carries(body, call)
                demand(same, "call", call.request, "is in the log as", body)
            elif request_field == Field.LEASE_REVOKE:
                self._ending[where] = self._granted.get(_lease_of(body), 0)
            elif request_field == Field.ALARM:
                alarm = pb.AlarmRequest.FromString(body)
                # Raised for want of space; ended by whoever raised it, when there is space again.
                is_own = self._has_quota and alarm.alarm == pb.AlarmType.NOSPACE
                demand(is_own and alarm.action != pb.AlarmRequest.GET, "alarm", alarm)
            else:
                demand(request_field in self._own, "entry", where, "nobody asked for:", body)

    def advance(self, member: int, entries: Sequence[Entry], now_ns: int) -> None:
        """Take what a member has applied; the model goes ahead if it is the first to."""
        for entry in entries:
            index = entry.index
            demand(index == self.applied.get(member, 0) + 1, "member", member, "applies", index)
            if index > self.index:
                self._apply(entry, now_ns)
            else:
                first = self.log[index]
                demand(entry == first, "members apply", entry, "and", first)
            self.applied[member] = index

    def jump(self, member: int, index: int) -> None:
        """Take note that a member's state is that at index: from a snapshot, or at its start."""
        demand(index <= self.index, "member", member, "stands at", index, "of", self.index)
        demand(index >= self.applied.get(member, 0), "member", member, "falls back to", index)
        if member not in self.applied:
            self._starts.append(index)
        self.applied[member] = index

    def mark_of(self, member: int) -> Mark:
        """Return the state a member has by what it has applied."""
        return self.marks[self.applied[member]]

    def _apply(self, entry: Entry, now_ns: int) -> None:
        model, roster = self.model, self.roster
        self.log.append(entry)
        if entry.type != EntryType.NORMAL:
            try:
                roster.change(decode_conf_change(entry.data))
            except ValueError as error:
                raise Violation(str(error)) from None
        elif entry.data:
            self._apply_request(entry, now_ns)
        if model.lease_changes != self._lease_changes:
            self._lease_changes = model.lease_changes
            self.lease_states.append(
                {
                    each: (held.ttl_s, tuple(sorted(held.keys)))
                    for each, held in model.leases.items()
                }
            )
        self.marks.append(
            Mark(
                model.revision,
                model.compacted,
                len(self.lease_states) - 1,
                len(roster.states) - 1,
                frozenset(model.alarms),
            )
        )

    def _apply_request(self, entry: Entry, now_ns: int) -> None:
        request_field, body, _ = unwrap(entry.data)
        mark = body[-_TAG_BYTES:]
        call = self._by_tag.get(mark)
        answer = self.model.apply(request_field, body)
        self.roster.request(request_field, body)
        if call is not None:
            demand(not call.index, "call", call.id, "is applied at", call.index, "and", entry.index)
            demand(
                entry.index > call.floor, "call", call.id, "at", entry.index, "after", call.floor
            )
            demand(mark not in self._refused, "call", call.id, "was refused, and is applied")
            call.answer, call.index = answer, entry.index
        if isinstance(answer, pb.LeaseGrantResponse):
            self.promises[answer.ID] = now_ns + answer.TTL * SECOND_NS
            self._granted[answer.ID] = entry.index
        elif isinstance(answer, pb.LeaseRevokeResponse):
            lease = _lease_of(body)
            # One granted anew under the same id meanwhile is ended for the old one: as in etcd.
            if self._ending.get((entry.index, entry.term)) == self._granted[lease]:
                early_ns = self.promises[lease] - now_ns
                demand(early_ns <= 0, "lease", lease, "is ended", early_ns, "ns early")
            self.promises.pop(lease)

    # What comes out.

    def reply(self, member: int, call_id: int, code: int, body: bytes) -> Call | None:
        """Check the answer of a call; None for one whose client has left."""
        call = self.calls.pop(call_id, None)
        demand(call, "an answer to call", call_id, "nobody waits for")
        assert call is not None
        demand(call.member == member, "an answer of another member to call", call_id)
        if call.gone:
            return None
        self.answered += 1
        if code:
            demand(not call.must_succeed, "in a calm", call.request, "got", body)
            self._check_error(call, body.decode())
            return call
        response: Any = rpc.METHODS[call.method].response.FromString(body)
        if call.method in CHANGES:
            self._check_change(call, response)
        elif not call.reads_only:
            self._check_write(call, response)
        else:
            self._check_read(call, response)
        if response.DESCRIPTOR.fields_by_name.get("header") and response.header.cluster_id:
            self.seen(member, response.header)
        return call

    def seen(self, member: int, header: Any) -> None:
        """Take a response header that a client has got."""
        self._cluster_id = self._cluster_id or header.cluster_id
        demand(header.cluster_id == self._cluster_id, "a header of cluster", header)
        known = self._ids.setdefault(member, header.member_id)
        demand(header.member_id == known, "a header of another member", header)
        before = self._terms.get(member, 0)
        demand(header.raft_term >= before, "term", header.raft_term, "after", before)
        self._terms[member] = header.raft_term
        newest = self.mark_of(member).revision
        demand(header.revision <= newest, "header of the future:", header, "at", newest)

    def _from(self, call: Call) -> int:
        """Return the index whose state an answer must hold at least."""
        return call.local if call.serializable else max(call.local, call.floor)

    def _check_error(self, call: Call, text: str) -> None:
        name = rpc.METHODS[call.method].name
        if self.may_fail and call.method in CHANGES:
            return
        if text == errors.PROPOSAL_DROPPED.text or (self.may_fail and text in UNSURE):
            if text in _NEVER and not call.reads_only:
                demand(not call.index, name, call.request, "is applied, and refused:", text)
                self._refused.add(call.body[-_TAG_BYTES:])
            return
        if text == errors.TIMEOUT.text and not call.reads_only and self.was_held_up(call):
            return
        if text == NO_SPACE and self._has_quota and not call.reads_only:
            return
        if call.refusal or not call.reads_only:
            expected = call.answer if call.index else call.refusal
            demand(text == expected, name, call.request, "got", text, "instead of", expected)
            return
        self._check_read_error(call, name, text)

    def was_held_up(self, call: Call) -> bool:
        """Tell whether a call has had its time, but less than that without the standing still.

        What was asked meanwhile enters the log in one go, and may be applied little by little, with
        syncs in between. A write must not be applied yet.
        """
        asked_ns, now_ns = call.asked_ns, self.now_ns
        held_up_ns = sum(
            max(0, min(until_ns, now_ns) - max(since_ns, asked_ns))
            for since_ns, until_ns in self._held_up
        )
        waited_ns = now_ns - asked_ns
        return not call.index and waited_ns - held_up_ns < self.timeout_ns <= waited_ns

    def _check_read_error(self, call: Call, name: str, text: str) -> None:
        now, before = self.mark_of(call.member), self.marks[self._from(call)]
        revisions = _revisions(call.request)
        if text == FUTURE:
            is_right = max(revisions) > before.revision
            demand(is_right, name, revisions, "is", FUTURE, "at", before)
        elif text == COMPACTED:
            # A stream at no named revision is pinned to the one it began at.
            pinned = before.revision if call.method == rpc.RANGE_STREAM else now.revision + 1
            oldest = min(each or pinned for each in revisions)
            demand(oldest < now.compacted, name, revisions, "is", COMPACTED)
        elif call.method == rpc.LEASE_TIME_TO_LIVE:
            # Who applies little by little may be behind when much has come at once.
            demand(text == errors.TIMEOUT_WAIT_APPLY.text, name, call.request, "got", text)
        elif text == errors.TIMEOUT_WAIT_APPLY.text and not call.serializable:
            demand(self.was_held_up(call), name, call.request, "got", text)
        else:
            demand(text == "", name, call.request, "got", text)

    def _check_write(self, call: Call, response: Any) -> None:
        name = rpc.METHODS[call.method].name
        is_here = 0 < call.index <= self.applied[call.member]
        demand(is_here, name, call.request, "was acknowledged, but is not in the log")
        expected: Any = call.answer
        demand(not isinstance(expected, str), name, call.request, "instead of", expected)
        wanted = type(expected)()
        wanted.CopyFrom(expected)
        if getattr(call.request, "physical", False):
            demand(response.header.revision >= expected.header.revision, "compaction", response)
            wanted.header.revision = response.header.revision
        _equal(name, call.request, response, wanted)

    def _check_change(self, call: Call, response: Any) -> None:
        if call.method == rpc.MOVE_LEADER:
            return
        # A promotion is the leader's to answer, who may be ahead.
        here = self.index if call.method == rpc.MEMBER_PROMOTE else self.applied[call.member]
        self._check_roster(call, call.local + 1, here, response.members)
        if isinstance(response, pb.MemberAddResponse):
            told = {each.ID for each in response.members}
            demand(response.member.ID in told, "a member added, and not in the list", response)

    def _check_roster(
        self, call: Call, first_index: int, last_index: int, members: Sequence[pb.Member]
    ) -> None:
        """Look for a list of members among those there were from one index to another."""
        first = self.marks[min(first_index, self.index)].roster
        told = {each.ID: (tuple(each.peerURLs), each.isLearner) for each in members}
        for state in self.roster.states[first : self.marks[last_index].roster + 1]:
            if {each: known[:2] for each, known in state.items()} == told:
                return
        raise Violation(f"{call.request} got members {told}, which there have not been")

    def _check_read(self, call: Call, response: Any) -> None:
        request, method = call.request, call.method
        name = rpc.METHODS[method].name
        demand(not call.refusal, name, request, "was to be refused:", call.refusal)
        here, before = self.applied[call.member], self.marks[self._from(call)]
        if not call.serializable:
            demand(here >= call.floor, name, request, "is stale:", here, "after", call.floor)
        if method == rpc.DEFRAGMENT:
            return
        if method == rpc.MEMBER_LIST:
            self._check_roster(call, self._from(call), here, response.members)
            return
        now = response.header.revision
        newest = self.marks[here].revision
        demand(before.revision <= now <= newest, name, request, "at", now, "of", before, newest)
        if isinstance(request, pb.RangeRequest | pb.TxnRequest):
            self._check_range(name, request, response, before)
        elif isinstance(request, pb.HashKVRequest):
            self._check_hash(request, response)
        elif isinstance(request, pb.LeaseTimeToLiveRequest):
            self._check_time_to_live(call, request, response)
        elif isinstance(request, pb.LeaseLeasesRequest):
            held = self.lease_states[self.marks[here].leases]
            demand({each.ID for each in response.leases} == set(held), "leases", response)

    def _check_range(
        self, name: str, request: pb.RangeRequest | pb.TxnRequest, response: Any, before: Mark
    ) -> None:
        now = response.header.revision
        if isinstance(request, pb.RangeRequest):
            is_kept = not 0 < request.revision < before.compacted
            demand(is_kept, name, request, "reads what was compacted at", before)
            _equal(name, request, response, self.model.range(request, now))
        else:
            _equal(name, request, response, self.model.read_txn(request, now))

    def _check_hash(self, request: pb.HashKVRequest, response: pb.HashKVResponse) -> None:
        model = self.model
        revision, compacted = response.hash_revision, response.compact_revision
        demand(revision in (request.revision, response.header.revision), "hash", request, response)
        demand(compacted in (-1, *model.compactions), "hash compacted at", compacted)
        expected = model.hash_kv(revision, compacted)
        demand(response.hash in expected, "HashKV", response, "is not of", expected)

    # Leases.

    def _since(self, lease: int, call: Call) -> list[tuple[int, tuple[bytes, ...]] | None]:
        """Return what a lease may have been for anybody since a call; None: not there."""
        first = self.marks[min(call.low, *self._starts[call.starts :], self.index)].leases
        return [state.get(lease) for state in self.lease_states[first:]]

    def _check_time_to_live(
        self,
        call: Call,
        request: pb.LeaseTimeToLiveRequest,
        response: pb.LeaseTimeToLiveResponse,
    ) -> None:
        """The leader answers, from what it has: one that was replaced may lag for a while."""
        states = self._since(request.ID, call)
        if response.TTL == -1:
            demand(None in states, "lease", request.ID, "is there, and is said to be not")
            return
        keys = tuple(response.keys) if request.keys else None
        is_known = any(
            held is not None and held[0] == response.grantedTTL and keys in (held[1], None)
            for held in states
        )
        demand(is_known, "lease", request.ID, "is", response, "instead of", states)

    def renewed(self, call: Call, response: pb.LeaseKeepAliveResponse) -> None:
        """Check the answer to a keep-alive, given as a call on its stream."""
        lease = call.request.ID  # type: ignore[attr-defined]
        demand(lease == response.ID, "renewal", response, "of", lease)
        states = self._since(lease, call)
        if response.TTL == 0:
            demand(None in states, "lease", lease, "is there, and is said to be not")
            return
        is_known = any(held is not None and held[0] == response.TTL for held in states)
        demand(is_known, "renewal", response, "instead of", states)
        if lease in self.promises and self._granted[lease] <= call.floor:
            until_ns = call.asked_ns + response.TTL * SECOND_NS
            self.promises[lease] = max(self.promises[lease], until_ns)

    def streamed(
        self, call: Call, chunks: Sequence[pb.RangeResponse], code: int, text: str
    ) -> None:
        """Check a range that came in chunks."""
        if code:
            demand(not call.must_succeed, "in a calm", call.request, "got", text)
            self._check_error(call, text)
            return
        demand(not call.refusal, "a stream was to be refused:", call.refusal)
        assert isinstance(call.request, pb.RangeRequest)
        last = chunks[-1]
        whole = pb.RangeResponse(more=last.more, count=last.count)
        whole.header.CopyFrom(last.header)
        for chunk in chunks:
            whole.kvs.extend(chunk.kvs)
        if not call.serializable:
            here = self.applied[call.member]
            demand(here >= call.floor, "a stream is stale:", here, "after", call.floor)
        now = last.header.revision
        before, newest = self.marks[self._from(call)].revision, self.mark_of(call.member).revision
        demand(before <= now <= newest, "a stream of", now, "not in", before, newest)
        _equal("RangeStream", call.request, whole, self.model.range(call.request, now))


def _lease_of(body: bytes) -> int:
    return pb.LeaseRevokeRequest.FromString(body).ID


def _carries(body: bytes, call: Call) -> bool:
    if isinstance(call.request, pb.LeaseGrantRequest) and call.request.ID == 0:
        return True  # the server picks the id
    return body == call.body


def _revisions(request: Any) -> list[int]:
    """Return the revisions a read names."""
    if isinstance(request, pb.TxnRequest):
        ops = [*request.success, *request.failure]
        return [op.request_range.revision for op in ops] or [0]
    return [getattr(request, "revision", 0)]


def _equal(name: str, request: Message, response: Any, expected: Any) -> None:
    got = type(response)()
    got.CopyFrom(response)
    for each in ("cluster_id", "member_id", "raft_term"):
        got.header.ClearField(each)
    demand(got == expected, name, request, "got", got, "instead of", expected)
