"""The leader: append, replicate, commit; answer reads; transfer leadership.

    propose ──► log ──► appends ──► acknowledged by a quorum ──► committed ──► notified

Followers answer appends with how far their logs agree (see progress). A rejection has a hint where
to try again, so finding the position takes about one round per term, not one per entry.

Invariants: a leader only appends to its log; by counting it commits only entries of its own term;
one configuration change is under way at a time.
"""

from collections.abc import Sequence

from kvstore.raft import confchange, confchange_codec, reads
from kvstore.raft.confchange import Change, ConfChangeError
from kvstore.raft.confchange_codec import ConfChangeDecodeError
from kvstore.raft.model import NO_NODE, Entry, EntryType, Message, MessageType
from kvstore.raft.progress import Progress, ProgressKind
from kvstore.raft.read_index import ReadRequest
from kvstore.raft.ready import ProposeOutcome, ProposeResult
from kvstore.raft.replication import advance_commit, schedule_append, schedule_appends
from kvstore.raft.state import State, send, warn

# Proposals.


def propose(state: State, datas: Sequence[bytes]) -> ProposeResult:
    """Append datas as consecutive entries, all or none."""
    refusal = _refuse(state, datas)
    if refusal is not None:
        return refusal
    term, first = state.term, state.log.last_index + 1
    make = tuple.__new__  # the hot path of every write: this costs half as much as Entry(...)
    state.log.append(
        [make(Entry, (0, term, index, data)) for index, data in enumerate(datas, first)]
    )
    schedule_appends(state, even_empty=False)
    return ProposeResult(ProposeOutcome.ACCEPTED, first, term)


def propose_change(state: State, change: Change) -> ProposeResult:
    """Append a configuration change, if it is allowed now."""
    data = confchange_codec.encode(change)
    refusal = _refuse(state, (data,))
    if refusal is not None:
        return refusal
    reason = change_refusal(state, change)
    if reason:
        under_way = state.pending_conf_index > state.log.applied or state.configuration.is_joint
        outcome = ProposeOutcome.CHANGE_UNDER_WAY if under_way else ProposeOutcome.CHANGE_REFUSED
        return ProposeResult(outcome, reason=reason)
    index = state.log.last_index + 1
    state.pending_conf_index = index
    state.log.append([Entry(confchange_codec.entry_type(change), state.term, index, data)])
    schedule_appends(state, even_empty=False)
    return ProposeResult(ProposeOutcome.ACCEPTED, index, state.term)


def on_proposal(state: State, message: Message) -> None:
    """Append what a follower forwarded; what is refused is lost, like a lost message."""
    if not message.entries or _refuse(state, [entry.data for entry in message.entries]):
        return
    term, first = state.term, state.log.last_index + 1
    entries = []
    for index, entry in enumerate(message.entries, first):
        kind, data = entry.type, entry.data
        if kind != EntryType.NORMAL:
            reason = _forwarded_change_refusal(state, kind, data)
            if reason:
                warn(state, f"change forwarded by {message.from_:x} refused: {reason}")
                kind, data = EntryType.NORMAL, b""
            else:
                state.pending_conf_index = index
        entries.append(Entry(kind, term, index, data))
    state.log.append(entries)
    schedule_appends(state, even_empty=False)


def leave_joint(state: State) -> None:
    """Propose to leave a joint configuration with auto_leave, once it is applied."""
    if state.configuration.auto_leave and state.log.applied >= state.pending_conf_index:
        propose_change(state, confchange.LEAVE_JOINT)


def change_refusal(state: State, change: Change) -> str:
    """Return why a change may not be appended now, or an empty text."""
    if state.pending_conf_index > state.log.applied:
        return (
            f"an earlier change may be under way: entry {state.pending_conf_index},"
            f" applied {state.log.applied}"
        )
    if state.configuration.is_joint and not confchange.wants_leave(change):
        return "the joint configuration must be left first"
    try:
        confchange.next_configuration(state.configuration, change)
    except ConfChangeError as error:
        return str(error)
    return ""


def _forwarded_change_refusal(state: State, kind: int, data: bytes) -> str:
    try:
        change = confchange_codec.decode(kind, data)
    except ConfChangeDecodeError as error:
        return str(error)
    return change_refusal(state, change)


def _refuse(state: State, datas: Sequence[bytes]) -> ProposeResult | None:
    """Return why datas cannot be appended; if they can be, count them as uncommitted."""
    if state.id not in state.progress:
        return ProposeResult(ProposeOutcome.REMOVED)
    if state.transferee != NO_NODE:
        return ProposeResult(ProposeOutcome.TRANSFERRING)
    limit = state.config.max_uncommitted_size
    if limit:
        size_bytes, tail_bytes = sum(map(len, datas)), state.uncommitted_bytes
        # Empty data always fits (it leaves joint configurations), and so does anything into an
        # empty tail: otherwise large data could never be proposed.
        if size_bytes and tail_bytes and tail_bytes + size_bytes > limit:
            return ProposeResult(ProposeOutcome.UNCOMMITTED_FULL)
        state.uncommitted_bytes += size_bytes
    return None


# Responses to appends.


def acknowledge_own(state: State) -> None:
    """Count what this member itself has saved."""
    own, log = state.progress.get(state.id), state.log
    if own is not None and own.acknowledged(log.stable) and log.stable > log.committed:
        _commit(state)


def commit_alone(state: State) -> bool:
    """Commit the whole log if this member is the whole cluster; return whether it is.

    For the round in which the entries are saved: the caller lets nothing of them leave the member
    before they are durable. Not with a learner: it could be notified of the commit before that.
    """
    if len(state.progress) != 1 or not state.is_only_voter:
        return False
    log = state.log
    if log.committed < log.last_index and log.last_term == state.term:
        log.commit_to(log.last_index)
        reads.release_postponed(state)
    return True


def on_append_response(state: State, message: Message) -> None:
    """Update a follower's progress, and schedule what it lacks."""
    progress = state.progress.get(message.from_)
    if progress is None:
        return
    progress.recent_active = True
    if message.reject:
        _on_rejected(state, message, progress)
        return
    if message.index > state.log.last_index:
        warn(state, f"{message.from_:x} acknowledged entry {message.index}, which was never sent")
        return
    recovers = progress.kind is ProgressKind.PROBE and progress.match == message.index
    if progress.acknowledged(message.index) or recovers:
        _on_acknowledged(state, message, progress)


def _on_rejected(state: State, message: Message, progress: Progress) -> None:
    """Try again where both logs may agree.

    The follower has log_term at reject_hint, so the logs differ at every index up to there where
    our term is greater: skip them all.
    """
    hint = message.reject_hint
    if message.log_term > 0:
        hint, _ = state.log.conflict_hint(min(hint, state.log.last_index), message.log_term)
    if progress.rejected(message.index, hint):
        if progress.kind is ProgressKind.REPLICATE:
            progress.become_probe()
        schedule_append(state, message.from_, even_empty=True)


def _on_acknowledged(state: State, message: Message, progress: Progress) -> None:
    from_, log = message.from_, state.log
    if progress.kind is ProgressKind.PROBE:
        progress.become_replicate()
    elif progress.kind is ProgressKind.REPLICATE:
        progress.free_inflight(message.index)
    elif progress.match + 1 >= log.first_index:
        # Whichever snapshot it has restored, the log has everything after it.
        progress.become_probe()
        progress.become_replicate()
    if not _commit(state) and _notifies_commits(state) and progress.can_bump_commit(log.committed):
        schedule_append(state, from_, even_empty=True)
    schedule_append(state, from_, even_empty=False)
    if from_ == state.transferee:
        send_timeout_now(state)


def _commit(state: State) -> bool:
    if not advance_commit(state):
        return False
    reads.release_postponed(state)
    if _notifies_commits(state):
        schedule_appends(state, even_empty=True)
    return True


def _notifies_commits(state: State) -> bool:
    """Return whether commits are notified at once.

    Those of changes of members always are: a member that leaves with the change may not send a
    later notification.
    """
    return state.config.notifies_commits or state.pending_conf_index > state.log.applied


def on_heartbeat_response(state: State, message: Message) -> None:
    """Note that a follower is active: resume sending, and count its confirmation of reads."""
    progress = state.progress.get(message.from_)
    if progress is None:
        return
    progress.recent_active = True
    progress.flow_paused = False
    if progress.match < state.log.last_index or progress.kind is ProgressKind.PROBE:
        schedule_append(state, message.from_, even_empty=True)
    if not message.context:
        return
    if state.reads.acknowledge(message.from_, message.context):
        reads.confirm(state)
    else:
        warn(state, f"{message.from_:x} echoed a heartbeat that was never sent")


# Reads, reports, transfer.


def on_read_index(state: State, message: Message) -> None:
    """Add a read-index request of a follower."""
    if len(message.entries) != 1:
        warn(state, f"{message.from_:x} asked for {len(message.entries)} reads at once")
        return
    reads.add(state, ReadRequest(message.from_, message.entries[0].data))


def on_transfer_leader(state: State, message: Message) -> None:
    """Transfer leadership to the member that the message names as its sender."""
    transfer(state, message.from_)


def transfer(state: State, to: int) -> None:
    """Transfer leadership to a voter: bring its log up to date, then send it TIMEOUT_NOW.

    Proposals are refused meanwhile; the transfer is aborted after an election timeout.
    """
    progress = state.progress.get(to)
    if progress is None or progress.is_learner or to in (state.id, state.transferee):
        return
    state.election_elapsed = 0
    state.transferee = to
    if progress.match == state.log.last_index:
        send_timeout_now(state)
    else:
        schedule_append(state, to, even_empty=True)


def send_timeout_now(state: State) -> None:
    """Let the transferee campaign once it has the whole log and no change of members is under way.

    A transferee that does not know of a committed change might need the vote of a removed member:
    of this one, if it removed itself. So the message has the commit index: other messages may
    arrive later than this one, or get lost.
    """
    log, progress = state.log, state.progress.get(state.transferee)
    if progress is None or progress.match < log.last_index:
        return
    if state.pending_conf_index <= log.applied:
        timeout_now = Message(MessageType.TIMEOUT_NOW, state.transferee, commit=log.committed)
        send(state, timeout_now)


def unreachable(state: State, member: int) -> None:
    """Note that a message to member was probably lost."""
    progress = state.progress.get(member)
    if progress is not None and progress.kind is ProgressKind.REPLICATE:
        progress.become_probe()


def snapshot_sent(state: State, member: int, *, ok: bool) -> None:
    """Note how sending a snapshot ended; appends resume after the next message of the member."""
    progress = state.progress.get(member)
    if progress is None or progress.kind is not ProgressKind.SNAPSHOT:
        return
    if not ok:
        progress.pending_snapshot = 0
    progress.become_probe()
    progress.flow_paused = True
