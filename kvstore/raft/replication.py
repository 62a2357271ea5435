"""What a leader sends to keep the others' logs like its own, and when an entry is committed.

    append    entries after next - 1, as many as a message may carry; or none, to tell the commit
    snapshot  if those entries are compacted: the position only, the caller adds the state
    heartbeat the commit index as far as the follower is known to have the entries

Nothing is sent as it is wished for: wishes are gathered, and `send_due` turns what they came to
into messages when the next Ready is made. However many proposals, acknowledgements and reads one
turn brings, a follower is sent each entry once, the newest commit index once, and one heartbeat.

An entry is committed once a quorum has it saved and it is of the leader's own term; everything
before it is then committed too (Raft 5.3, 5.4.2).
"""

from kvstore.raft import quorum
from kvstore.raft.model import Message, MessageType, Snapshot, SnapshotMetadata
from kvstore.raft.progress import Progress, ProgressKind
from kvstore.raft.state import State, send


def want_append(state: State, to: int, *, even_empty: bool) -> None:
    """Have a member sent what it lacks; even_empty: if it lacks nothing, the commit index."""
    state.append_due[to] = even_empty or state.append_due.get(to, False)


def want_appends(state: State, *, even_empty: bool) -> None:
    """Have every other member sent what it lacks."""
    for member in state.progress:
        if member != state.id:
            want_append(state, member, even_empty=even_empty)


def send_due(state: State) -> None:
    """Make messages of what a leader was asked to send since the last time."""
    if state.append_due:
        due, state.append_due = state.append_due, {}
        for member in sorted(due.keys() & state.progress.keys()):
            _send_append(state, member, even_empty=due[member])
            while _send_append(state, member, even_empty=False):
                pass
    if state.heartbeat_due:
        state.heartbeat_due = False
        _send_heartbeats(state)


def owes_word(state: State) -> bool:
    """Tell whether a member that can be sent to was not told how far is committed."""
    committed, own = state.log.committed, state.id
    for member, progress in state.progress.items():
        if progress.can_bump_commit(committed) and not progress.is_paused and member != own:
            return True
    return False


def has_stragglers(state: State) -> bool:
    """Tell whether a member that follows has not acknowledged the last entry yet."""
    last = state.log.last_index
    for progress in state.progress.values():
        if progress.match < last and progress.kind is ProgressKind.REPLICATE:
            return True
    return False


def want_word(state: State) -> None:
    """Have every member told how far is committed that was not."""
    committed = state.log.committed
    for member, progress in state.progress.items():
        if member != state.id and progress.can_bump_commit(committed):
            want_append(state, member, even_empty=True)


def _send_append(state: State, to: int, *, even_empty: bool) -> bool:
    """Send one append, if the member may be sent to now; tell whether something went out."""
    progress = state.progress[to]
    if progress.is_paused:
        return False
    log = state.log
    previous = progress.next - 1
    previous_term = log.term_at(previous)
    if previous_term is None:
        return _send_snapshot(state, to, progress)
    entries = []
    # A full window still lets an empty append through: if all that filled it was lost, the answer
    # to this one is what gets things going again.
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
    """Tell every other member that this one leads."""
    context = state.reads.heartbeat_context()
    for member in sorted(state.progress):
        if member == state.id:
            continue
        progress = state.progress[member]
        # Never beyond match: what the follower holds after it may be another leader's.
        commit = min(progress.match, state.log.committed)
        send(state, Message(MessageType.HEARTBEAT, member, commit=commit, context=context))
        progress.sent_commit = commit


def advance_commit(state: State) -> bool:
    """Commit what a quorum has saved; tell whether that was more than before."""
    configuration, log = state.configuration, state.log
    acked = {member: progress.match for member, progress in state.progress.items()}
    index = quorum.joint_index(configuration.voters, configuration.outgoing, acked)
    if index <= log.committed or not log.matches(index, state.term):
        return False
    return log.commit_to(index)


def has_committed_in_term(state: State) -> bool:
    """Tell whether this leader knows of all that was committed before it."""
    return state.log.matches(state.log.committed, state.term)


def _send_snapshot(state: State, to: int, progress: Progress) -> bool:
    if not progress.recent_active:
        return False  # it would be made for nobody
    log = state.log
    term = log.term_at(log.applied)
    if term is None:
        return False  # a snapshot of our own is still being applied
    metadata = SnapshotMetadata(state.conf_state_applied, log.applied, term)
    progress.become_snapshot(log.applied)
    send(state, Message(MessageType.SNAP, to, snapshot=Snapshot(metadata)))
    return True
