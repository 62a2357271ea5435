"""One turn of the server: all that has arrived goes in, all that must leave comes out.

    answer:  tick → step peers → admit calls → propose
             → [ready: send early → save, one sync → send late → apply → advance]
             → answer reads → streams and watchers
    save:    where this member leads others, the save and its sync, which no answer rests on
    settle:  tell followers of commits; a slice of the long work; move what was written into the
             database; commit it, snapshot and trim the log, send snapshots, when due

The driver lets leave what answer leaves before it saves and settles: a reply waits for nothing but
what it rests on. A turn runs to completion. It waits for nothing but the disk, and for that once:
while it syncs, the transport gathers the next inbox, so load makes larger batches rather than
longer queues.
Time enters as inbox.now_ns; chance is in the generators given to raft and the hub. The same
inboxes therefore give the same outboxes.
"""

from typing import TYPE_CHECKING, Final

from kvstore.batch import Inbox, Outbox
from kvstore.failpoints import armed, hit
from kvstore.node.auth.checker import AuthChecker
from kvstore.node.auth.logins import AuthLogins
from kvstore.node.cluster.cluster import Cluster
from kvstore.node.cluster.disk_watch import DiskWatch
from kvstore.node.cluster.exchange import Exchange
from kvstore.node.cluster.leadership import Leadership
from kvstore.node.committed import Committed
from kvstore.node.installation import Installation
from kvstore.node.limits import SECOND_NS
from kvstore.node.parts import Parts
from kvstore.node.proposals import Proposals
from kvstore.node.reads.reads import Reads
from kvstore.node.router import Router
from kvstore.node.streams.streams import SERVED, Streams
from kvstore.node.submission import Submission
from kvstore.node.upkeep.maintenance import Maintenance
from kvstore.node.upkeep.upkeep import Upkeep
from kvstore.raft.ready import Ready

if TYPE_CHECKING:
    from kvstore.mvcc.event import Event

READY_ROUNDS_MAX: Final = 4
_REMOVED_GRACE_NS: Final = SECOND_NS  # a removed member tells the others of its last entries
_ADVANCE_WITHIN_NS: Final = 5 * SECOND_NS


class Node:
    """One member: from request bytes to reply bytes."""

    def __init__(self, parts: Parts) -> None:
        """Take the rooms of a restored member."""
        self._parts = parts
        self._reads = Reads(parts)
        self._leadership = Leadership(parts, self._reads)
        self._disk_watch = DiskWatch(parts, self._leadership)
        self._upkeep = Upkeep(parts)
        self._maintenance = Maintenance(parts, self._upkeep)
        self._committed = Committed(parts, self._maintenance)
        self._cluster = Cluster(parts, self._reads, self._committed, self._maintenance)
        self._checker = AuthChecker(parts, self._reads)
        self._logins = AuthLogins(parts, self._reads, self._checker)
        self._router = Router(
            parts,
            self._reads,
            self._maintenance,
            self._cluster,
            self._checker,
            self._logins,
            self._leadership,
        )
        self._streams = Streams(parts, self._leadership, self._checker)
        self._proposals = Proposals(parts, self._committed)
        self._submission = Submission(parts, self._leadership)
        self._installation = Installation(parts, self._upkeep, self._maintenance)
        self._exchange = Exchange(parts)
        self._tick_ns = 0  # when raft's clock moved last; 0: never
        self._began_ns = 0  # the first turn
        self._may_advance = parts.limits.initial_tick_advance
        self._now_ns = 0
        self._published: list[list[Event]] = []  # of this turn, to be counted
        self._more_ready = False  # raft has more to do than a turn does at once
        self.wake_ns = 0  # when the next turn is due if nothing arrives before

    @property
    def methods(self) -> frozenset[int]:
        """The ids of the methods this node serves."""
        return self._router.methods() | SERVED

    @property
    def is_ready(self) -> bool:
        """Whether the member has joined: there is a leader and its own name is published."""
        has_joined = self._committed.is_published and self._parts.raft.lead != 0
        return has_joined and not self._cluster.holds_up

    def turn(self, inbox: Inbox) -> Outbox:
        """Take in everything that arrived and return everything that must leave."""
        out = self.answer(inbox)
        self.save(inbox, out)
        self.settle(inbox, out)
        return out

    def answer(self, inbox: Inbox) -> Outbox:
        """Do the part of a turn that clients wait for; save() and settle() are the rest of it."""
        out = Outbox()
        now_ns = inbox.now_ns
        self._now_ns = now_ns
        has_ticked = self._tick(now_ns)
        self._exchange.take_in(inbox)
        self._checker.take_in(inbox)
        for gone in inbox.gone:
            self._forget(gone)
        self._parts.tasks.deliver(inbox.task_results, out)
        self._cluster.begin(inbox)
        self._router.admit(inbox, out)
        for call_id in self._committed.take_over_quota():
            self._router.raise_no_space(call_id)
        self._proposals.make(now_ns)
        self._cluster.step(now_ns, out)
        self._submission.submit(now_ns, out)
        self._reads.ask(now_ns)
        self._more_ready = self._advance(now_ns, out, may_save=False)
        if has_ticked:
            self._submission.expire(now_ns, out)
        self._leadership.answer_moves(now_ns, out)
        self._reads.answer(out)
        self._streams.open(inbox, out)
        self._streams.receive(inbox, out)
        return out

    def save(self, inbox: Inbox, out: Outbox) -> None:
        """Save what answer() put off: the others have it by now, and it is to be on disk here too.

        The driver lets the replies leave before, and what comes of it here after it.
        """
        raft = self._parts.raft
        if raft.can_put_off:
            applied = raft.applied
            self._more_ready = self._advance(inbox.now_ns, out, may_save=True)
            self._more_ready |= raft.applied > applied  # for whoever waited for that

    def settle(self, inbox: Inbox, out: Outbox) -> None:
        """Do what no reply of this turn waits for: slices of long work, and the database's upkeep.

        The driver sends the replies first. What comes of it here leaves with out, after them.
        """
        now_ns = inbox.now_ns
        self._go_on(inbox, out, self._exchange.tell_commits(now_ns))
        self._parts.tasks.take(out)
        self._parts.store.flush()
        for events in self._published:
            self._parts.counters.note_events(events)
        self._published.clear()
        must_commit = self._maintenance.wants_commit or self._exchange.wants_commit
        self._upkeep.keep_log_after(self._exchange.kept_index(now_ns))
        due_ns = self._upkeep.step(now_ns, must_commit=must_commit)
        if must_commit:
            self._maintenance.take_snapshots(out)
            self._exchange.send_snapshots()
        if due_ns is not None:
            self.wake_ns = min(self.wake_ns, due_ns)
        self._exchange.rest(now_ns, is_waiting=self._reads.is_waiting)

    @property
    def is_removed(self) -> bool:
        """Whether the member was removed from its cluster, so long ago that it is to end."""
        removed_ns = self._committed.removed_ns
        return removed_ns is not None and self._now_ns - removed_ns >= _REMOVED_GRACE_NS

    def hand_over(self, now_ns: int) -> None:
        """Begin to hand leadership over, as before the end of the process; turns must go on."""
        self._leadership.hand_over(now_ns)

    @property
    def is_handing_over(self) -> bool:
        """Whether a hand-over is still under way: it is done, or given up, in bounded time."""
        return self._leadership.is_handing_over

    def close(self, now_ns: int) -> None:
        """Commit what is applied; the node is not used again."""
        self._upkeep.commit(now_ns)

    # Stages.

    def _tick(self, now_ns: int) -> bool:
        """Move raft's clock; tell whether it moved."""
        raft, heartbeat_ns = self._parts.raft, self._parts.limits.heartbeat_ns
        if self._tick_ns == 0:
            self._tick_ns = now_ns
        if raft.is_only_voter and raft.lead == 0:
            raft.campaign()  # nobody else could win, so nobody need be waited for
        ticks = (now_ns - self._tick_ns) // heartbeat_ns
        if ticks > 0:
            self._tick_ns += ticks * heartbeat_ns
            self._leadership.ticked(ticks)
            raft.tick_many(min(ticks, 2 * self._parts.limits.election_ticks))
            if self._may_advance:
                self._advance_ticks(now_ns)
        return ticks > 0

    def _advance_ticks(self, now_ns: int) -> None:
        """Wait less for the first leader: once others are connected, one would be heard by now."""
        limits = self._parts.limits
        self._began_ns = self._began_ns or now_ns
        if self._exchange.active_count() > 1:
            self._parts.raft.tick_many(limits.election_ticks - 2)
            self._may_advance = False
        elif now_ns - self._began_ns >= _ADVANCE_WITHIN_NS:
            self._may_advance = False

    def _forget(self, call_id: int) -> None:
        self._reads.cancel(call_id)
        self._maintenance.cancel(call_id)
        self._logins.cancel(call_id)
        self._streams.close(call_id)
        self._leadership.cancel(call_id)
        self._cluster.cancel(call_id)
        self._parts.pending.cancel(call_id)

    def _advance(self, now_ns: int, out: Outbox, *, may_save: bool) -> bool:
        """Save what is new, apply what is committed; tell whether raft has more to do.

        may_save=False: what can be saved later is left.
        """
        parts, exchange = self._parts, self._exchange
        raft, log, clock = parts.raft, parts.log, parts.counters.clock
        more_ready = True
        for _ in range(READY_ROUNDS_MAX):
            ready = raft.ready(may_save=may_save)
            if ready is None:
                more_ready = False
                break
            leads = raft.is_leader
            if armed and leads:
                hit("raftBeforeLeaderSend")
            if ready.messages_early:
                exchange.send_early(ready.messages_early, now_ns)
            if ready.snapshot is not None:
                self._publish(out)
                self._installation.install(ready.snapshot, ready, out)
                self._leadership.snapshot_installed()
                self._proposals.may_be_lost()
                exchange.name_members()
            elif ready.entries or ready.hard_state is not None:
                began_ns = clock()
                hit("raftBeforeSave")
                log.save(ready.hard_state, ready.entries, sync=ready.must_sync)
                hit("raftAfterSave")
                self._disk_watch.saved(clock() - began_ns, now_ns)
            if armed and not leads:
                hit("raftBeforeFollowerSend")
            if ready.messages_late:
                exchange.send(ready.messages_late)
            if ready.committed:
                self._committed.apply(ready.committed, now_ns, out)
            hit("raftBeforeAdvance")
            raft.advance(ready)
            self._take_news(ready, now_ns, out)
        exchange.drop_received()
        if self._committed.members_changed:
            self._committed.members_changed = False
            exchange.name_members()
        self._leadership.follow(self._committed.confirmed_term, now_ns)
        self._publish(out)
        return more_ready and raft.has_ready()

    def _take_news(self, ready: Ready, now_ns: int, out: Outbox) -> None:
        """Take what a round says that is neither saved nor applied."""
        for index, context in ready.read_states:
            self._reads.confirmed(index, context)
        if ready.soft_state is not None and self._leadership.take(ready.soft_state, now_ns, out):
            self._proposals.may_be_lost()
        for text in ready.warnings:
            self._parts.logger.warning("passed over what a member sent", reason=text)

    def _publish(self, out: Outbox) -> None:
        parts = self._parts
        self._checker.follow(out)
        events = parts.applier.take_events()
        if events:
            self._published.append(events)
            if armed and parts.hub.stats().watchers:
                hit("beforeSendWatchResponse")
            parts.hub.publish(events, out.deliveries)

    def _go_on(self, inbox: Inbox, out: Outbox, due_ns: int | None) -> None:
        """Do a slice of everything that takes longer than a turn, and set the next one's time.

        due_ns: when something else of this turn's is due, if anything is.
        """
        parts, now_ns = self._parts, inbox.now_ns
        limits = parts.limits
        lags = parts.hub.step(
            now_ns, inbox.backlog, limits.catch_up_rows, limits.catch_up_bytes, out.deliveries
        )
        is_idle = not inbox.calls and not inbox.frames
        due = [
            due_ns,
            self._tick_ns + limits.heartbeat_ns,
            self._proposals.next_ns(),
            self._cluster.due_ns,
            parts.hub.next_due_ns(),
            self._maintenance.step(now_ns, out, is_idle=is_idle),
        ]
        reads_left = self._reads.step(inbox.backlog, out)
        if (
            lags
            or reads_left
            or self._more_ready
            or (parts.raft.lead == 0 and parts.raft.is_only_voter)  # it has just learned that
            or parts.pending.datas
            or self._committed.is_owing
        ):
            due.append(now_ns)
        if self._checker.has_ready:
            due.append(now_ns)
        self.wake_ns = min(each for each in due if each is not None)
