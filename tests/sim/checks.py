"""What must always hold: every answer is compared with a model that replays the log.

    invoke ──► proposed ──► advance (the first member to apply an entry moves the model) ──► reply

The first member to apply an index decides what every member must have there. The model keeps the
state at every index.

- An entry belongs to exactly one call, or is one that servers make themselves: a member's name, the
  cluster version, the end of a lease whose time is up, the alarm of a full database.
- A write's answer is the model's at its entry, whose index is above everything applied anywhere
  before the call was made. A read's answer is the model's at the revision in its header. A
  linearizable read comes from a member that has applied whatever any member had applied when the
  call was made; since the log is the order, this is linearizability. A serializable read comes from
  what the member itself has applied.
- After an error, or a crash without an answer, the outcome is unknown. What is refused before it
  could enter the log is never in it.
- A lease ends no sooner than promised by a grant or a renewal.
- A member alone times nothing out, unless the process or its disk stood still for so long.
- Who may do what is checked by access_checks.
"""

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from kvstore import errors
from kvstore.raft.model import Entry, EntryType
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.gen.raft_internal_pb2 import InternalAuthenticateRequest
from kvstore.wire.internal import Field, credentials, unwrap
from kvstore.wire.raft_codec import decode_conf_change
from tests.sim.access.access_checks import REFUSALS, AccessChecker, sets_password
from tests.sim.access.auth_model import AuthModel
from tests.sim.calls import Call, Mark
from tests.sim.model import COMPACTED, FUTURE, NO_SPACE, StoreModel
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
    rpc.AUTH_ENABLE: Field.AUTH_ENABLE,
    rpc.AUTH_DISABLE: Field.AUTH_DISABLE,
    rpc.AUTH_STATUS: Field.AUTH_STATUS,
    rpc.AUTH_USER_ADD: Field.AUTH_USER_ADD,
    rpc.AUTH_USER_DELETE: Field.AUTH_USER_DELETE,
    rpc.AUTH_USER_GET: Field.AUTH_USER_GET,
    rpc.AUTH_USER_CHANGE_PASSWORD: Field.AUTH_USER_CHANGE_PASSWORD,
    rpc.AUTH_USER_GRANT_ROLE: Field.AUTH_USER_GRANT_ROLE,
    rpc.AUTH_USER_REVOKE_ROLE: Field.AUTH_USER_REVOKE_ROLE,
    rpc.AUTH_USER_LIST: Field.AUTH_USER_LIST,
    rpc.AUTH_ROLE_LIST: Field.AUTH_ROLE_LIST,
    rpc.AUTH_ROLE_ADD: Field.AUTH_ROLE_ADD,
    rpc.AUTH_ROLE_DELETE: Field.AUTH_ROLE_DELETE,
    rpc.AUTH_ROLE_GET: Field.AUTH_ROLE_GET,
    rpc.AUTH_ROLE_GRANT_PERMISSION: Field.AUTH_ROLE_GRANT_PERMISSION,
    rpc.AUTH_ROLE_REVOKE_PERMISSION: Field.AUTH_ROLE_REVOKE_PERMISSION,
}
CHANGES = frozenset(
    {rpc.MEMBER_ADD, rpc.MEMBER_REMOVE, rpc.MEMBER_UPDATE, rpc.MEMBER_PROMOTE, rpc.MOVE_LEADER}
)
_OWN = frozenset({Field.CLUSTER_MEMBER_ATTR_SET, Field.CLUSTER_VERSION_SET})
_NEVER = frozenset(  # the call did not enter the log
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
    """Return an unknown field to append to a request: it identifies the call in the log."""
    return b"\xc5\x3e" + number.to_bytes(4, "little")


_TAG_BYTES = len(tag(0))


class Checker:
    """The promises of one cluster; its members are identified by their numbers."""

    def __init__(
        self,
        model: StoreModel,
        roster: Roster,
        *,
        has_quota: bool,
        compacts: bool,
        token_ttl_ns: int,
    ) -> None:
        self.model = model
        self.auth = AuthModel()
        self.access = AccessChecker(self, self.auth, token_ttl_ns)
        self.roster = roster
        self.answered = 0
        self.calls: dict[int, Call] = {}
        self.lease_deadlines: dict[int, int] = {}  # lease → until when it must live
        self.may_fail = False  # whether errors of a cluster without a leader may occur
        self.now_ns = 0  # of what is being checked
        self.timeout_ns = 0  # how long a request waits for the log
        self.applied: dict[int, int] = {}  # by member
        self.log: list[Entry | None] = [None]  # by index: what was applied
        self.marks = [Mark(1, -1, 0, 0, frozenset(), 0)]
        self.lease_states: list[dict[int, tuple[int, tuple[bytes, ...]]]] = [{}]
        self._lease_changes = 0
        self._granted: dict[int, int] = {}  # lease → index of its grant
        self._starts: list[int] = []  # the index each member stood at
        self._pauses: list[tuple[int, int]] = []  # from when to when, in ns
        self._ending: dict[
            tuple[int, int], int
        ] = {}  # a server's own revoke → index of the grant it ends
        self._has_quota = has_quota
        self._own = _OWN | ({Field.COMPACTION} if compacts else set())
        self._proposed: set[tuple[int, int]] = set()
        self._by_tag: dict[bytes, Call] = {}  # every write there ever was
        self._refused: set[bytes] = set()  # tags
        self.logins: set[str] = set()  # the users somebody tried to log in as
        self._cluster_id = 0
        self._ids: dict[int, int] = {}  # member → its raft id
        self._terms: dict[int, int] = {}  # member → the last one it named

    @property
    def index(self) -> int:
        """The highest index any member has applied."""
        return len(self.log) - 1

    # Calls.

    def stamp(self, call: Call, now_ns: int) -> None:
        """Note the applied indexes at the time of a call."""
        call.asked_ns, call.floor = now_ns, self.index
        call.local = self.applied.get(call.member, 0)
        call.low = min(self.applied.values(), default=0)
        call.starts = len(self._starts)

    def invoke(self, call: Call, now_ns: int) -> None:
        """Note that a call is made."""
        self.stamp(call, now_ns)
        self.calls[call.id] = call
        if isinstance(call.request, pb.AuthenticateRequest):
            self.logins.add(call.request.name)
        if not call.reads_only:
            self._by_tag[call.body[-_TAG_BYTES:]] = call

    def crashed(self, member: int) -> None:
        """Forget the calls that wait at a member: whether they were carried out is unknown."""
        self.calls = {each: call for each, call in self.calls.items() if call.member != member}
        self.applied.pop(member, None)

    def note_pause(self, since_ns: int, until_ns: int) -> None:
        """Note a span in which nothing could be done; it may overlap the last one."""
        since_ns = max(since_ns, self._pauses[-1][1] if self._pauses else 0)
        if until_ns > since_ns:
            self._pauses.append((since_ns, until_ns))

    # The log.

    def proposed(self, entries: Sequence[Entry]) -> None:
        """Check entries when they are first written to a log."""
        for entry in entries:
            where = entry.index, entry.term
            if where in self._proposed or entry.type != EntryType.NORMAL or not entry.data:
                continue
            self._proposed.add(where)
            request_field, body, _ = unwrap(entry.data)
            call = self._by_tag.get(body[-_TAG_BYTES:])
            self.access.check_secret(entry.data)
            if call is not None:
                self.access.check_header(call, entry.data)
                same = FIELDS[call.method] == request_field and _carries(body, call)
                demand(same, "call", call.request, "is in the log as", body)
            elif request_field == Field.LEASE_REVOKE:
                self._ending[where] = self._granted.get(_lease_of(body), 0)
            elif request_field == Field.ALARM:
                alarm = pb.AlarmRequest.FromString(body)
                # Raised by a member without space, and ended by it when there is space again.
                is_own = self._has_quota and alarm.alarm == pb.AlarmType.NOSPACE
                demand(is_own and alarm.action != pb.AlarmRequest.GET, "alarm", alarm)
            elif request_field == Field.AUTHENTICATE:
                name = InternalAuthenticateRequest.FromString(body).name
                demand(name in self.logins, "an entry of a login that no call made:", name)
            else:
                demand(request_field in self._own, "entry", where, "that no call made:", body)

    def advance(self, member: int, entries: Sequence[Entry], now_ns: int) -> None:
        """Take what a member has applied; the first member to apply an entry moves the model."""
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
        """Note that a member's state is that at index: by a snapshot, or at its start."""
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
                len(self.auth.states) - 1,
            )
        )

    def _apply_request(self, entry: Entry, now_ns: int) -> None:
        request_field, body, _ = unwrap(entry.data)
        mark = body[-_TAG_BYTES:]
        call = self._by_tag.get(mark)
        credential = credentials(entry.data)
        denied = self.access.entry_refusal(request_field, body, credential)
        answer = self.model.apply(request_field, body, denied)
        if answer is None:
            answer = self.auth.apply(request_field, body, credential, entry.index, now_ns)
            if answer is not None and not isinstance(answer, str):
                answer.header.revision = self.model.revision  # type: ignore[attr-defined]
        self.roster.request(request_field, body)
        if call is not None:
            demand(not call.index, "call", call.id, "is applied at", call.index, "and", entry.index)
            demand(
                entry.index > call.floor, "call", call.id, "at", entry.index, "after", call.floor
            )
            demand(mark not in self._refused, "call", call.id, "was refused, and is applied")
            call.answer, call.index = answer, entry.index
        if isinstance(answer, pb.LeaseGrantResponse):
            self.lease_deadlines[answer.ID] = now_ns + answer.TTL * SECOND_NS
            self._granted[answer.ID] = entry.index
        elif isinstance(answer, pb.LeaseRevokeResponse):
            lease = _lease_of(body)
            # As in etcd, a lease granted again under the same id meanwhile is ended instead.
            if self._ending.get((entry.index, entry.term)) == self._granted[lease]:
                early_ns = self.lease_deadlines[lease] - now_ns
                demand(early_ns <= 0, "lease", lease, "is ended", early_ns, "ns early")
            self.lease_deadlines.pop(lease)

    # Answers.

    def reply(self, member: int, call_id: int, code: int, body: bytes) -> Call | None:
        """Check the answer of a call; None for one whose client has disconnected."""
        call = self.calls.pop(call_id, None)
        demand(call, "an answer to call", call_id, "that is not under way")
        assert call is not None
        demand(call.member == member, "an answer of another member to call", call_id)
        if call.gone:
            return None
        self.answered += 1
        if code:
            demand(not call.must_succeed, "without faults", call.request, "got", body)
            self._check_error(call, body.decode())
            return call
        response: Any = rpc.METHODS[call.method].response.FromString(body)
        self.access.check_answered(call, response)
        if call.method == rpc.AUTHENTICATE:
            self.access.check_login(call, response)
        elif call.method in CHANGES:
            self._check_change(call, response)
        elif not call.reads_only:
            self._check_write(call, response)
        else:
            self._check_read(call, response)
        if response.DESCRIPTOR.fields_by_name.get("header") and response.header.cluster_id:
            # A login's header is that of its entry, which may be older: a token is signed later.
            self.seen(member, response.header, is_ordered=call.method != rpc.AUTHENTICATE)
        return call

    def seen(self, member: int, header: Any, *, is_ordered: bool = True) -> None:
        """Check a response header; is_ordered: its term is not below that of those before."""
        self._cluster_id = self._cluster_id or header.cluster_id
        demand(header.cluster_id == self._cluster_id, "a header of cluster", header)
        known = self._ids.setdefault(member, header.member_id)
        demand(header.member_id == known, "a header of another member", header)
        before = self._terms.get(member, 0)
        is_later = header.raft_term >= before or not is_ordered
        demand(is_later, "term", header.raft_term, "after", before)
        self._terms[member] = max(before, header.raft_term)
        newest = self.mark_of(member).revision
        demand(header.revision <= newest, "header of the future:", header, "at", newest)

    def _from(self, call: Call) -> int:
        """Return the index whose state an answer must hold at least."""
        return call.local if call.serializable else max(call.local, call.floor)

    def _check_error(self, call: Call, text: str) -> None:
        name = rpc.METHODS[call.method].name
        if not call.index and self.access.explains(call, text):
            if not call.reads_only:
                self._refused.add(call.body[-_TAG_BYTES:])
            return
        if self.may_fail and call.method in CHANGES and text not in REFUSALS:
            return
        if text == errors.PROPOSAL_DROPPED.text or (self.may_fail and text in UNSURE):
            if text in _NEVER and not call.reads_only:
                demand(not call.index, name, call.request, "is applied, and refused:", text)
                self._refused.add(call.body[-_TAG_BYTES:])
            return
        waits_for_log = not call.reads_only or call.method == rpc.AUTHENTICATE
        if text == errors.TIMEOUT.text and waits_for_log and self.was_paused(call):
            return
        if text == NO_SPACE and self._has_quota and not call.reads_only:
            return
        if call.refusal or not call.reads_only:
            expected = call.answer if call.index else call.refusal
            demand(text == expected, name, call.request, "got", text, "instead of", expected)
            return
        self._check_read_error(call, name, text)

    def was_paused(self, call: Call) -> bool:
        """Tell whether a call's time is up only because the member was paused.

        What arrived during the pause enters the log at once, and may be applied in small batches
        with syncs in between. A write must not have been applied.
        """
        asked_ns, now_ns = call.asked_ns, self.now_ns
        paused_ns = sum(
            max(0, min(until_ns, now_ns) - max(since_ns, asked_ns))
            for since_ns, until_ns in self._pauses
        )
        waited_ns = now_ns - asked_ns
        return not call.index and waited_ns - paused_ns < self.timeout_ns <= waited_ns

    def _check_read_error(self, call: Call, name: str, text: str) -> None:
        now, before = self.mark_of(call.member), self.marks[self._from(call)]
        revisions = _revisions(call.request)
        if text == FUTURE:
            is_right = max(revisions) > before.revision
            demand(is_right, name, revisions, "is", FUTURE, "at", before)
        elif text == COMPACTED:
            # A stream without a revision is pinned to the one it began at.
            pinned = before.revision if call.method == rpc.RANGE_STREAM else now.revision + 1
            oldest = min(each or pinned for each in revisions)
            demand(oldest < now.compacted, name, revisions, "is", COMPACTED)
        elif call.method == rpc.LEASE_TIME_TO_LIVE:
            # A member that applies small batches may be behind after a burst.
            demand(text == errors.TIMEOUT_WAIT_APPLY.text, name, call.request, "got", text)
        elif text == errors.TIMEOUT_WAIT_APPLY.text and not call.serializable:
            demand(self.was_paused(call), name, call.request, "got", text)
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
        # The leader answers a promotion, and may be ahead.
        here = self.index if call.method == rpc.MEMBER_PROMOTE else self.applied[call.member]
        self._check_roster(call, call.local + 1, here, response.members)
        if isinstance(response, pb.MemberAddResponse):
            told = {each.ID for each in response.members}
            demand(response.member.ID in told, "a member added, and not in the list", response)

    def _check_roster(
        self, call: Call, first_index: int, last_index: int, members: Sequence[pb.Member]
    ) -> None:
        """Check that a list of members is one of those between two indexes."""
        first = self.marks[min(first_index, self.index)].roster
        told = {each.ID: (tuple(each.peerURLs), each.isLearner) for each in members}
        for state in self.roster.states[first : self.marks[last_index].roster + 1]:
            if {each: known[:2] for each, known in state.items()} == told:
                return
        raise Violation(f"{call.request} got members {told}, which were never the list")

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
        """Return the states of a lease at any member since a call; None: it does not exist."""
        first = self.marks[min(call.low, *self._starts[call.starts :], self.index)].leases
        return [state.get(lease) for state in self.lease_states[first:]]

    def _check_time_to_live(
        self,
        call: Call,
        request: pb.LeaseTimeToLiveRequest,
        response: pb.LeaseTimeToLiveResponse,
    ) -> None:
        """Check the leader's answer: one that was replaced may lag for a while."""
        states = self._since(request.ID, call)
        if response.TTL == -1:
            demand(None in states, "lease", request.ID, "exists, and the answer says it does not")
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
            demand(None in states, "lease", lease, "exists, and the answer says it does not")
            return
        is_known = any(held is not None and held[0] == response.TTL for held in states)
        demand(is_known, "renewal", response, "instead of", states)
        if lease in self.lease_deadlines and self._granted[lease] <= call.floor:
            until_ns = call.asked_ns + response.TTL * SECOND_NS
            self.lease_deadlines[lease] = max(self.lease_deadlines[lease], until_ns)

    def streamed(
        self, call: Call, chunks: Sequence[pb.RangeResponse], code: int, text: str
    ) -> None:
        """Check a range that came in chunks."""
        if code:
            demand(not call.must_succeed, "without faults", call.request, "got", text)
            self._check_error(call, text)
            return
        self.access.check_answered(call, None)
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
    with_hash = sets_password(body, call)
    return body == call.body if with_hash is None else with_hash


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
