"""Planted bugs, to see whether the checkers still find them.

    Canary: the member that has the bug, the promise it breaks, the checks that may report it

A canary is found only if one of its own checks reports it: that another check fails first, or that
the world never ends, says nothing about this promise.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any, Final, NamedTuple

from typing_extensions import override

from kvstore.apply.ranges import execute_range
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.backend import Table
from kvstore.batch import Inbox, Outbox, TaskKind, TaskResult, messages
from kvstore.errors import Refusal
from kvstore.meta_rows import CONSISTENT_INDEX_KEY
from kvstore.node.call_context import CallContext
from kvstore.node.parts import Parts
from kvstore.node.ports import LogFile
from kvstore.raft.model import Entry, HardState
from kvstore.raft.ready import ProposeOutcome, ProposeResult, Ready
from kvstore.server.boot.bootstrap import Founding
from kvstore.wire import rpc, splice
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field
from tests.sim.checks import SECOND_NS
from tests.sim.disk import SimBackend, SimFiles
from tests.sim.member import Member


class _LyingFiles(SimFiles):
    """A disk that says it is synced when it is not."""

    @override
    def sync_data(self, handle: int) -> None:
        self.faults.check("sync_data")


class LosesWrites(Member):
    """Acknowledges writes that a power cut takes away."""

    files_type: type[SimFiles] = _LyingFiles


class ReadsStale(Member):
    """Answers ranges from before the last turn."""

    _revisions = (1, 1)

    @override
    def answer(self, inbox: Inbox) -> Outbox:
        store = self.parts.state.store
        stale, before = self._revisions
        self._revisions = (before, store.revision)
        ranges = {each: body for each, method, body in inbox.calls if method == rpc.RANGE}
        out = super().answer(inbox)
        out.replies = [
            (each, code, self._stale_answer(ranges[each], stale, body))
            if each in ranges and not code
            else (each, code, body)
            for each, code, body in out.replies
        ]
        return out

    def _stale_answer(self, request: bytes, stale: int, body: bytes) -> bytes:
        asked = pb.RangeRequest.FromString(request)
        if asked.revision:
            return body
        asked.revision = stale
        answer = execute_range(self.parts.state.store, asked)
        if isinstance(answer, Refusal):
            return body
        header = self.parts.headers.field(stale, self.parts.raft.term)
        return splice.range_response(header, answer.kvs, answer.more, answer.count)


class ReadsWithoutConfirming(Member):
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

    backend_type: type[SimBackend] = _ForgetfulBackend


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

        parts.raft.propose = twice


class ExpiresEarly(Member):
    """Ends leases a second too soon."""

    @override
    def wire(self, parts: Parts) -> None:
        lessor = parts.state.lessor
        due = lessor.due
        lessor.due = lambda now_ns, limit=500: due(now_ns + SECOND_NS, limit)


class ForgetsToPropose(Member):
    """Holds a write back now and then until its time is up."""

    @override
    def wire(self, parts: Parts) -> None:
        propose = parts.raft.propose
        calls = count(1)
        forgotten: set[bytes] = set()

        def some(datas: Sequence[bytes]) -> ProposeResult:
            if next(calls) % 3 == 0:
                forgotten.add(datas[-1])
            if forgotten.intersection(datas):
                return ProposeResult(ProposeOutcome.NO_LEADER)
            return propose(datas)

        parts.raft.propose = some


class DropsEvents(Member):
    """Loses a message to a watcher now and then."""

    @override
    def answer(self, inbox: Inbox) -> Outbox:
        out = super().answer(inbox)
        out.deliveries = [
            each
            for at, each in enumerate(messages(out.deliveries))
            if at != 3 or not pb.WatchResponse.FromString(each[1] + each[2]).events
        ]
        return out


class ForgetsVotes(Member):
    """Does not write whom it voted for."""

    @override
    def wire(self, parts: Parts) -> None:
        parts.replication.log = _Voteless(parts.replication.log)


class _Voteless:
    def __init__(self, log: LogFile) -> None:
        self._log = log

    def save(self, hard_state: HardState | None, entries: Sequence[Entry], *, sync: bool) -> None:
        kept = None if hard_state is None else hard_state._replace(vote=0)
        self._log.save(kept, entries, sync=sync)

    def start_save(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        kept = None if hard_state is None else hard_state._replace(vote=0)
        self._log.start_save(kept, entries)

    def finish_save(self) -> None:
        self._log.finish_save()


class NeverFinishes(Member):
    """Answers while the disk still works."""

    @override
    def wire(self, parts: Parts) -> None:
        parts.replication.log.finish_save = _nothing


def _nothing() -> None:
    return None


class SendsBeforeSaving(Member):
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

        parts.raft.ready = ready


class _AfterStart(Member):
    """A member whose running node is changed."""

    @override
    def start(self, founding: Founding) -> None:
        super().start(founding)
        self.plant(self.node)

    def plant(self, node: Any) -> None:
        """Change a node that has just started."""


class WritesUnchecked(Member):
    """Applies puts and deletions whoever asks for them."""

    @override
    def wire(self, parts: Parts) -> None:
        guard: Any = parts.state.applier.guard
        guard.put = guard.delete_range = lambda *_: None


class ReadsUnchecked(_AfterStart):
    """Answers reads without looking at permissions."""

    @override
    def plant(self, node: Any) -> None:
        node._checker._read_checks = {}


class AdmitsAnybody(_AfterStart):
    """Admits every call while auth is enabled, with the name it came with if it has any."""

    @override
    def plant(self, node: Any) -> None:
        checker = node._checker

        def admit(_call_id: int, _method: int, _body: bytes, metadata: Any) -> CallContext:
            credential = checker.identify(metadata)
            if not isinstance(credential, tuple) or isinstance(credential, Refusal):
                credential = NO_CREDENTIAL
            return CallContext(metadata or {}, credential)

        checker.admit = admit


class ForgetsCallers(_AfterStart):
    """Writes entries that name no caller."""

    @override
    def plant(self, node: Any) -> None:
        router = node._router
        propose = router._propose

        def nameless(call_id: int, field: int, body: bytes, _: Any, *rest: Any, **kw: Any) -> Any:
            return propose(call_id, field, body, NO_CREDENTIAL, *rest, **kw)

        router._propose = nameless


class TrustsOldRevisions(Member):
    """Accepts what was allowed when the entry was made, although users have changed since."""

    @override
    def wire(self, parts: Parts) -> None:
        auth: Any = parts.state.auth
        check = auth.check

        def trusting(credential: Any, *rest: Any) -> Any:
            name, revision = credential
            return check((name, auth.revision if revision else 0), *rest)

        auth.check = trusting


class KeepsTokens(Member):
    """Accepts tokens of users who are gone, or whose password has changed."""

    @override
    def wire(self, parts: Parts) -> None:
        tokens: Any = parts.state.auth.tokens
        tokens.forget_user = lambda _: None
        tokens.clear = lambda: None


class RefusesNewTokens(_AfterStart):
    """Refuses a token that another member has given out, until it has applied the login."""

    @override
    def plant(self, node: Any) -> None:
        node._checker._deferred.filter = lambda *_: None


class SkipsPasswords(Member):
    """Logs everybody in who knows a user's name."""

    @override
    def wire(self, parts: Parts) -> None:
        tasks: Any = parts.host.tasks
        ask = tasks.ask

        def trusting(kind: TaskKind, args: Any, callback: Any) -> None:
            def passed(result: TaskResult, out: Outbox) -> None:
                callback(result._replace(error=""), out)

            ask(kind, args, passed if kind == TaskKind.CHECK_PASSWORD else callback)

        tasks.ask = trusting


class KeepsRevokedWatches(_AfterStart):
    """Goes on sending events to those who may not read them any more."""

    @override
    def plant(self, node: Any) -> None:
        node._parts.state.hub.recheck = lambda *_: None


class WatchesUnchecked(_AfterStart):
    """Lets everybody watch everything."""

    @override
    def plant(self, node: Any) -> None:
        node._checker._permit = lambda *_: None


class RenewsUnchecked(_AfterStart):
    """Keeps leases alive for everybody."""

    @override
    def plant(self, node: Any) -> None:
        node._checker.check_renew = lambda *_: None


class AnswersEarlierReads(_AfterStart):
    """Answers reads that were admitted before auth was enabled without a check."""

    @override
    def plant(self, node: Any) -> None:
        node._reads.refuse_unchecked = lambda *_: None


class ShowsLeaseKeys(_AfterStart):
    """Shows the keys of a lease as the leader knows them, whoever may read them."""

    @override
    def plant(self, node: Any) -> None:
        node._reads.check_keys_with(None)
        node._reads._lookups.refuse_with_keys = lambda *_: None


class LogsPasswords(_AfterStart):
    """Writes passwords into the log, beside their hashes."""

    @override
    def plant(self, node: Any) -> None:
        router = node._router
        propose = router._propose

        def telling(call_id: int, field: int, body: bytes, *rest: Any, **kw: Any) -> Any:
            if field == Field.AUTH_USER_ADD:
                body = pb.AuthUserAddRequest(password="secret-1").SerializeToString() + body
            return propose(call_id, field, body, *rest, **kw)

        node._logins._propose = telling


class Canary(NamedTuple):
    """A planted bug, and what must be said of it."""

    member: type[Member]
    promise: str
    checks: tuple[str, ...]  # qualified names of functions, of which one must report it
    members: tuple[int, ...] = (3,)
    auth: bool = False
    often: tuple[str, ...] = ()  # operations it needs to show
    first_seed: int = 1


CANARIES: Final = (
    Canary(
        LosesWrites,
        "what was synced is there after a power cut",
        # A log that lacks what the database or a later segment has is refused at the start.
        ("World._start", "RaftChecker.restarted", "Checker.jump", "Checker.advance"),
        (1, 3),
    ),
    Canary(
        NeverFinishes,
        "what is committed is durable at a majority",
        ("RaftChecker.after_turn",),
        (1,),
    ),
    Canary(
        ReadsStale,
        "a linearizable read shows everything that was acknowledged before it",
        ("Checker._check_read",),
        (1, 3),
    ),
    Canary(
        ReadsWithoutConfirming,
        "a linearizable read shows everything that was acknowledged before it",
        ("Checker._check_read",),
    ),
    Canary(
        AppliesTwice,
        "an entry is applied once",
        ("Member.compare", "Checker.jump", "Checker.advance", "Member.report_applied"),
        (1, 3),
    ),
    Canary(
        ProposesTwice,
        "a call is in the log once",
        ("Checker._apply_request",),
    ),
    Canary(
        ExpiresEarly,
        "a lease ends no sooner than promised",
        ("Checker._apply_request",),
        (1, 3),
    ),
    Canary(
        DropsEvents,
        "a watcher is sent every event",
        ("Watches._complete", "Watches._events", "Watches._check_event", "World._settle_all"),
        (1,),
    ),
    Canary(
        ForgetsToPropose,
        "a member alone times nothing out",
        ("Checker._check_error", "Checker.reply"),
        (1,),
    ),
    Canary(
        ForgetsVotes,
        "a member remembers its vote",
        ("RaftChecker.restarted", "RaftChecker.sent", "RaftChecker.saving"),
    ),
    Canary(
        SendsBeforeSaving,
        "an acknowledgement speaks only of what is durable",
        ("RaftChecker.sent",),
    ),
    Canary(
        WritesUnchecked,
        "nobody writes without permission at the entry's index",
        ("Checker._check_write", "Member.compare"),
        auth=True,
    ),
    Canary(
        TrustsOldRevisions,
        "nobody writes with a credential older than the last change of auth",
        ("Checker._check_write", "Member.compare"),
        auth=True,
    ),
    Canary(
        ReadsUnchecked,
        "nobody reads without permission",
        ("AccessChecker.check_shown",),
        (1, 3),
        auth=True,
    ),
    Canary(
        AnswersEarlierReads,
        "once auth is enabled nobody reads without permission",
        ("AccessChecker.check_shown",),
        (1, 3),
        auth=True,
    ),
    Canary(
        ShowsLeaseKeys,
        "the keys of a lease are shown to those who may read them",
        ("AccessChecker.check_shown",),
        auth=True,
        often=("time_to_live", "grant"),
        first_seed=113,
    ),
    Canary(
        AdmitsAnybody,
        "a call that needs a user or an administrator is made by one",
        ("AccessChecker.check_answered", "AccessChecker.check_header"),
        (1, 3),
        auth=True,
    ),
    Canary(
        ForgetsCallers,
        "an entry names its caller",
        ("AccessChecker.check_header",),
        (1,),
        auth=True,
    ),
    Canary(
        KeepsTokens,
        "a token ends with its user and its password",
        (
            "AccessChecker.check_header",
            "AccessChecker.check_answered",
            "AccessChecker.check_shown",
        ),
        (1, 3),
        auth=True,
    ),
    Canary(
        RefusesNewTokens,
        "a token that was given out is known at every member",
        ("Checker._check_error", "Checker._check_read_error"),
        auth=True,
    ),
    Canary(
        SkipsPasswords,
        "a token is given only for the right password",
        ("AccessChecker.check_login",),
        (1, 3),
        auth=True,
    ),
    Canary(
        LogsPasswords,
        "no password is in the log",
        ("AccessChecker.check_secret",),
        (1,),
        auth=True,
    ),
    Canary(
        WatchesUnchecked,
        "nobody watches without permission",
        ("AccessChecker.check_watching",),
        (1, 3),
        auth=True,
    ),
    Canary(
        KeepsRevokedWatches,
        "a watch ends when its caller may not read its range any more",
        ("AccessChecker.check_watching",),
        (1, 3),
        auth=True,
    ),
    Canary(
        RenewsUnchecked,
        "nobody keeps a lease alive without permission",
        ("AccessChecker.check_renewal",),
        (1, 3),
        auth=True,
    ),
)
