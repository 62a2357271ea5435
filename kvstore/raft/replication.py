"""What a leader sends to replicate its log, and when an entry is committed.

    append    entries after next - 1, as many as a message may carry; or none, for the commit index
    snapshot  if those entries are compacted: the position only, the caller adds the state
    heartbeat the commit index, but not beyond the entries the follower is known to have

Nothing is sent at once: messages are scheduled, and `send_due` makes them for the next Ready.
However many proposals, acknowledgements and reads one turn brings, a follower is sent each entry
once, the newest commit index once, and one heartbeat.

An entry is committed once a quorum has saved it and it is of the leader's own term; everything
before it is then committed too (Raft 5.3, 5.4.2).
"""

from kvstore.raft import quorum
from kvstore.raft.model import Message, MessageType, Snapshot, SnapshotMetadata
from kvstore.raft.progress import Progress, ProgressKind
from kvstore.raft.state import State, send


def schedule_append(state: State, to: int, *, even_empty: bool) -> None:
    """Schedule the entries a member lacks; even_empty: if there are none, the commit index."""
    state.append_due[to] = even_empty or state.append_due.get(to, False)


def schedule_appends(state: State, *, even_empty: bool) -> None:
    """Schedule appends to every other member."""
    for member in state.progress:
        if member != state.id:
            schedule_append(state, member, even_empty=even_empty)


def send_due(state: State) -> None:
    """Make the messages that were scheduled since the last call."""
    if state.append_due:
        due, state.append_due = state.append_due, {}
        for member in sorted(due.keys() & state.progress.keys()):
            _send_append(state, member, even_empty=due[member])
            while _send_append(state, member, even_empty=False):
                pass
    if state.heartbeat_due:
        state.heartbeat_due = False
        _send_heartbeats(state)


def owes_commit_notification(state: State) -> bool:
    """Return whether a member that may be sent to lacks the commit index."""
    committed, own = state.log.committed, state.id
    for member, progress in state.progress.items():
        if progress.can_bump_commit(committed) and not progress.is_paused and member != own:
            return True
    return False


def awaits_acknowledgements(state: State) -> bool:
    """Return whether a follower has not acknowledged the last entry yet."""
    last = state.log.last_index
    for progress in state.progress.values():
        if progress.match < last and progress.kind is ProgressKind.REPLICATE:
            return True
    return False


def schedule_commit_notifications(state: State) -> None:
    """Schedule the commit index for every member that lacks it."""
    committed = state.log.committed
    for member, progress in state.progress.items():
        if member != state.id and progress.can_bump_commit(committed):
            schedule_append(state, member, even_empty=True)


def _send_append(state: State, to: int, *, even_empty: bool) -> bool:
    """Send one append if the member's flow control allows; return whether anything was sent."""
    progress = state.progress[to]
    if progress.is_paused:
        return False
    log = state.log
    previous = progress.next - 1
    previous_term = log.term_at(previous)
    if previous_term is None:
        return _send_snapshot(state, to, progress)
    entries = []
    # An empty append is sent even if the window is full: if all its appends were lost, the
    # response to this one ends the wait.
    if progress.kind is not ProgressKind.REPLICATE or not progress.is_window_full:
        entries = log.bounded(progress.next, log.last_index, state.config.max_size_per_message)
    if not entries and not even_empty:
        return False
    send(
        state,
        Message(
            MessageType.APP,
            to,
            index=previous,
            log_term=previous_term,
            entries=entries,
            commit=log.committed,
        ),
    )
    progress.sent_entries(len(entries))
    progress.sent_commit = log.committed
    return True


def _send_heartbeats(state: State) -> None:
    """Send a heartbeat to every other member."""
    context = state.reads.heartbeat_context()
    for member in sorted(state.progress):
        if member == state.id:
            continue
        progress = state.progress[member]
        # Never beyond match: later entries of the follower may be another leader's.
        commit = min(progress.match, state.log.committed)
        send(state, Message(MessageType.HEARTBEAT, member, commit=commit, context=context))
        progress.sent_commit = commit


def advance_commit(state: State) -> bool:
    """Commit what a quorum has saved; return whether the commit index advanced."""
    configuration, log = state.configuration, state.log
    acked = {member: progress.match for member, progress in state.progress.items()}
    index = quorum.joint_index(configuration.voters, configuration.outgoing, acked)
    if index <= log.committed or not log.matches(index, state.term):
        return False
    return log.commit_to(index)


def has_committed_in_term(state: State) -> bool:
    """Return whether this leader knows everything that was committed before its term."""
    return state.log.matches(state.log.committed, state.term)


def _send_snapshot(state: State, to: int, progress: Progress) -> bool:
    if not progress.recent_active:
        return False  # it would not arrive
    log = state.log
    term = log.term_at(log.applied)
    if term is None:
        return False  # this member is still applying a snapshot itself
    metadata = SnapshotMetadata(state.conf_state_applied, log.applied, term)
    progress.become_snapshot(log.applied)
    send(state, Message(MessageType.SNAP, to, snapshot=Snapshot(metadata)))
    return True
