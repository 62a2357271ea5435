"""Applies committed entries in order, and answers who waits for them.

    entry ─► its waiter: by index and term, or by request id ─► Applier ─► reply or callback
             no waiter: replayed, or proposed by another member ─► Applier

The applied index moves with the data: both are in the backend's one open transaction, and the
index is written there just before each commit (see maintenance).
"""

from collections.abc import Sequence
from typing import Final

from kvstore.apply.compare_and_put import CompareAndPut
from kvstore.apply.entry_context import EntryContext
from kvstore.apply.plain_put import PlainPut, plain_put
from kvstore.apply.txn import Result
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.batch import Outbox
from kvstore.errors import LEADER_CHANGED, NO_SPACE, Code, CorruptionError, Refusal
from kvstore.failpoints import armed, hit
from kvstore.node import slow_apply
from kvstore.node.maintenance.long_jobs import LongJobs
from kvstore.node.parts import Parts
from kvstore.node.pending import INTERNAL, Parsed, Waiter
from kvstore.raft.model import ConfChange, ConfChangeType, Entry, EntryType
from kvstore.wire import raft_codec
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, credentials, decode_v2_request, unwrap, unwrap_request
from kvstore.wire.varint import WireError

_EMPTY: Final = b""


class Committed:
    """Applies what raft has committed."""

    def __init__(self, parts: Parts, jobs: LongJobs) -> None:
        self._parts = parts
        self._jobs = jobs
        self.confirmed_term = 0  # the last term whose leader's first entry was applied
        self.is_published = False  # this member's own name, proposed in this run, was applied
        self.removed_ns: int | None = None  # when this member's own removal was applied
        self.members_changed = False  # reset when the links were updated
        self._over_quota: list[int] = []  # calls whose write was done but exceeded the quota

    def apply(self, entries: Sequence[Entry], now_ns: int, out: Outbox) -> None:
        """Apply entries in order and answer their waiters.

        Plain puts that follow one another are applied as one run.
        """
        parts = self._parts
        applier = parts.state.applier
        applier.begin_batch(parts.raft.term)
        waiting = parts.replication.pending.by_index
        clock = parts.counters.clock
        began_ns = clock()
        if armed:
            _hit_each(entries)
        puts = 0  # that succeeded and are not counted yet
        run: list[PlainPut] = []
        run_waiters: list[Waiter | None] = []
        for entry in entries:
            placed = waiting.pop(entry.index, None)
            waiter = None if placed is None else self._waiter_of(placed, entry, out)
            plain = self._plain_put_of(entry) if waiter is None else waiter.request
            if isinstance(plain, PlainPut):
                run.append(plain)
                run_waiters.append(waiter)
                continue
            if run:
                puts += self._apply_run(run, run_waiters, entry.index - len(run), now_ns, out)
                run, run_waiters = [], []
            if entry.type != EntryType.NORMAL:
                self._change(entry, now_ns, out)
            elif waiter is not None:
                puts += self._apply_awaited(waiter, entry.index, now_ns, out)
            elif entry.data:
                puts += self._apply_unplaced(entry, now_ns, out)
            else:
                self.confirmed_term = entry.term
        if run:
            first = entries[-1].index + 1 - len(run)
            puts += self._apply_run(run, run_waiters, first, now_ns, out)
        took_ns = clock() - began_ns
        if parts.counters.note_batch(took_ns, puts, Field.PUT):
            slow_apply.warn_batch(parts, entries, took_ns)

    def _plain_put_of(self, entry: Entry) -> Parsed | None:
        """Return the plain put in an entry without a waiter, if it is one."""
        parts = self._parts
        if entry.type != EntryType.NORMAL or not entry.data:
            return None
        if parts.replication.pending.by_request or parts.state.auth.enabled:
            return None
        try:
            field, body = unwrap_request(entry.data)
        except WireError:
            return None
        return plain_put(pb.PutRequest.FromString(body), body) if field == Field.PUT else None

    def _apply_run(
        self,
        run: list[PlainPut],
        waiters: list[Waiter | None],
        first_index: int,
        now_ns: int,
        out: Outbox,
    ) -> int:
        """Apply plain puts from first_index on; return how many succeeded, not counted yet."""
        applier = self._parts.state.applier
        first_revision = applier.put_run(run)
        if first_revision is None:
            puts = 0
            for index, (put, waiter) in enumerate(zip(run, waiters, strict=True), first_index):
                awaited = waiter or Waiter(INTERNAL, Field.PUT, put, _EMPTY)
                puts += self._apply_awaited(awaited, index, now_ns, out)
            return puts
        if any(waiters):
            responses = applier.put_responses(first_revision, len(run))
            out.replies += [
                (waiter.call_id, 0, response)
                for waiter, response in zip(waiters, responses, strict=True)
                if waiter is not None
            ]
        return len(run)

    def _apply_awaited(self, waiter: Waiter, index: int, now_ns: int, out: Outbox) -> bool:
        """Apply an entry that has a waiter; return True for a successful put, not counted yet."""
        applier, request, credential = self._parts.state.applier, waiter.request, waiter.credential
        clock = self._parts.counters.clock
        at_ns = clock()
        if isinstance(request, PlainPut):
            request = pb.PutRequest(key=request.key, value=request.value)
        if isinstance(request, pb.PutRequest):
            result = applier.put(request, credential)
            if isinstance(result, bytes):
                self._answer(waiter, result, out)
                return True
        elif isinstance(request, CompareAndPut):
            result = applier.compare_and_put(request, credential)
            if isinstance(result, bytes):
                self._parts.counters.note_in_batch(Field.TXN, True)
                out.replies.append((waiter.call_id, 0, result))
                return False
        elif isinstance(request, pb.TxnRequest):
            result = applier.txn(request, credential)
        else:
            context = EntryContext(credential, index, now_ns)
            result = applier.apply(waiter.field, waiter.body, context)
        self._note(waiter, result, clock() - at_ns)
        self._answer(waiter, result, out)
        return False

    def _note(self, waiter: Waiter, result: Result, took_ns: int) -> None:
        succeeded = not isinstance(result, Refusal)
        if self._parts.counters.note_applied(waiter.field, succeeded, took_ns):
            slow_apply.warn(self._parts, waiter, result, took_ns)

    @property
    def has_over_quota(self) -> bool:
        """Whether calls wait for a NOSPACE alarm that is still to be proposed."""
        return bool(self._over_quota)

    def take_over_quota(self) -> list[int]:
        """Return the calls that are to be answered once a NOSPACE alarm is applied."""
        taken, self._over_quota = self._over_quota, []
        return taken

    def _waiter_of(
        self, placed: tuple[int, int, Waiter], entry: Entry, out: Outbox
    ) -> Waiter | None:
        """Return the waiter if it waits for this entry; else answer it that the leader changed."""
        term, _, waiter = placed
        if term == entry.term:
            return waiter
        self._answer(waiter, LEADER_CHANGED, out)
        return None

    def _answer(self, waiter: Waiter, result: Result, out: Outbox) -> None:
        call_id = waiter.call_id
        applier = self._parts.state.applier
        if applier.over_quota:
            applier.over_quota = False
            self._over_quota.append(call_id)
            return
        if waiter.callback is not None:
            waiter.callback(result, out)
            return
        if call_id == INTERNAL:
            if waiter.field == Field.CLUSTER_MEMBER_ATTR_SET:
                self.is_published = True
            return
        verdict = waiter.verdict if waiter.verdict is not None else result
        if isinstance(verdict, Refusal):
            out.refuse(call_id, verdict)
            return
        request = waiter.request
        if isinstance(request, pb.CompactionRequest) and request.physical:
            self._jobs.wait_for_compaction(call_id)
            return
        out.replies.append((call_id, Code.OK, verdict))

    def _apply_unplaced(self, entry: Entry, now_ns: int, out: Outbox) -> bool:
        """Apply an entry that is not one of this leader's: replayed, another member's, forwarded.

        Returns as _apply_awaited.
        """
        applier, by_request = self._parts.state.applier, self._parts.replication.pending.by_request
        try:
            if by_request:
                field, body, request_id = unwrap(entry.data)
                waiting = by_request.pop(request_id, None)
                if waiting is not None:
                    return self._apply_awaited(waiting[1], entry.index, now_ns, out)
            else:
                field, body = unwrap_request(entry.data)
        except WireError:
            self._apply_v2(entry)
            return False
        credential = credentials(entry.data) if self._parts.state.auth.enabled else NO_CREDENTIAL
        result = applier.apply(field, body, EntryContext(credential, entry.index, now_ns))
        self._parts.counters.note_in_batch(field, not isinstance(result, Refusal))
        if result is NO_SPACE and applier.over_quota:
            applier.over_quota = False
            self._over_quota.append(INTERNAL)
        return False

    def _apply_v2(self, entry: Entry) -> None:
        """Apply a request of etcd 3.5's v2 API."""
        try:
            self._parts.state.membership.apply_v2(decode_v2_request(entry.data))
        except WireError as error:
            raise CorruptionError(f"log entry {entry.index} holds no request: {error}") from error

    def _change(self, entry: Entry, now_ns: int, out: Outbox) -> None:
        """Apply a configuration change to the list of members and, if it is allowed, to raft."""
        parts = self._parts
        change = _conf_change(entry)
        refusal = parts.state.membership.change(change)
        if refusal is None:
            parts.raft.apply_conf_change(change)
            self.members_changed = True
            if change.type == ConfChangeType.REMOVE_NODE and change.node_id == parts.member_id:
                self.removed_ns = now_ns
                parts.logger.warning("this member has been removed from the cluster")
        else:
            parts.logger.warning(
                "refused a configuration change", node_id=f"{change.node_id:x}", error=refusal.text
            )
            parts.raft.apply_conf_change(change._replace(node_id=0))
        waiter = parts.replication.pending.changes.pop(change.id, None)
        if waiter is not None:
            waiter.callback(refusal, out)


def _conf_change(entry: Entry) -> ConfChange:
    if entry.type != EntryType.CONF_CHANGE:
        raise CorruptionError(
            f"log entry {entry.index} is of type {entry.type}; etcd's log has none such"
        )
    try:
        return raft_codec.decode_conf_change(entry.data)
    except WireError as error:
        raise CorruptionError(f"log entry {entry.index}: {error}") from error


def _hit_each(entries: Sequence[Entry]) -> None:
    """Hit the failpoint of each entry, before any of the batch is durable or answered."""
    for entry in entries:
        is_normal = entry.type == EntryType.NORMAL
        hit("beforeApplyOneEntryNormal" if is_normal else "beforeApplyOneConfChange")
