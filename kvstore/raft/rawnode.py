"""One member of a raft group: the interface of the algorithm.

    tick, step, propose, read_index, … ──► RawNode ──► ready() ──► save, send, apply ──► advance()

A round: take ready(); send messages_early; save snapshot, entries and hard_state (synced if
must_sync); send messages_late; apply snapshot and committed, calling apply_conf_change for every
configuration change among them; advance(ready). What this member has saved counts only then, so
with one voter an entry is committed by the advance of the round that saved it, and returned by the
next. While a round is open there is no other Ready, and no message may be stepped: it might change
what is just being applied.

    Ready(entries 5-9) ─ save ─ advance ──► Ready(commit 9, committed 5-9) ─ apply ─ advance

Snapshots: a leader whose log no longer has what a follower needs sends a SNAP message that only
names a position it has applied. The caller adds the data, and, if its state has moved on meanwhile,
create_snapshot_metadata(index) of its position; then it calls report_snapshot with the result.

RawNode reads no clock, uses the random number generator it was given, and writes no files. Calls
that are inconsistent with its state raise RaftError; messages of peers never do.
"""

from collections.abc import Sequence

from kvstore.raft import (
    confchange,
    confchange_codec,
    election,
    follower,
    leader,
    reads,
    reconfiguration,
    start,
    timers,
)
from kvstore.raft import step as stepping
from kvstore.raft.confchange import Change
from kvstore.raft.config import Config, Rng
from kvstore.raft.model import (
    NO_NODE,
    ConfChange,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    MessageType,
    RaftError,
    Role,
    SnapshotMetadata,
)
from kvstore.raft.read_index import ReadRequest
from kvstore.raft.ready import InitialState, ProposeOutcome, ProposeResult, Ready, SoftState
from kvstore.raft.replication import (
    awaits_acknowledgements,
    owes_commit_notification,
    schedule_commit_notifications,
    send_due,
)
from kvstore.raft.state import send
from kvstore.raft.status import Status, status_of


class RawNode:
    """One member."""

    def __init__(self, config: Config, initial: InitialState, rng: Rng) -> None:
        """Continue from initial; RaftError if it is inconsistent."""
        state = start.restore(config, initial, rng)
        self._state = state
        self._soft_state = SoftState(state.lead, state.role)
        self._hard_state = initial.hard_state  # as last saved
        self._open: Ready | None = None
        self._conf_changed = False

    def bootstrap(self, changes: Sequence[ConfChange]) -> None:
        """Begin a new cluster: the log's first entries, in term 1 and committed from the start.

        Every first member must be given the same changes, or they form different clusters.
        """
        start.bootstrap(self._state, changes)

    # Input: time, messages, requests.

    def tick(self) -> None:
        """Advance the time by one tick."""
        timers.tick(self._state, 1)

    def tick_many(self, count: int) -> None:
        """Advance the time by count ticks at once; see timers for what that means."""
        if count < 0:
            raise RaftError(f"{count} ticks cannot pass")
        if count:
            timers.tick(self._state, count)

    def campaign(self) -> None:
        """Campaign now, if this member is allowed to."""
        election.start_campaign(self._state)

    def step(self, message: Message) -> None:
        """Handle a message of another member, which must not be used by the caller afterwards."""
        if self._open is not None:
            raise RaftError("a message cannot be stepped in while a Ready is open")
        stepping.step(self._state, message)

    def propose(self, datas: Sequence[bytes]) -> ProposeResult:
        """Propose datas as consecutive entries: a leader appends them, others forward them."""
        if not datas:
            return ProposeResult(ProposeOutcome.EMPTY)
        state = self._state
        if state.role is Role.LEADER:
            return leader.propose(state, datas)
        return follower.propose(state, [Entry(0, 0, 0, data) for data in datas])

    def propose_conf_change(self, change: Change) -> ProposeResult:
        """Propose a change of members; only one may be under way at a time."""
        state = self._state
        if state.role is Role.LEADER:
            return leader.propose_change(state, change)
        data = confchange_codec.encode(change)
        return follower.propose(state, [Entry(confchange_codec.entry_type(change), 0, 0, data)])

    def apply_conf_change(self, change: Change) -> ConfState:
        """Apply a committed change, when its entry is applied; node_id 0 changes nothing.

        Returns the new configuration.
        """
        state = self._state
        reconfiguration.apply_change(state, change)
        self._conf_changed = True
        return confchange.to_conf_state(state.configuration)

    def read_index(self, context: bytes) -> bool:
        """Request the index from which on a read is linearizable; False: there is no leader.

        The answer comes as a read state with this context, or never (then request it again).
        """
        state = self._state
        if state.role is Role.LEADER:
            reads.add(state, ReadRequest(NO_NODE, context))
            return True
        if state.role is not Role.FOLLOWER or state.lead == NO_NODE:
            return False
        entry = Entry(EntryType.NORMAL, 0, 0, context)
        send(state, Message(MessageType.READ_INDEX, state.lead, entries=[entry]))
        return True

    def read_index_if_alone(self) -> int | None:
        """Return the read index of a leader that is the only voter; None: use read_index()."""
        return reads.index_if_alone(self._state)

    def transfer_leader(self, to: int) -> None:
        """Transfer leadership to a voter, or ask the leader to."""
        state = self._state
        if state.role is Role.LEADER:
            leader.transfer(state, to)
        elif state.lead != NO_NODE:
            send(state, Message(MessageType.TRANSFER_LEADER, state.lead, from_=to))

    def forget_leader(self) -> None:
        """Forget the leader: this member then grants votes at once, and campaigns in time."""
        if self._state.role is Role.FOLLOWER:
            self._state.lead = NO_NODE

    def report_unreachable(self, member: int) -> None:
        """Report that a message to member was probably lost."""
        if self._state.role is Role.LEADER:
            leader.unreachable(self._state, member)

    def report_reached(self) -> None:
        """Report that a member can be sent to again: a leader sends a heartbeat at once."""
        if self._state.role is Role.LEADER:
            self._state.heartbeat_due = True

    def report_snapshot(self, member: int, *, ok: bool) -> None:
        """Report how sending a snapshot to member ended; every SNAP message needs this."""
        if self._state.role is Role.LEADER:
            leader.snapshot_sent(self._state, member, ok=ok)

    # Output: commit notifications, if Config.notifies_commits is off.

    @property
    def owes_commit_notification(self) -> bool:
        """Whether a member lacks the commit index of this leader."""
        return self._state.role is Role.LEADER and owes_commit_notification(self._state)

    def commit_notifications(self) -> list[Message]:
        """Return messages with the commit index for those members; they may be sent at once."""
        state = self._state
        before = len(state.messages)
        schedule_commit_notifications(state)
        send_due(state)
        notifications = state.messages[before:]
        del state.messages[before:]
        return notifications

    @property
    def awaits_late_acknowledgements(self) -> bool:
        """Whether everything is committed, and only acknowledgements that change nothing miss."""
        state = self._state
        log = state.log
        if state.role is not Role.LEADER or state.transferee != NO_NODE:
            return False
        return log.committed == log.last_index and awaits_acknowledgements(state)

    # Output: rounds.

    def has_ready(self) -> bool:
        """Return whether ready() would return something."""
        state = self._state
        if self._open is not None:
            return False
        if state.append_due or state.heartbeat_due:
            send_due(state)
        log = state.log
        hard_state, soft_state = self._hard_state, self._soft_state
        return bool(
            state.messages
            or state.messages_late
            or log.stable < log.last_index
            or log.committed != hard_state.commit
            or log.applied < log.applicable_index
            or state.read_states
            or log.pending_snapshot is not None
            or state.term != hard_state.term
            or state.vote != hard_state.vote
            or soft_state.lead != state.lead
            or soft_state.role is not state.role
            or state.warnings
        )

    @property
    def can_defer_save(self) -> bool:
        """Whether this member leads others and has entries to save, but no vote or term.

        Everything else that a Ready would contain then depends only on what is saved already.
        """
        state = self._state
        return (
            state.role is Role.LEADER
            and self._open is None
            and state.log.stable < state.log.last_index
            and len(state.progress) > 1
            and (state.term, state.vote) == self._hard_state[:2]
        )

    def ready(self, *, may_save: bool = True) -> Ready | None:
        """Open a round, if there is anything to do; it must be closed with advance().

        may_save=False: entries whose save can be deferred are left to a later round.
        """
        if self._open is not None:
            raise RaftError("the last Ready has not been advanced")
        if not self.has_ready():
            return None
        saves = may_save or not self.can_defer_save
        state = self._state
        log = state.log
        # A single member commits an entry by saving it. Nothing that this round applies may leave
        # the member before the save is durable.
        is_alone = saves and state.role is Role.LEADER and leader.commit_alone(state)
        soft_state = None
        if self._soft_state.lead != state.lead or self._soft_state.role is not state.role:
            soft_state = SoftState(state.lead, state.role)
        hard_state = self._current_hard_state() if saves else self._hard_state
        entries = log.unstable() if saves else []
        is_new_term_or_vote = hard_state[:2] != self._hard_state[:2]
        # A leader's messages do not depend on its own disk, once its term is saved.
        early = state.role is Role.LEADER and not is_new_term_or_vote
        late = state.messages_late if saves else []
        ready = Ready(
            soft_state=soft_state,
            hard_state=None if hard_state == self._hard_state else hard_state,
            snapshot=log.pending_snapshot,
            entries=entries,
            committed=self._committed(log.committed if is_alone else log.applicable_index),
            messages_early=state.messages if early else [],
            messages_late=late if early else state.messages + late,
            read_states=state.read_states,
            must_sync=bool(entries) or is_new_term_or_vote or log.pending_snapshot is not None,
            warnings=state.warnings,
        )
        if not saves and ready.is_empty:
            return None
        if soft_state is not None:
            self._soft_state = soft_state
        state.messages = []
        state.read_states, state.warnings = [], []
        if saves:
            state.messages_late = []
        self._open = ready
        return ready

    def advance(self, ready: Ready) -> None:
        """Close a round: everything in ready is done."""
        if ready is not self._open:
            raise RaftError("this is not the Ready that is open")
        self._open = None
        state, log = self._state, self._state.log
        if ready.hard_state is not None:
            self._hard_state = ready.hard_state
        if ready.snapshot is not None:
            log.snapshot_applied(ready.snapshot)
            self._conf_changed = True
        if ready.entries:
            log.saved(ready.entries[-1].index, ready.entries[-1].term)
        self._applied(ready.committed)
        if state.role is Role.LEADER:
            leader.acknowledge_own(state)
        elif state.role is Role.CANDIDATE and self._hard_state[:2] == (state.term, state.id):
            election.count_vote(state, state.id, granted=True)

    def _committed(self, last: int) -> list[Entry]:
        log = self._state.log
        if log.applied >= last:
            return []
        bytes_max = self._state.config.max_committed_size_per_ready
        return log.bounded(log.applied + 1, last, bytes_max)

    def _applied(self, entries: list[Entry]) -> None:
        state, log = self._state, self._state.log
        if entries and entries[-1].index > log.applied:
            log.applied_to(entries[-1].index)
            if state.uncommitted_bytes:
                size_bytes = sum(len(entry.data) for entry in entries)
                state.uncommitted_bytes = max(0, state.uncommitted_bytes - size_bytes)
        if self._conf_changed:
            self._conf_changed = False
            state.conf_state_applied = confchange.to_conf_state(state.configuration)
            state.conf_index = log.applied
        if state.role is Role.LEADER:
            leader.leave_joint(state)
            if entries and state.transferee != NO_NODE:
                leader.send_timeout_now(state)

    def _current_hard_state(self) -> HardState:
        state = self._state
        return HardState(state.term, state.vote, state.log.committed)

    # Compaction and snapshots.

    def compact(self, index: int, bytes_max: int | None = None) -> int:
        """Drop entries up to index, which must be applied; its term stays known.

        Stops after the entry that reaches bytes_max, if given. Returns the bytes of their data.
        """
        return self._state.log.compact(index, bytes_max)

    def create_snapshot_metadata(self, index: int) -> SnapshotMetadata:
        """Return the metadata of a snapshot of the state applied up to index.

        index may be ahead of `applied` while a round is being applied, but not before the last
        applied configuration change: the configuration there is no longer known.
        """
        state = self._state
        log = state.log
        term = log.applied_term if index == log.applied else log.term_at(index)
        if term is None or not state.conf_index <= index <= log.committed:
            raise RaftError(
                f"no snapshot at {index}: the configuration is known from {state.conf_index} on,"
                f" the log from {log.offset} to {log.committed}"
            )
        if index <= log.applied:
            return SnapshotMetadata(state.conf_state_applied, index, term)
        return SnapshotMetadata(confchange.to_conf_state(state.configuration), index, term)

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at index; None if it is compacted or does not exist."""
        return self._state.log.term_at(index)

    # State.

    @property
    def id(self) -> int:
        """This member's id."""
        return self._state.config.id

    @property
    def term(self) -> int:
        """The current term."""
        return self._state.term

    @property
    def role(self) -> Role:
        """This member's role in the term."""
        return self._state.role

    @property
    def lead(self) -> int:
        """The leader of the term; 0: not known."""
        return self._state.lead

    @property
    def is_leader(self) -> bool:
        """Whether this member leads."""
        return self._state.role is Role.LEADER

    @property
    def is_learner(self) -> bool:
        """Whether this member is a learner."""
        return self._state.is_learner

    @property
    def is_only_voter(self) -> bool:
        """Whether this member is the only voter."""
        return self._state.is_only_voter

    @property
    def transferee(self) -> int:
        """The target of a leader transfer under way; 0: there is none."""
        return self._state.transferee

    @property
    def first_index(self) -> int:
        """The first index in memory."""
        return self._state.log.first_index

    @property
    def last_index(self) -> int:
        """The last index."""
        return self._state.log.last_index

    @property
    def committed(self) -> int:
        """The last committed index."""
        return self._state.log.committed

    @property
    def applied(self) -> int:
        """The last index applied by a closed round."""
        return self._state.log.applied

    @property
    def applied_term(self) -> int:
        """The term of the last applied entry."""
        return self._state.log.applied_term

    @property
    def conf_state(self) -> ConfState:
        """The configuration at `applied`."""
        return self._state.conf_state_applied

    def status(self) -> Status:
        """Return the status."""
        return status_of(self._state)
