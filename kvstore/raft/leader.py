"""What a leader does: append, replicate, commit; answer reads; hand over.

    propose ──► log ──► appends ──► acknowledged by a quorum ──► committed ──► everyone is told

Followers answer appends with how far their logs agree (see progress); refusals say where to try
again, so finding the place takes about one round a term, not one an entry.

The laws: a leader only ever appends to its log; it commits by counting only entries of its own
term; one configuration change is under way at a time.
"""

from collections.abc import Sequence

from kvstore.raft import confchange, confchange_codec, reads
from kvstore.raft.confchange import Change, ConfChangeError
from kvstore.raft.confchange_codec import ConfChangeDecodeError
from kvstore.raft.model import NO_NODE, Entry, EntryType, Message, MessageType
from kvstore.raft.progress import Progress, ProgressKind
from kvstore.raft.read_index import ReadRequest
from kvstore.raft.ready import ProposeOutcome, ProposeResult
from kvstore.raft.replication import advance_commit, want_append, want_appends
from kvstore.raft.state import State, send, warn

# Proposals.


def propose(state: State, datas: Sequence[bytes]) -> ProposeResult:
    """Append datas as one run of entries, all or none."""
    refusal = _refuse(state, datas)
    if refusal is not None:
        return refusal
    term, first = state.term, state.log.last_index + 1
    make = tuple.__new__  # the hot path of every write: half the price of Entry(...)
    state.log.append(
        [make(Entry, (0, term, index, data)) for index, data in enumerate(datas, first)]
    )
    want_appends(state, even_empty=False)
    return ProposeResult(ProposeOutcome.ACCEPTED, first, term)


def propose_change(state: State, change: Change) -> ProposeResult:
    """Append a configuration change, if it may be made now."""
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
    want_appends(state, even_empty=False)
    return ProposeResult(ProposeOutcome.ACCEPTED, index, state.term)


def on_proposal(state: State, message: Message) -> None:
    """Append what a follower forwarded; what cannot be taken is lost, as any message."""
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
    want_appends(state, even_empty=False)


def leave_joint(state: State) -> None:
    """Propose the end of a joint configuration that is to end by itself, once it is applied."""
    if state.configuration.auto_leave and state.log.applied >= state.pending_conf_index:
        propose_change(state, confchange.LEAVE_JOINT)


def change_refusal(state: State, change: Change) -> str:
    """Return why a change may not enter the log now, or nothing."""
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
    """Return why datas cannot be appended; if they can, count them as uncommitted."""
    if state.id not in state.progress:
        return ProposeResult(ProposeOutcome.REMOVED)
    if state.transferee != NO_NODE:
        return ProposeResult(ProposeOutcome.TRANSFERRING)
    limit = state.config.max_uncommitted_size
    if limit:
        size_bytes, tail_bytes = sum(map(len, datas)), state.uncommitted_bytes
        # Empty ones always fit (they end joint configurations), and so does anything into an
        # empty tail: otherwise a large one could never be proposed.
        if size_bytes and tail_bytes and tail_bytes + size_bytes > limit:
            return ProposeResult(ProposeOutcome.UNCOMMITTED_FULL)
        state.uncommitted_bytes += size_bytes
    return None


# Answers to appends.


def acknowledge_own(state: State) -> None:
    """Count what this member itself has saved."""
    own, log = state.progress.get(state.id), state.log
    if own is not None and own.acknowledged(log.stable) and log.stable > log.committed:
        _commit(state)


def commit_alone(state: State) -> bool:
    """Commit all there is if this member is the whole cluster; tell whether it is.

    For the round in which the entries are saved: the caller saves them before it applies them.
    With a learner beside it, word of the commit could get there before the entries are saved here.
    """
    if len(state.progress) != 1 or not state.is_only_voter:
        return False
    log = state.log
    if log.committed < log.last_index and log.last_term == state.term:
        log.commit_to(log.last_index)
        reads.release_postponed(state)
    return True


def on_append_response(state: State, message: Message) -> None:
    """Learn how far a follower's log agrees, and send it what it lacks."""
    progress = state.progress.get(message.from_)
    if progress is None:
        return
    progress.recent_active = True
    if message.reject:
        _step_back(state, message, progress)
        return
    if message.index > state.log.last_index:
        warn(state, f"{message.from_:x} acknowledged entry {message.index}, which was never sent")
        return
    recovers = progress.kind is ProgressKind.PROBE and progress.match == message.index
    if progress.acknowledged(message.index) or recovers:
        _move_on(state, message, progress)


def _step_back(state: State, message: Message, progress: Progress) -> None:
    """Try again where both logs may agree.

    The follower holds log_term at reject_hint, so at every index up to there where our term is
    greater, the logs differ: skip them all.
    """
    hint = message.reject_hint
    if message.log_term > 0:
        hint, _ = state.log.conflict_hint(min(hint, state.log.last_index), message.log_term)
    if progress.rejected(message.index, hint):
        if progress.kind is ProgressKind.REPLICATE:
            progress.become_probe()
        want_append(state, message.from_, even_empty=True)


def _move_on(state: State, message: Message, progress: Progress) -> None:
    from_, log = message.from_, state.log
    if progress.kind is ProgressKind.PROBE:
        progress.become_replicate()
    elif progress.kind is ProgressKind.REPLICATE:
        progress.free_inflight(message.index)
    elif progress.match + 1 >= log.first_index:
        # Whatever snapshot it took, the log can bring it on from here.
        progress.become_probe()
        progress.become_replicate()
    if not _commit(state) and _tells_commits(state) and progress.can_bump_commit(log.committed):
        want_append(state, from_, even_empty=True)
    want_append(state, from_, even_empty=False)
    if from_ == state.transferee:
        let_campaign(state)


def _commit(state: State) -> bool:
    if not advance_commit(state):
        return False
    reads.release_postponed(state)
    if _tells_commits(state):
        want_appends(state, even_empty=True)
    return True


def _tells_commits(state: State) -> bool:
    """Tell whether commits are told at once; changes of members are: one may go with the change."""
    return state.config.tells_commits or state.pending_conf_index > state.log.applied


def on_heartbeat_response(state: State, message: Message) -> None:
    """Take a sign of life: send on, and count it for the reads that wait."""
    progress = state.progress.get(message.from_)
    if progress is None:
        return
    progress.recent_active = True
    progress.flow_paused = False
    if progress.match < state.log.last_index or progress.kind is ProgressKind.PROBE:
        want_append(state, message.from_, even_empty=True)
    if not message.context:
        return
    if state.reads.acknowledge(message.from_, message.context):
        reads.confirm(state)
    else:
        warn(state, f"{message.from_:x} echoed a heartbeat that was never sent")


# Reads, reports, transfer.


def on_read_index(state: State, message: Message) -> None:
    """Take a read-index request of a follower."""
    if len(message.entries) != 1:
        warn(state, f"{message.from_:x} asked for {len(message.entries)} reads at once")
        return
    reads.ask(state, ReadRequest(message.from_, message.entries[0].data))


def on_transfer_leader(state: State, message: Message) -> None:
    """Hand over to the member the message names as its sender."""
    transfer(state, message.from_)


def transfer(state: State, to: int) -> None:
    """Hand over to a voter: bring its log up to date, then let it campaign at once.

    No proposals are taken meanwhile; it is given up after an election timeout.
    """
    progress = state.progress.get(to)
    if progress is None or progress.is_learner or to in (state.id, state.transferee):
        return
    state.election_elapsed = 0
    state.transferee = to
    if progress.match == state.log.last_index:
        let_campaign(state)
    else:
        want_append(state, to, even_empty=True)


def let_campaign(state: State) -> None:
    """Let the transferee campaign once it has all there is and no change of members is under way.

    One that does not know of a committed change might need the vote of a member that has gone:
    of this one, if it removed itself. So it is told what is committed in the same message, for
    messages overtake one another, and get lost.
    """
    log, progress = state.log, state.progress.get(state.transferee)
    if progress is None or progress.match < log.last_index:
        return
    if state.pending_conf_index <= log.applied:
        timeout_now = Message(MessageType.TIMEOUT_NOW, state.transferee, commit=log.committed)
        send(state, timeout_now)


def unreachable(state: State, member: int) -> None:
    """Take note that something sent to member was probably lost."""
    progress = state.progress.get(member)
    if progress is not None and progress.kind is ProgressKind.REPLICATE:
        progress.become_probe()


def snapshot_sent(state: State, member: int, *, ok: bool) -> None:
    """Take note how sending a snapshot ended; appends go on after the next sign of life."""
    progress = state.progress.get(member)
    if progress is None or progress.kind is not ProgressKind.SNAPSHOT:
        return
    if not ok:
        progress.pending_snapshot = 0
    progress.become_probe()
    progress.flow_paused = True
