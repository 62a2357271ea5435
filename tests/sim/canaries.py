"""Bugs that are planted to see whether the checkers still see: each is a Member that has one."""

from collections.abc import Sequence
from itertools import count
from typing import Final

from typing_extensions import override

from kvstore.apply.ranges import execute_range
from kvstore.batch import Inbox, Outbox
from kvstore.errors import Refusal
from kvstore.mvcc.backend import Table
from kvstore.mvcc.meta_rows import CONSISTENT_INDEX_KEY
from kvstore.node.parts import Parts
from kvstore.node.ports import LogFile
from kvstore.raft.model import Entry, HardState
from kvstore.raft.ready import ProposeOutcome, ProposeResult, Ready
from kvstore.wire import rpc, splice
from kvstore.wire.gen import rpc_pb2 as pb
from tests.sim.checks import SECOND_NS
from tests.sim.disk import SimBackend, SimFiles
from tests.sim.member import Member


class _LyingFiles(SimFiles):
    """A disk that says it is synced when it is not."""

    @override
    def sync_data(self, handle: int) -> None:
        self.faults.strike("sync_data")


class LosesWrites(Member):
    """Acknowledges writes that a power cut takes away."""

    files_type = _LyingFiles


class ReadsLate(Member):
    """Answers ranges from before the last turn."""

    _revisions = (1, 1)

    @override
    def answer(self, inbox: Inbox) -> Outbox:
        store = self.parts.store
        stale, before = self._revisions
        self._revisions = (before, store.revision)
        ranges = {each: body for each, method, body in inbox.calls if method == rpc.RANGE}
        out = super().answer(inbox)
        out.replies = [
            (each, code, self._late(ranges[each], stale, body))
            if each in ranges and not code
            else (each, code, body)
            for each, code, body in out.replies
        ]
        return out

    def _late(self, request: bytes, stale: int, body: bytes) -> bytes:
        asked = pb.RangeRequest.FromString(request)
        if asked.revision:
            return body
        asked.revision = stale
        answer = execute_range(self.parts.store, asked)
        if isinstance(answer, Refusal):
            return body
        header = self.parts.headers.field(stale, self.parts.raft.term)
        return splice.range_response(header, answer.kvs, answer.more, answer.count)


class ReadsWithoutAsking(Member):
    """Answers linearizable reads from what it has, as if it always led alone."""

    @override
    def answer(self, inbox: Inbox) -> Outbox:
        inbox.calls = [
            (each, method, _serializable(method, body)) for each, method, body in inbox.calls
        ]
        return super().answer(inbox)


def _serializable(method: int, body: bytes) -> bytes:
    if method != rpc.RANGE:
        return body
    request = pb.RangeRequest.FromString(body)
    request.serializable = True
    return request.SerializeToString()


class _ForgetfulBackend(SimBackend):
    """Rows are committed, the index that they stand for is not."""

    @override
    def put(self, table: Table, key: bytes, value: bytes) -> None:
        if key != CONSISTENT_INDEX_KEY:
            super().put(table, key, value)


class AppliesTwice(Member):
    """Applies entries again after a restart."""

    backend_type = _ForgetfulBackend


class ProposesTwice(Member):
    """Forwards a write to the leader twice, as one does who has got no answer yet."""

    @override
    def wire(self, parts: Parts) -> None:
        propose = parts.raft.propose

        def twice(datas: Sequence[bytes]) -> ProposeResult:
            result = propose(datas)
            if result.outcome is ProposeOutcome.FORWARDED:
                propose(datas)
            return result

        parts.raft.propose = twice  # type: ignore[method-assign]


class ExpiresEarly(Member):
    """Ends leases a second too soon."""

    @override
    def wire(self, parts: Parts) -> None:
        lessor = parts.lessor
        due = lessor.due
        lessor.due = lambda now_ns, limit=500: due(now_ns + SECOND_NS, limit)  # type: ignore[method-assign]


class ForgetsToPropose(Member):
    """Holds a write back now and then until its time is up."""

    @override
    def wire(self, parts: Parts) -> None:
        propose = parts.raft.propose
        calls = count(1)
        forgotten: set[bytes] = set()

        def some(datas: Sequence[bytes]) -> ProposeResult:
            if next(calls) % 10 == 0:
                forgotten.add(datas[-1])
            if forgotten.intersection(datas):
                return ProposeResult(ProposeOutcome.NO_LEADER)
            return propose(datas)

        parts.raft.propose = some  # type: ignore[method-assign]


class DropsEvents(Member):
    """Loses a message to a watcher now and then."""

    @override
    def answer(self, inbox: Inbox) -> Outbox:
        out = super().answer(inbox)
        out.deliveries = [
            each
            for at, each in enumerate(out.deliveries)
            if at != 3 or not pb.WatchResponse.FromString(each[1] + each[2]).events
        ]
        return out


class ForgetsVotes(Member):
    """Does not write whom it voted for."""

    @override
    def wire(self, parts: Parts) -> None:
        parts.log = _Voteless(parts.log)


class _Voteless:
    def __init__(self, log: LogFile) -> None:
        self._log = log

    def save(self, hard_state: HardState | None, entries: Sequence[Entry], *, sync: bool) -> None:
        kept = None if hard_state is None else hard_state._replace(vote=0)
        self._log.save(kept, entries, sync=sync)


class SpeaksTooSoon(Member):
    """Sends what it should send once it has saved before it saves."""

    @override
    def wire(self, parts: Parts) -> None:
        ready_of = parts.raft.ready

        def ready(*, may_save: bool = True) -> Ready | None:
            ready = ready_of(may_save=may_save)
            if ready is not None:
                ready.messages_early += ready.messages_late
                ready.messages_late = []
            return ready

        parts.raft.ready = ready  # type: ignore[method-assign]


ALONE: Final = (
    LosesWrites,
    ReadsLate,
    AppliesTwice,
    ExpiresEarly,
    DropsEvents,
    ForgetsToPropose,
)
TOGETHER: Final = (
    LosesWrites,
    ReadsLate,
    ReadsWithoutAsking,
    AppliesTwice,
    ProposesTwice,
    ExpiresEarly,
    ForgetsVotes,
    SpeaksTooSoon,
)
