"""Applies committed entries in order, and answers their waiters.

    entry ─► its waiter: by index and term, or by request id ─► Applier ─► reply or callback
             no waiter: replayed, or proposed by another member ─► Applier

The applied index moves with the data: both are in the backend's one open transaction, and the
index is written there just before each commit (see maintenance).
"""

from collections.abc import Sequence

from kvstore.apply.entry_context import EntryContext
from kvstore.apply.txn import Result
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.batch import Outbox
from kvstore.errors import LEADER_CHANGED, NO_SPACE, Code, CorruptionError, Refusal
from kvstore.failpoints import armed, hit
from kvstore.node import slow_apply
from kvstore.node.maintenance.long_jobs import LongJobs
from kvstore.node.parts import Parts
from kvstore.node.pending import INTERNAL
from kvstore.node.plain_calls import PLAIN_CALLS
from kvstore.node.waiters import PlainRun, Waiter
from kvstore.raft.model import ConfChange, ConfChangeType, Entry, EntryType
from kvstore.wire import raft_codec
from kvstore.wire.columns import put_replies, swap_replies
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, credentials, decode_v2_request, unwrap, unwrap_request
from kvstore.wire.varint import WireError


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

    def apply(self, entries: list[Entry], now_ns: int, out: Outbox) -> bool:
        """Apply entries in order and answer their waiters; return whether all were in whole runs.

        Plain writes that follow one another are applied as one run.
        """
        parts = self._parts
        applier, pending = parts.state.applier, parts.replication.pending
        applier.begin_batch(parts.raft.term)
        clock = parts.counters.clock
        began_ns = clock()
        if armed:
            _hit_each(entries)
        puts = 0  # that succeeded and are not counted yet
        are_runs = True
        at, end = 0, len(entries)
        while at < end:
            run = pending.take_run(entries, at)
            if run is not None:
                done = self._apply_run(run, out)
                if done is None:
                    are_runs = False
                    done = self._apply_each(run, now_ns, out)
                puts += done
                at += len(run)
                continue
            count = 0 if pending.by_index or pending.runs else self._apply_unawaited(entries, at)
            if count:
                puts += count
                at += count
            else:
                are_runs = False
                puts += self._apply_one(entries[at], now_ns, out)
                at += 1
        took_ns = clock() - began_ns
        if parts.counters.note_batch(took_ns, puts, Field.PUT):
            slow_apply.warn_batch(parts, entries, took_ns)
        return are_runs

    def _apply_run(self, run: PlainRun, out: Outbox) -> int | None:
        """Apply a run and answer it; return how many puts succeeded, not counted yet.

        None, with nothing done: each must be applied on its own.
        """
        applier = self._parts.state.applier
        if run.field == Field.PUT:
            first_revision = applier.put_run(run.keys, run.values)  # type: ignore[arg-type]
            if first_revision is not None:
                out.replies += put_replies(run.call_ids, applier.header_parts(), first_revision)
                return len(run)
        elif self._apply_swaps(run, out):
            return 0
        return None

    def _apply_each(self, run: PlainRun, now_ns: int, out: Outbox) -> int:
        """Apply the writes of a run one by one; return as _apply_run."""
        puts = 0
        for index, waiter in enumerate(run.waiters(), run.first_index):
            puts += self._apply_awaited(waiter, index, now_ns, out)
        return puts

    def _apply_swaps(self, run: PlainRun, out: Outbox) -> bool:
        """Apply a run of compare-and-puts and answer it; False, with nothing done: one by one."""
        applier, counters = self._parts.state.applier, self._parts.counters
        found = applier.swap_run(run.keys, run.values)  # type: ignore[arg-type]
        if found is None:
            return False
        refused, outcomes, revisions, kvs, _ = found
        call_ids = run.call_ids
        for at, refusal in refused:
            out.refuse(call_ids[at], refusal)
        counters.note_in_batch(Field.TXN, False, len(refused))
        if refused:
            positions = {at for at, _ in refused}
            call_ids = [each for at, each in enumerate(call_ids) if at not in positions]
        counters.note_in_batch(Field.TXN, True, len(call_ids))
        header = applier.header_parts()
        out.replies += swap_replies(call_ids, bytes(outcomes), revisions, kvs, header)
        return True

    def _apply_unawaited(self, entries: list[Entry], at: int) -> int:
        """Apply plain puts without waiters from entries[at] on; return how many."""
        parts = self._parts
        if parts.replication.pending.by_request or parts.state.auth.enabled:
            return 0
        keys, values = PLAIN_CALLS.puts_of_entries(entries, at)
        if not keys or parts.state.applier.put_run(keys, values) is None:
            return 0
        return len(keys)

    def _apply_one(self, entry: Entry, now_ns: int, out: Outbox) -> bool:
        """Apply an entry; return True for a successful put, not counted yet."""
        placed = self._parts.replication.pending.by_index.pop(entry.index, None)
        waiter = None if placed is None else self._waiter_of(placed, entry, out)
        if entry.type != EntryType.NORMAL:
            self._change(entry, now_ns, out)
        elif waiter is not None:
            return self._apply_awaited(waiter, entry.index, now_ns, out)
        elif entry.data:
            return self._apply_unplaced(entry, now_ns, out)
        else:
            self.confirmed_term = entry.term
        return False

    def _apply_awaited(self, waiter: Waiter, index: int, now_ns: int, out: Outbox) -> bool:
        """Apply an entry that has a waiter; return True for a successful put, not counted yet."""
        applier, request, credential = self._parts.state.applier, waiter.request, waiter.credential
        clock = self._parts.counters.clock
        at_ns = clock()
        if isinstance(request, pb.PutRequest):
            result = applier.put(request, credential)
            if isinstance(result, bytes):
                self._answer(waiter, result, out)
                return True
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
        """Return the waiter if it waits for this entry; else answer that the leader changed."""
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
            raise CorruptionError(
                f"log entry {entry.index} contains no request: {error}"
            ) from error

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
            f"log entry {entry.index} has type {entry.type}, which is unknown in etcd's log"
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
