"""Reads: answered after the turn's applies, linearizable ones once a quorum confirms the leader.

    linearizable   add ──► read_rounds ──► answer
    serializable   add ──────────────────► answer

What would make a turn long is cut into slices at one pinned revision: a range over many keys is
gathered over several turns (long_range), a range stream sends a chunk whenever its client has room
(range_stream). A compaction that passes the pinned revision meanwhile ends a stream, as in etcd.

Clients that ask for the same range in one turn get the same answer, which is made once: nothing is
written between the answers of a turn. Such reads come together when all clients of a
member that was unavailable list again what they watch.

Every read comes with the CallContext of its call; its permission is checked when it is answered.
One that was admitted while auth was disabled has no check: it is refused if auth is enabled before
it is answered, and the client tries again with a credential.
"""

from collections import deque

from kvstore.apply.ranges import execute_range, is_plain
from kvstore.batch import Outbox
from kvstore.errors import Code, Refusal
from kvstore.node.call_context import CallContext, ReadCheck
from kvstore.node.parts import Parts
from kvstore.node.ports import Backlog
from kvstore.node.reads.gets import Get, answer_gets
from kvstore.node.reads.lease_lookups import KeysCheck, LeaseLookups
from kvstore.node.reads.long_range import LongRange, range_response
from kvstore.node.reads.member_list import member_list_response
from kvstore.node.reads.range_stream import RangeStream, range_stream
from kvstore.node.reads.read_rounds import Answer, Read, ReadRounds, refuse
from kvstore.node.reads.status import status_response
from kvstore.wire import splice
from kvstore.wire.gen import rpc_pb2 as pb

_Asked = tuple[bytes, bytes, int]  # the key, the end and the limit of a plain range


class Reads:
    """All reads under way."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._time = parts.time
        self._rounds = ReadRounds(parts)
        self._lookups = LeaseLookups(parts)
        self._now: list[Read] = []
        self._gets: list[Get] = []  # to be answered together with these
        self._long: deque[LongRange] = deque()
        self._streams: dict[int, RangeStream] = {}
        self._counters = parts.counters
        self._answered: dict[_Asked, bytes] = {}  # in this turn

    def check_keys_with(self, check: KeysCheck) -> None:
        """Set the check that is made before a client is shown the keys of a lease."""
        self._lookups.check_keys = check

    # Admission.

    def add(
        self,
        call_id: int,
        context: CallContext,
        answer: Answer,
        *,
        serializable: bool = False,
        is_stream: bool = False,
        shows_keys: bool = False,
    ) -> None:
        """Add a read; answer is called when it may be answered, if the context's check allows."""
        check = context.read_check
        if check is not None:
            answer = _checked(check, answer)
        read = (call_id, answer, is_stream, shows_keys and check is None)
        if serializable:
            self._now.append(read)
        else:
            self._rounds.add(read)

    def add_range(self, call_id: int, context: CallContext, request: pb.RangeRequest) -> None:
        """Add a Range call."""
        self.add(
            call_id,
            context,
            lambda out: self._answer_range(call_id, request, out),
            serializable=request.serializable,
            shows_keys=True,
        )

    def add_gets(self, gets: list[Get], *, serializable: bool) -> None:
        """Add Range calls that are gets, of callers that need no permission."""
        if serializable:
            self._gets += gets
        else:
            self._rounds.add_gets(gets)

    def add_range_stream(
        self, call_id: int, context: CallContext, request: pb.RangeRequest
    ) -> None:
        """Add a RangeStream call."""

        def start(_out: Outbox) -> None:
            self._streams[call_id] = range_stream(self._parts, call_id, request)

        self.add(
            call_id,
            context,
            start,
            serializable=request.serializable,
            is_stream=True,
            shows_keys=True,
        )

    def add_txn(
        self, call_id: int, context: CallContext, request: pb.TxnRequest, *, serializable: bool
    ) -> None:
        """Add a transaction without writes."""

        def answer(out: Outbox) -> None:
            parts = self._parts
            result = parts.state.applier.txns.run_read_only(request, parts.headers, parts.raft.term)
            if isinstance(result, Refusal):
                out.refuse(call_id, result)
            else:
                out.replies.append((call_id, Code.OK, result))

        self.add(call_id, context, answer, serializable=serializable, shows_keys=True)

    def add_time_to_live(
        self,
        call_id: int,
        context: CallContext,
        request: pb.LeaseTimeToLiveRequest,
        *,
        for_peer: bool = False,
    ) -> None:
        """Add a LeaseTimeToLive call; the leader answers once what is committed is applied."""

        def answer(out: Outbox) -> None:
            metadata, now_ns = context.metadata, self._time.now_ns
            self._lookups.add(call_id, request, metadata, now_ns, out, for_peer=for_peer)

        shows_keys = request.keys and not for_peer
        self.add(call_id, context, answer, serializable=True, shows_keys=shows_keys)

    def add_leases(self, call_id: int, context: CallContext) -> None:
        """Add a LeaseLeases call."""

        def answer(out: Outbox) -> None:
            found = pb.LeaseLeasesResponse(
                leases=[pb.LeaseStatus(ID=lease) for lease in self._parts.state.lessor.leases()]
            )
            out.replies.append((call_id, Code.OK, self._header() + found.SerializeToString()))

        self.add(call_id, context, answer, serializable=True, shows_keys=True)

    def add_member_list(self, call_id: int, context: CallContext, *, linearizable: bool) -> None:
        """Add a MemberList call."""
        self.add(
            call_id,
            context,
            lambda out: out.replies.append((call_id, Code.OK, member_list_response(self._parts))),
            serializable=not linearizable,
        )

    def add_status(self, call_id: int, context: CallContext) -> None:
        """Add a Status call."""
        self.add(
            call_id,
            context,
            lambda out: out.replies.append((call_id, Code.OK, status_response(self._parts))),
            serializable=True,
        )

    def cancel(self, call_id: int) -> None:
        """Forget a read whose client went away; the answer of one that still waits is dropped."""
        self._streams.pop(call_id, None)
        self._lookups.cancel(call_id)
        for job in self._long:
            if job.call_id == call_id:
                self._long.remove(job)
                return

    def end_long(self, refusal: Refusal, out: Outbox) -> None:
        """Refuse the reads that take several turns."""
        for job in self._long:
            out.refuse(job.call_id, refusal)
        for call_id in self._streams:
            out.end(call_id, refusal)
        self._lookups.refuse_with_keys(refusal, out)
        self._long.clear()
        self._streams.clear()

    def refuse_unchecked(self, refusal: Refusal, out: Outbox) -> None:
        """Refuse the reads that would show keys, and were admitted while auth was disabled."""
        refuse([read for read in self._now if read[3]], self._gets, refusal, out)
        self._now = [read for read in self._now if not read[3]]
        self._gets = []
        self._rounds.refuse_unchecked(refusal, out)

    # The turn.

    @property
    def has_new(self) -> bool:
        """Whether no read index was requested yet for some reads."""
        return self._rounds.has_new

    def ask(self) -> None:
        """Request this turn's read index, and again those that got no answer."""
        self._rounds.ask(self._time.now_ns)

    @property
    def is_waiting(self) -> bool:
        """Whether reads wait for an answer of the leader or for applying."""
        return self._rounds.is_waiting

    def confirmed(self, index: int, context: bytes) -> None:
        """Handle raft's answer: the reads may be answered once index is applied."""
        self._rounds.confirmed(index, context)

    def leader_changed(self, out: Outbox) -> None:
        """Refuse the reads that the previous leader has not confirmed."""
        self._rounds.leader_changed(out)

    def answer(self, out: Outbox) -> None:
        """Answer every read that may be answered now."""
        self._lookups.step(self._time.now_ns, out)
        reads, self._now = self._now, []
        gets, self._gets = self._gets, []
        if not (reads or gets or self._rounds.is_waiting):
            return
        counters = self._counters
        began_ns, ranges, refused = counters.clock(), counters.ranges, counters.refused_ranges
        for _, answer, _, _ in reads:
            answer(out)
        if gets:
            answer_gets(self._parts, gets, out)
        self._rounds.answer(out)
        if self._answered:
            self._answered.clear()
        counters.note_reads(counters.clock() - began_ns, ranges, refused)

    @property
    def has_long(self) -> bool:
        """Whether any read takes several turns."""
        return bool(self._long or self._streams)

    def step(self, backlog: Backlog, out: Outbox) -> bool:
        """Do a slice of the long reads; return whether any could continue at once."""
        if self._long:
            job = self._long.popleft()
            if not job.step(out):
                self._long.append(job)
        runnable = bool(self._long)
        if not self._streams:
            return runnable
        for call_id, stream in list(self._streams.items()):
            if backlog.get(call_id, 0) > self._parts.limits.stream_backlog_bytes_max:
                continue
            if stream.step(out):
                del self._streams[call_id]
            else:
                runnable = True
        return runnable

    # Answers.

    def _header(self) -> bytes:
        return self._parts.headers.field(self._parts.state.store.revision, self._parts.raft.term)

    def _answer_range(self, call_id: int, request: pb.RangeRequest, out: Outbox) -> None:
        store = self._parts.state.store
        slice_keys = self._parts.limits.range_slice_keys
        if request.range_end and not request.count_only and not 0 < request.limit <= slice_keys:
            counted = store.range(
                request.key, request.range_end, revision=request.revision, count_only=True
            )
            if not isinstance(counted, Refusal) and counted.count > slice_keys:
                self._long.append(LongRange(self._parts, call_id, request, counted.count))
                return
        self._counters.ranges += 1
        if is_plain(request):
            out.replies.append((call_id, Code.OK, self._plain_range(request)))
            return
        answer = execute_range(store, request)
        if isinstance(answer, Refusal):
            self._counters.refused_ranges += 1
            out.refuse(call_id, answer)
            return
        out.replies.append((call_id, Code.OK, range_response(self._parts, answer)))

    def _plain_range(self, request: pb.RangeRequest) -> bytes:
        bounds = request.key, request.range_end, request.limit
        response = self._answered.get(bounds)
        if response is None:
            store = self._parts.state.store
            keys, count = store.range_keys(*bounds)
            tail = splice.range_response_tail(len(keys) < count, count)
            response = self._answered[bounds] = store.fields(keys, self._header(), tail)
        return response


def _checked(check: ReadCheck, answer: Answer) -> Answer:
    def checked(out: Outbox) -> None:
        if check(out):
            answer(out)

    return checked
