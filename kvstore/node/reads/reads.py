"""Reads: answered after the turn's applies, linearizable ones once the leader is known to lead.

    linearizable   add ──► read_rounds ──► answer
    serializable   add ──────────────────► answer

What would make a turn long is cut into slices at one pinned revision: a range over many keys
gathers its answer over several turns, a range stream sends a chunk whenever its client has room.
A compaction that passes the pinned revision meanwhile ends a stream as it does in etcd; a plain
range, whose client never named that revision, is then read anew in one go.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from kvstore.apply.ranges import RangeAnswer, execute_range, fetch_limit, shape, skips_values
from kvstore.batch import Outbox
from kvstore.errors import Code, Refusal
from kvstore.failpoints import hit
from kvstore.node.parts import Parts
from kvstore.node.ports import Backlog
from kvstore.node.reads import slow_read
from kvstore.node.reads.gets import Get, answer_gets
from kvstore.node.reads.lease_lookups import LeaseLookups
from kvstore.node.reads.read_rounds import Answer, ReadRounds
from kvstore.node.reads.status import status_response
from kvstore.wire import splice
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.members import Member

_FIRST_CHUNK_KEYS: Final = 10


class Reads:
    """All reads under way."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._rounds = ReadRounds(parts)
        self._lookups = LeaseLookups(parts)
        self._now: list[Answer] = []
        self._gets: list[Get] = []  # to be answered with these
        self._long: deque[LongRange] = deque()
        self._streams: dict[int, RangeStream] = {}
        self._now_ns = 0
        self._counters = parts.counters
        self.guard: Callable[[Outbox], bool] | None = None  # of the call being admitted

    # Admission.

    def add(
        self, call_id: int, answer: Answer, *, serializable: bool = False, is_stream: bool = False
    ) -> None:
        """Note a read; its answer runs once it may, unless the guard has answered by then."""
        if self.guard is not None:
            answer = _guarded(self.guard, answer)
        if serializable:
            self._now.append(answer)
        else:
            self._rounds.add(call_id, answer, is_stream=is_stream)

    def add_range(self, call_id: int, request: pb.RangeRequest) -> None:
        """Note a Range call."""
        self.add(
            call_id,
            lambda out: self._answer_range(call_id, request, out),
            serializable=request.serializable,
        )

    def add_get(self, call_id: int, request: pb.RangeRequest) -> None:
        """Note a Range call that is a get."""
        get = (call_id, request.key)
        if self.guard is not None:
            self.add(
                call_id,
                lambda out: answer_gets(self._parts, [get], out),
                serializable=request.serializable,
            )
        elif request.serializable:
            self._gets.append(get)
        else:
            self._rounds.add_get(get)

    def add_range_stream(self, call_id: int, request: pb.RangeRequest) -> None:
        """Note a RangeStream call."""

        def start(out: Outbox) -> None:
            self._streams[call_id] = RangeStream(self._parts, call_id, request)

        self.add(call_id, start, serializable=request.serializable, is_stream=True)

    def add_txn(self, call_id: int, request: pb.TxnRequest, *, serializable: bool) -> None:
        """Note a transaction without writes."""

        def answer(out: Outbox) -> None:
            parts = self._parts
            result = parts.applier.txns.run_read_only(request, parts.headers, parts.raft.term)
            if isinstance(result, Refusal):
                out.replies.append((call_id, result.code, result.text.encode()))
            else:
                out.replies.append((call_id, Code.OK, result))

        self.add(call_id, answer, serializable=serializable)

    def add_time_to_live(
        self, call_id: int, request: pb.LeaseTimeToLiveRequest, *, for_peer: bool = False
    ) -> None:
        """Note a LeaseTimeToLive call; the leader answers once what is committed is applied."""

        def answer(out: Outbox) -> None:
            self._lookups.add(call_id, request, self._now_ns, out, for_peer=for_peer)

        self.add(call_id, answer, serializable=True)

    def add_leases(self, call_id: int) -> None:
        """Note a LeaseLeases call."""

        def answer(out: Outbox) -> None:
            found = pb.LeaseLeasesResponse(
                leases=[pb.LeaseStatus(ID=lease) for lease in self._parts.lessor.leases()]
            )
            out.replies.append((call_id, Code.OK, self._header() + found.SerializeToString()))

        self.add(call_id, answer, serializable=True)

    def add_member_list(self, call_id: int, *, linearizable: bool) -> None:
        """Note a MemberList call."""

        def answer(out: Outbox) -> None:
            members = self._parts.membership.sorted_members()
            listed = pb.MemberListResponse(members=[_member(each) for each in members])
            header = self._parts.headers.field(0, self._parts.raft.term)
            out.replies.append((call_id, Code.OK, header + listed.SerializeToString()))

        self.add(call_id, answer, serializable=not linearizable)

    def add_status(self, call_id: int) -> None:
        """Note a Status call."""
        self.add(
            call_id,
            lambda out: out.replies.append((call_id, Code.OK, status_response(self._parts))),
            serializable=True,
        )

    def cancel(self, call_id: int) -> None:
        """Forget a read whose client went away (waiting ones run to no one's ear)."""
        self._streams.pop(call_id, None)
        self._lookups.cancel(call_id)
        for job in self._long:
            if job.call_id == call_id:
                self._long.remove(job)
                return

    def end_long(self, refusal: Refusal, out: Outbox) -> None:
        """Refuse what is under way over several turns."""
        text = refusal.text.encode()
        out.replies += [(job.call_id, refusal.code, text) for job in self._long]
        out.ends += [(call_id, refusal.code, text) for call_id in self._streams]
        self._long.clear()
        self._streams.clear()

    # The turn.

    def ask(self, now_ns: int) -> None:
        """Ask for this turn's read-index, and again for those that got no answer."""
        self._now_ns = now_ns
        self._rounds.ask(now_ns)

    @property
    def is_waiting(self) -> bool:
        """Whether reads hang on an answer of the leader or on applying."""
        return self._rounds.is_waiting

    def confirmed(self, index: int, context: bytes) -> None:
        """Take raft's answer: the reads may be answered once index is applied."""
        self._rounds.confirmed(index, context)

    def leader_changed(self, out: Outbox) -> None:
        """End the reads that the leader before has not answered."""
        self._rounds.leader_changed(out)

    def answer(self, out: Outbox) -> None:
        """Answer every read that may be answered now."""
        self._lookups.step(self._now_ns, out)
        answers, self._now = self._now, []
        gets, self._gets = self._gets, []
        if not (answers or gets or self._rounds.is_waiting):
            return
        counters = self._counters
        began_ns, ranges, refused = counters.clock(), counters.ranges, counters.refused_ranges
        for answer in answers:
            answer(out)
        if gets:
            answer_gets(self._parts, gets, out)
        self._rounds.answer(out)
        counters.note_reads(counters.clock() - began_ns, ranges, refused)

    def step(self, backlog: Backlog, out: Outbox) -> bool:
        """Do a slice of the long reads; tell whether any could go on at once."""
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
        return self._parts.headers.field(self._parts.store.revision, self._parts.raft.term)

    def _answer_range(self, call_id: int, request: pb.RangeRequest, out: Outbox) -> None:
        store = self._parts.store
        slice_keys = self._parts.limits.range_slice_keys
        if request.range_end and not request.count_only and not 0 < request.limit <= slice_keys:
            counted = store.range(
                request.key, request.range_end, revision=request.revision, count_only=True
            )
            if not isinstance(counted, Refusal) and counted.count > slice_keys:
                self._long.append(LongRange(self._parts, call_id, request, counted.count))
                return
        self._counters.ranges += 1
        answer = execute_range(store, request)
        if isinstance(answer, Refusal):
            self._counters.refused_ranges += 1
            out.replies.append((call_id, answer.code, answer.text.encode()))
            return
        out.replies.append((call_id, Code.OK, _range_response(self._parts, answer)))


def _guarded(guard: Callable[[Outbox], bool], answer: Answer) -> Answer:
    def guarded(out: Outbox) -> None:
        if guard(out):
            answer(out)

    return guarded


class LongRange:
    """A Range over many keys, gathered slice by slice at one revision, answered in one message."""

    def __init__(self, parts: Parts, call_id: int, request: pb.RangeRequest, count: int) -> None:
        self.call_id = call_id
        self._parts = parts
        self._request = request
        self._count = count
        self._header_revision = parts.store.revision
        self._pinned = request.revision if request.revision > 0 else parts.store.revision
        self._next_key = request.key
        self._kvs: list[bytes] = []
        self._began_ns = parts.counters.clock()
        self._wanted = fetch_limit(request) or count

    def step(self, out: Outbox) -> bool:
        """Gather one slice; answer and return True once all is there."""
        parts, request = self._parts, self._request
        slice_keys = min(parts.limits.range_slice_keys, self._wanted - len(self._kvs))
        found = parts.store.range(
            self._next_key,
            request.range_end,
            revision=self._pinned,
            limit=slice_keys,
            keys_only=skips_values(request),
        )
        if isinstance(found, Refusal):
            self._answer(execute_range(parts.store, request), out)
            return True
        self._kvs += found.kvs
        if len(found.kvs) == slice_keys and len(self._kvs) < self._wanted:
            self._next_key = splice.kv_key(found.kvs[-1]) + b"\0"
            return False
        self._answer(self._finish(), out)
        return True

    def _finish(self) -> RangeAnswer:
        kvs, more = shape(self._request, self._kvs)
        return RangeAnswer(kvs, more, self._count, self._header_revision)

    def _answer(self, answer: RangeAnswer | Refusal, out: Outbox) -> None:
        slow_read.note_long(self._parts, self._request, answer, self._began_ns)
        if isinstance(answer, Refusal):
            out.replies.append((self.call_id, answer.code, answer.text.encode()))
        else:
            out.replies.append((self.call_id, Code.OK, _range_response(self._parts, answer)))


class RangeStream:
    """A RangeStream call: chunks near the message limit, all at the revision of the first.

    Header, more and count are in the last message only.
    """

    def __init__(self, parts: Parts, call_id: int, request: pb.RangeRequest) -> None:
        self._parts = parts
        self._call_id = call_id
        self._request = request
        self._left = max(request.limit, 0)  # 0: no limit, which a negative one means as well
        self._chunk_keys = _FIRST_CHUNK_KEYS
        self._next_key = request.key
        self._sent = 0
        self._header_revision = parts.store.revision
        self._pinned = request.revision if request.revision > 0 else parts.store.revision
        parts.counters.ranges += 1

    def step(self, out: Outbox) -> bool:
        """Send one chunk; return True once the last is sent."""
        hit("beforeRangeStreamChunk")
        parts, request = self._parts, self._request
        limit = self._chunk_keys if self._left == 0 else min(self._chunk_keys, self._left)
        found = parts.store.range(
            self._next_key,
            request.range_end,
            revision=request.revision if request.revision < 0 else self._pinned,
            limit=limit + 1,
            count_only=request.count_only,
            keys_only=skips_values(request),
        )
        if isinstance(found, Refusal):
            out.ends.append((self._call_id, found.code, found.text.encode()))
            return True
        kvs = found.kvs[:limit]
        more = len(found.kvs) > limit
        self._sent += len(kvs)
        if self._left:
            self._left -= len(kvs)
        is_last = not more or (request.limit > 0 and self._left == 0)
        # found.count is of what is left from this chunk's first key on.
        count = self._sent - len(kvs) + found.count
        if kvs and not is_last:
            self._next_key = splice.kv_key(kvs[-1]) + b"\0"
            size = sum(map(len, kvs))
            self._chunk_keys = _next_chunk(limit, size, parts.limits.request_bytes_max)
        self._send(kvs, self._totals(more=more, count=count) if is_last else None, out)
        return is_last

    def _totals(self, *, more: bool, count: int) -> tuple[bytes, bool, int]:
        header = self._parts.headers.field(self._header_revision, self._parts.raft.term)
        return header, more, count

    def _send(self, kvs: list[bytes], totals: tuple[bytes, bool, int] | None, out: Outbox) -> None:
        """Send one message; totals (header, more, count) only with the last."""
        header, more, count = totals or (b"", False, 0)
        chunk = splice.range_response(header, kvs, more, count)
        out.deliveries.append((self._call_id, splice.range_stream_response(chunk), b""))
        if totals is not None:
            out.ends.append((self._call_id, Code.OK, b""))


def _next_chunk(keys: int, size_bytes: int, target_bytes: int) -> int:
    """Double or halve the next chunk's keys while the last one missed the target by far."""
    if size_bytes < target_bytes // 2:
        return keys * 2
    if size_bytes > target_bytes * 2:
        return max(keys // 2, 1)
    return keys


def _range_response(parts: Parts, answer: RangeAnswer) -> bytes:
    header = parts.headers.field(answer.revision, parts.raft.term)
    return splice.range_response(header, answer.kvs, answer.more, answer.count)


def _member(member: Member) -> pb.Member:
    return pb.Member(
        ID=member.id,
        name=member.name,
        peerURLs=member.peer_urls,
        clientURLs=member.client_urls,
        isLearner=member.is_learner,
    )
