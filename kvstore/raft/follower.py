"""Messages to a follower: it appends the leader's entries, and forwards what only a leader can do.

    append     log has (index, term)    → append, acknowledge the last index both logs share
               log does not             → reject, with the last position where both may agree
               before our commit index  → acknowledge our commit index: both share all up to there
    snapshot   ahead of our log         → it replaces the log, the configuration and the state

Invariants: an acknowledgement covers only what is saved; a committed entry is never replaced. A
message that would break them is ignored with a warning: a bad peer must not stop this member.
"""

from kvstore.raft import confchange
from kvstore.raft.confchange import ConfChangeError
from kvstore.raft.election import start_campaign
from kvstore.raft.log import entry_size
from kvstore.raft.model import (
    EMPTY_SNAPSHOT,
    NO_NODE,
    Entry,
    Message,
    MessageType,
    Role,
    SnapshotMetadata,
)
from kvstore.raft.ready import ProposeOutcome, ProposeResult
from kvstore.raft.reconfiguration import set_configuration
from kvstore.raft.state import State, send, warn


def on_append(state: State, message: Message) -> None:
    """Append entries of the leader."""
    _note_leader(state, message)
    append(state, message)


def on_heartbeat(state: State, message: Message) -> None:
    """Commit what the leader has committed."""
    _note_leader(state, message)
    heartbeat(state, message)


def on_snapshot(state: State, message: Message) -> None:
    """Restore a snapshot of the leader."""
    _note_leader(state, message)
    snapshot(state, message)


def on_timeout_now(state: State, message: Message) -> None:
    """Campaign at once: the leader transfers leadership; the message has its commit index."""
    _commit_from_leader(state, message)
    start_campaign(state, transfer=True)


def on_read_index_response(state: State, message: Message) -> None:
    """Handle the leader's answer to a read-index request of this member."""
    if len(message.entries) != 1:
        warn(state, f"{message.from_:x} answered {len(message.entries)} reads at once")
        return
    state.read_states.append((message.index, message.entries[0].data))


def forward(state: State, message: Message) -> None:
    """Forward to the leader what only it can do; without a leader the message is lost."""
    if state.lead != NO_NODE:
        message.to = state.lead
        send(state, message)


def propose(state: State, entries: list[Entry]) -> ProposeResult:
    """Send proposals to the leader, in messages of bounded size."""
    if state.role is not Role.FOLLOWER or state.lead == NO_NODE:
        return ProposeResult(ProposeOutcome.NO_LEADER)
    bytes_max = state.config.max_size_per_message
    batch: list[Entry] = []
    batch_bytes = 0
    for entry in entries:
        size_bytes = entry_size(entry)
        if batch and batch_bytes + size_bytes > bytes_max:
            send(state, Message(MessageType.PROP, state.lead, entries=batch))
            batch, batch_bytes = [], 0
        batch.append(entry)
        batch_bytes += size_bytes
    send(state, Message(MessageType.PROP, state.lead, entries=batch))
    return ProposeResult(ProposeOutcome.FORWARDED)


def append(state: State, message: Message) -> None:
    """Append the leader's entries, or reject them with a hint where the logs may agree."""
    log, entries = state.log, message.entries
    if not _is_consecutive(message):
        warn(state, f"{message.from_:x} sent entries that do not follow one another")
        return
    if message.index < log.committed:
        _acknowledge(state, message.from_, log.committed)
        return
    if not log.matches(message.index, message.log_term):
        _reject(state, message)
        return
    conflict = log.find_conflict(entries)
    if conflict < len(entries):
        if entries[conflict].index <= log.committed:
            warn(
                state,
                f"{message.from_:x} sent an entry {entries[conflict].index} unlike the committed",
            )
            return
        log.replace_from(entries[conflict:] if conflict else entries)
    last = message.index + len(entries)
    log.commit_to(min(message.commit, last))
    _acknowledge(state, message.from_, last)


def heartbeat(state: State, message: Message) -> None:
    """Answer the leader's heartbeat, and commit what it has committed."""
    _commit_from_leader(state, message)
    send(state, Message(MessageType.HEARTBEAT_RESP, message.from_, context=message.context))


def _commit_from_leader(state: State, message: Message) -> None:
    """Advance the commit index to the message's, which this log must have reached."""
    log = state.log
    if message.commit > log.last_index:
        warn(
            state,
            f"{message.from_:x} sent commit {message.commit}, which this member acknowledged,"
            f" but the log ends at {log.last_index}: entries have been lost",
        )
    else:
        log.commit_to(message.commit)


def snapshot(state: State, message: Message) -> None:
    """Replace log and configuration by a snapshot if it is ahead; acknowledge in any case."""
    metadata = (message.snapshot or EMPTY_SNAPSHOT).metadata
    if message.snapshot is not None and _should_restore(state, message.from_, metadata):
        try:
            configuration = confchange.restore(metadata.conf_state)
        except ConfChangeError as error:
            warn(state, f"{message.from_:x} sent a snapshot at {metadata.index}: {error}")
            return
        state.log.restore(message.snapshot)
        state.progress = {}
        set_configuration(state, configuration)
    _acknowledge(state, message.from_, state.log.committed)


def _note_leader(state: State, message: Message) -> None:
    state.election_elapsed = 0
    state.lead = message.from_


def _is_consecutive(message: Message) -> bool:
    """Return whether the entries follow message.index without a gap, in terms that do not fall."""
    index, term = message.index, message.log_term
    for entry in message.entries:
        index += 1
        if entry.index != index or entry.term < term:
            return False
        term = entry.term
    return term <= message.term


def _should_restore(state: State, from_: int, metadata: SnapshotMetadata) -> bool:
    log, conf_state = state.log, metadata.conf_state
    if metadata.index <= log.committed:
        return False
    if state.id not in (*conf_state.voters, *conf_state.learners, *conf_state.voters_outgoing):
        warn(state, f"{from_:x} sent a snapshot at {metadata.index} without this member in it")
        return False
    if log.matches(metadata.index, metadata.term):
        log.commit_to(metadata.index)  # this log has all of it as entries
        return False
    return True


def _acknowledge(state: State, to: int, index: int) -> None:
    """Acknowledge everything up to index; an acknowledgement not sent yet is updated."""
    late = state.messages_late
    last = late[-1] if late else None
    if last is not None and (last.type, last.to, last.term, last.reject) == (
        MessageType.APP_RESP,
        to,
        state.term,
        False,
    ):
        last.index = max(last.index, index)
        return
    send(state, Message(MessageType.APP_RESP, to, index=index))


def _reject(state: State, message: Message) -> None:
    log = state.log
    hint, hint_term = log.conflict_hint(min(message.index, log.last_index), message.log_term)
    send(
        state,
        Message(
            MessageType.APP_RESP,
            message.from_,
            index=message.index,
            log_term=hint_term,
            reject=True,
            reject_hint=hint,
        ),
    )
