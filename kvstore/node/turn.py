"""One turn of the server: everything that has arrived goes in, everything to be sent comes out.

    answer:  tick → step peers → admit calls → propose
             → [ready: send early → save, one sync → send late → apply → advance]
             → answer reads → streams and watchers
    save:    if this member leads others, the save and its sync, which no answer depends on
    settle:  the server's own proposals, for the next turn; commit notifications; a slice of the
             long work; move what was written into the database; commit it, snapshot and trim the
             log, send snapshots, when due

The driver sends the output of answer before it saves and settles: a reply waits only for what it
depends on, and a stage of answer that has nothing to do is not entered. A turn runs to completion.
It waits only for the disk, and only once: while it syncs, the transport gathers the next inbox, so
load makes larger batches rather than longer queues.

If no message to another member waits for the save, the turn goes on while the disk works, and
waits for it at the end of answer:

    start_save ─► apply ─► advance ─► reads, streams, watchers ─► finish_save ─► replies leave

A turn is *quiet* if nothing happened in it but plain writes and reads (see `plain_calls`), no
upkeep was due, and no read goes on over several turns. Nothing that the stages for everything else
look at can have changed then, so they are not entered. A tick of raft's clock ends that: a turn
that has one is never quiet, so whatever they find is found within a tick.

Rule: the same inboxes give the same outboxes. Time enters as inbox.now_ns; randomness is in the
generators given to raft and the hub.
"""

from typing import TYPE_CHECKING, Final

from kvstack.component.units import SECOND_NS
from kvstore.batch import Inbox, Outbox
from kvstore.failpoints import armed, hit
from kvstore.node.auth.checker import AuthChecker
from kvstore.node.auth.logins import AuthLogins
from kvstore.node.cluster.cluster import Cluster
from kvstore.node.cluster.disk_watch import DiskWatch
from kvstore.node.cluster.exchange import Exchange
from kvstore.node.cluster.leadership import Leadership
from kvstore.node.committed import Committed
from kvstore.node.disk_budget import DiskBudget
from kvstore.node.installation import Installation
from kvstore.node.maintenance.checkpointer import Checkpointer
from kvstore.node.maintenance.long_jobs import LongJobs
from kvstore.node.parts import Parts
from kvstore.node.proposals import Proposals
from kvstore.node.reads.reads import Reads
from kvstore.node.router import Router
from kvstore.node.streams.streams import SERVED, Streams
from kvstore.node.submission import Submission
from kvstore.raft.ready import Ready

if TYPE_CHECKING:
    from kvstore.mvcc.event import Event

READY_ROUNDS_MAX: Final = 4
_REMOVED_GRACE_NS: Final = SECOND_NS  # in which a removed member still sends the others entries
_ADVANCE_WITHIN_NS: Final = 5 * SECOND_NS
NEVER_NS: Final = 1 << 62


class Node:
    """One member: from request bytes to reply bytes."""

    def __init__(self, parts: Parts) -> None:
        """Take the parts of a restored member."""
        self._parts = parts
        self._budget = DiskBudget(parts)
        self._reads = Reads(parts)
        self._leadership = Leadership(parts, self._reads)
        self._disk_watch = DiskWatch(parts, self._leadership)
        self._checkpointer = Checkpointer(parts)
        self._jobs = LongJobs(parts, self._checkpointer)
        self._committed = Committed(parts, self._jobs)
        self._cluster = Cluster(parts, self._reads, self._committed, self._jobs)
        self._checker = AuthChecker(parts, self._reads)
        self._logins = AuthLogins(parts, self._reads, self._checker)
        self._router = Router(
            parts,
            self._reads,
            self._jobs,
            self._cluster,
            self._checker,
            self._logins,
            self._leadership,
            self._budget,
        )
        self._streams = Streams(parts, self._leadership, self._checker)
        self._proposals = Proposals(parts, self._committed, self._budget)
        self._submission = Submission(parts, self._leadership)
        self._installation = Installation(parts, self._checkpointer, self._jobs)
        self._exchange = Exchange(parts, self._budget)
        self._tick_ns = 0  # when raft's clock moved last; 0: never
        self._tick_due_ns = 0
        self._began_ns = 0  # the first turn
        self._may_advance = parts.limits.initial_tick_advance
        self._saving_ns: int | None = None  # spent on the save that is to be finished
        self._published: list[list[Event]] = []  # of this turn, to be counted
        self._more_ready = False  # raft has more to do than one turn does
        self._is_quiet = False  # this turn, so far
        self._upkeep_ns = 0  # when the next turn that is not quiet is due
        self._commit_due_ns = 0  # when the database is to be looked at, if nothing is written
        self._settled_index = -1  # applied when that was last looked at
        self.wake_ns = 0  # when the next turn is due if nothing arrives before

    @property
    def methods(self) -> frozenset[int]:
        """The ids of the methods this node serves."""
        return self._router.methods() | SERVED

    @property
    def is_ready(self) -> bool:
        """Whether the member has joined: there is a leader and its own name is published."""
        has_joined = self._committed.is_published and self._parts.raft.lead != 0
        return has_joined and not self._cluster.delays_serving

    def turn(self, inbox: Inbox) -> Outbox:
        """Handle everything that arrived and return everything to be sent."""
        out = self.answer(inbox)
        self.save(inbox, out)
        self.settle(inbox, out)
        return out

    def answer(self, inbox: Inbox) -> Outbox:
        """Do the part of a turn that clients wait for; save() and settle() are the rest of it."""
        out, parts, now_ns = Outbox(), self._parts, inbox.now_ns
        time, pending = parts.time, parts.replication.pending
        time.now_ns, time.wall_ms = now_ns, inbox.wall_ms
        self._budget.begin_turn()
        has_ticked = (now_ns >= self._tick_due_ns or parts.raft.lead == 0) and self._tick(now_ns)
        self._is_quiet = (
            not has_ticked
            and now_ns < self._upkeep_ns
            and inbox.has_only_calls
            and not self._checker.is_enabled
            and not self._reads.has_long
        )
        if not self._is_quiet:
            self._receive(inbox, out)
        if inbox.calls:
            self._is_quiet &= self._router.admit(inbox, out)
        if pending.is_waiting:
            self._submission.submit(now_ns, out)
        self._reads.ask()
        self._more_ready = self._advance(now_ns, out, may_save=False)
        if has_ticked:
            self._submission.expire(now_ns, out)
        if not self._is_quiet:
            self._leadership.step_transfers(now_ns, out)
        self._reads.answer(out)
        if not self._is_quiet or self._reads.has_long:
            self._is_quiet = False
            if inbox.opened:
                self._streams.open(inbox, out)
            self._streams.receive(inbox, out)
        self._finish_save()
        return out

    def _receive(self, inbox: Inbox, out: Outbox) -> None:
        """Handle what arrived beside calls."""
        parts = self._parts
        if inbox.has_peer_news or self._exchange.has_failed:
            self._exchange.receive(inbox)
        if inbox.metadata or self._checker.is_deferring:
            self._checker.begin_turn(inbox)
        for gone in inbox.gone:
            self._forget(gone)
        if inbox.task_results or parts.host.tasks.has_refused:
            parts.host.tasks.deliver(inbox.task_results, out)
        if self._committed.has_over_quota:
            for call_id in self._committed.take_over_quota():
                refusal = self._router.raise_no_space(call_id)
                if refusal is not None:
                    out.refuse(call_id, refusal)

    def save(self, inbox: Inbox, out: Outbox) -> bool:
        """Save what answer() deferred: the others have it by now, and it must be on disk here too.

        The driver sends the replies before, and the output of this after it. False: nothing was.
        """
        raft = self._parts.raft
        if not raft.can_defer_save:
            return False
        applied = raft.applied
        self._more_ready = self._advance(inbox.now_ns, out, may_save=True)
        self._finish_save()
        self._more_ready |= raft.applied > applied  # something may have waited for that
        return True

    def settle(self, inbox: Inbox, out: Outbox) -> None:
        """Do what no reply of this turn waits for: slices of long work, and the database's commits.

        The driver sends the replies first. The output of this is sent with out, after them.
        """
        now_ns = inbox.now_ns
        if self._is_quiet:
            return self._settle_quietly(inbox, out)
        self._cluster.step(now_ns, out)
        self._proposals.make(now_ns)
        self._step_long_work(inbox, out, self._exchange.notify_commits(now_ns))
        self._parts.host.tasks.take(out)
        must_commit = self._jobs.wants_commit or self._exchange.wants_commit
        self._step_database(now_ns, must_commit=must_commit)
        if must_commit:
            self._jobs.take_snapshots(out)
            self._exchange.send_snapshots()
        self._exchange.defer_wakeups(now_ns, is_waiting=self._reads.is_waiting)
        return None

    def _settle_quietly(self, inbox: Inbox, out: Outbox) -> None:
        """Do the rest of a quiet turn."""
        parts, now_ns = self._parts, inbox.now_ns
        hub, is_alone = parts.state.hub, parts.raft.is_only_voter
        self.wake_ns = self._upkeep_ns
        parts.host.tasks.take(out)
        due_ns = None if is_alone else self._exchange.notify_commits(now_ns)
        if due_ns is not None:
            self.wake_ns = min(self.wake_ns, due_ns)
        is_behind = hub.has_streams and self._step_hub(inbox, out)
        if is_behind or self._has_more:
            self.wake_ns = now_ns
        if parts.raft.applied != self._settled_index or now_ns >= self._commit_due_ns:
            self._step_database(now_ns, must_commit=False)
        else:
            self.wake_ns = min(self.wake_ns, self._commit_due_ns)
        if not is_alone:
            self._exchange.defer_wakeups(now_ns, is_waiting=self._reads.is_waiting)

    def _step_database(self, now_ns: int, *, must_commit: bool) -> None:
        """Move what was written into the database; commit it, if that is due."""
        parts = self._parts
        parts.state.store.flush()
        for events in self._published:
            parts.counters.note_events(events)
        self._published.clear()
        self._checkpointer.retain_log_after(self._exchange.retained_index(now_ns))
        due_ns = self._checkpointer.step(now_ns, must_commit=must_commit)
        self._settled_index = parts.raft.applied
        self._commit_due_ns = NEVER_NS if due_ns is None else due_ns
        self.wake_ns = min(self.wake_ns, self._commit_due_ns)

    @property
    def is_removed(self) -> bool:
        """Whether the member was removed from its cluster, so long ago that the process may end."""
        removed_ns = self._committed.removed_ns
        return removed_ns is not None and self._parts.time.now_ns - removed_ns >= _REMOVED_GRACE_NS

    def transfer_leadership(self, now_ns: int) -> None:
        """Begin a leader transfer, as before the end of the process; turns must go on."""
        self._leadership.transfer_leadership(now_ns)

    @property
    def is_transferring_leadership(self) -> bool:
        """Whether that transfer is still under way; it ends in bounded time."""
        return self._leadership.is_transferring_leadership

    def close(self, now_ns: int) -> None:
        """Commit what is applied; the node is not used again."""
        self._checkpointer.commit(now_ns)

    # Stages.

    def _tick(self, now_ns: int) -> bool:
        """Move raft's clock, if it is time; return whether it moved."""
        raft, heartbeat_ns = self._parts.raft, self._parts.limits.heartbeat_ns
        if self._tick_ns == 0:
            self._tick_ns = now_ns
        if raft.is_only_voter and raft.lead == 0:
            raft.campaign()  # no other member can win: no need to wait for the election timeout
        ticks = (now_ns - self._tick_ns) // heartbeat_ns
        self._tick_due_ns = self._tick_ns + (ticks + 1) * heartbeat_ns
        if ticks > 0:
            self._tick_ns += ticks * heartbeat_ns
            self._leadership.ticked(ticks)
            raft.tick_many(min(ticks, 2 * self._parts.limits.election_ticks))
            if self._may_advance:
                self._advance_ticks(now_ns)
        return ticks > 0

    def _advance_ticks(self, now_ns: int) -> None:
        """Campaign early at a start: a leader would have sent a heartbeat once others connected."""
        limits = self._parts.limits
        self._began_ns = self._began_ns or now_ns
        if self._exchange.active_count() > 1:
            self._parts.raft.tick_many(limits.election_ticks - 2)
            self._may_advance = False
        elif now_ns - self._began_ns >= _ADVANCE_WITHIN_NS:
            self._may_advance = False

    def _forget(self, call_id: int) -> None:
        self._reads.cancel(call_id)
        self._jobs.cancel(call_id)
        self._logins.cancel(call_id)
        self._streams.close(call_id)
        self._leadership.cancel(call_id)
        self._cluster.cancel(call_id)
        self._parts.replication.pending.cancel(call_id)

    def _advance(self, now_ns: int, out: Outbox, *, may_save: bool) -> bool:
        """Save what is new, apply what is committed; return whether raft has more to do.

        may_save=False: entries that can be saved later are.
        """
        parts, exchange = self._parts, self._exchange
        raft = parts.raft
        more_ready = True
        for round_ in range(READY_ROUNDS_MAX):
            ready = raft.ready(may_save=may_save)
            if ready is None:
                if self._is_quiet and not round_:
                    return False
                more_ready = False
                break
            self._finish_save()  # of the round before
            leads = raft.is_leader
            if armed and leads:
                hit("raftBeforeLeaderSend")
            if ready.messages_early:
                exchange.send_early(ready.messages_early, now_ns)
            if ready.snapshot is not None:
                self._publish(out)
                self._installation.install(ready.snapshot, ready, out)
                self._leadership.snapshot_installed()
                self._proposals.retry_now()
                exchange.update_links()
            elif ready.committed and ready.must_sync and not ready.messages_late:
                self._start_save(ready)
            elif ready.entries or ready.hard_state is not None:
                self._save(ready, now_ns)
            if armed and not leads:
                hit("raftBeforeFollowerSend")
            if ready.messages_late:
                exchange.send(ready.messages_late)
            if ready.committed:
                self._is_quiet &= self._committed.apply(ready.committed, now_ns, out)
            self._is_quiet &= ready.soft_state is None and ready.snapshot is None
            hit("raftBeforeAdvance")
            raft.advance(ready)
            self._handle_state_changes(ready, now_ns, out)
        exchange.drop_received()
        if self._committed.members_changed:
            self._finish_save()
            self._committed.members_changed = False
            exchange.update_links()
        self._leadership.follow(self._committed.confirmed_term, now_ns)
        self._publish(out)
        return more_ready and raft.has_ready()

    def _save(self, ready: Ready, now_ns: int) -> None:
        parts = self._parts
        clock = parts.counters.clock
        began_ns = clock()
        hit("raftBeforeSave")
        parts.replication.log.save(ready.hard_state, ready.entries, sync=ready.must_sync)
        hit("raftAfterSave")
        self._disk_watch.saved(clock() - began_ns, now_ns)

    def _start_save(self, ready: Ready) -> None:
        """Begin a save that nothing but the output of this turn depends on."""
        parts = self._parts
        clock = parts.counters.clock
        began_ns = clock()
        hit("raftBeforeSave")
        parts.replication.log.start_save(ready.hard_state, ready.entries)
        self._saving_ns = clock() - began_ns

    def _finish_save(self) -> None:
        """Wait until what this turn saved is durable; before anything of it leaves the process."""
        saving_ns = self._saving_ns
        if saving_ns is None:
            return
        parts = self._parts
        clock = parts.counters.clock
        began_ns = clock()
        self._saving_ns = None
        parts.replication.log.finish_save()
        hit("raftAfterSave")
        self._disk_watch.saved(saving_ns + clock() - began_ns, parts.time.now_ns)

    def _handle_state_changes(self, ready: Ready, now_ns: int, out: Outbox) -> None:
        """Handle what a Ready contains that is neither saved nor applied."""
        for index, context in ready.read_states:
            self._reads.confirmed(index, context)
        if ready.soft_state is not None and self._leadership.update(ready.soft_state, now_ns, out):
            self._proposals.retry_now()
        for text in ready.warnings:
            self._parts.logger.warning("ignored a message from a member", reason=text)

    def _publish(self, out: Outbox) -> None:
        parts = self._parts
        self._checker.follow(out)
        events = parts.state.applier.take_events()
        if events:
            self._published.append(events)
            if armed and parts.state.hub.stats().watchers:
                hit("beforeSendWatchResponse")
            parts.state.hub.publish(events, out.deliveries)

    def _step_long_work(self, inbox: Inbox, out: Outbox, due_ns: int | None) -> None:
        """Do a slice of everything that takes longer than a turn, and set when the next is due.

        due_ns: when the rest of this turn needs another one, if it does.
        """
        parts, now_ns = self._parts, inbox.now_ns
        is_behind = self._step_hub(inbox, out)
        is_idle = not inbox.calls and not inbox.frames
        due = [
            due_ns,
            None if self._rests else self._tick_due_ns,
            self._proposals.next_ns(),
            self._cluster.due_ns,
            parts.state.hub.next_due_ns(),
            self._jobs.step(now_ns, out, is_idle=is_idle),
        ]
        reads_left = self._reads.step(inbox.backlog, out)
        if (
            is_behind
            or reads_left
            or self._has_more
            or (parts.raft.lead == 0 and parts.raft.is_only_voter)  # it campaigns in the next turn
            or self._committed.has_over_quota
        ):
            due.append(now_ns)
        if self._checker.has_ready:
            due.append(now_ns)
        self.wake_ns = min((each for each in due if each is not None), default=NEVER_NS)
        is_waiting = (
            self._streams.is_waiting
            or self._checker.is_deferring
            or self._exchange.has_failed
            or parts.host.tasks.has_refused
        )
        self._upkeep_ns = 0 if is_waiting else self.wake_ns

    @property
    def _rests(self) -> bool:
        """Whether raft's clock need not move: nothing waits, and there are no other members."""
        parts = self._parts
        return (
            parts.limits.is_solitary
            and parts.raft.lead != 0
            and not parts.replication.pending.is_waiting
            and not parts.state.hub.has_paused
        )

    @property
    def _has_more(self) -> bool:
        """Whether the next turn has something to do that this one left."""
        has_new = self._parts.replication.pending.has_new or self._reads.has_new
        return self._more_ready or has_new

    def _step_hub(self, inbox: Inbox, out: Outbox) -> bool:
        """Catch watchers up, and send them progress; return whether more can be done at once."""
        parts, limits = self._parts, self._parts.limits
        return parts.state.hub.step(
            inbox.now_ns, inbox.backlog, limits.catch_up_rows, limits.catch_up_bytes, out.deliveries
        )
