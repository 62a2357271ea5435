"""The start of a member: from what it had saved, or with the first entries of a new cluster.

Saved state is checked first: a log with gaps, or one that ends before the commit index, is damaged
and must not be used.
"""

from collections.abc import Sequence

from kvstore.raft import confchange, confchange_codec, reconfiguration
from kvstore.raft.confchange import ConfChangeError
from kvstore.raft.config import Config, Rng
from kvstore.raft.log import Log
from kvstore.raft.model import NO_NODE, ConfChange, Entry, EntryType, RaftError
from kvstore.raft.ready import InitialState
from kvstore.raft.state import State
from kvstore.raft.transitions import become_follower


def restore(config: Config, initial: InitialState, rng: Rng) -> State:
    """Return the state of a member that continues from initial; RaftError if that is invalid."""
    state = State(config, rng, _restore_log(initial))
    try:
        configuration = confchange.restore(initial.conf_state)
    except ConfChangeError as error:
        raise RaftError(f"saved configuration {initial.conf_state}: {error}") from error
    reconfiguration.set_configuration(state, configuration)
    state.conf_state_applied = confchange.to_conf_state(configuration)
    state.conf_index = state.log.applied
    state.term, state.vote, _ = initial.hard_state
    # After a torn write the log may have entries of a term that the hard state does not have yet;
    # nothing was acknowledged in that term.
    become_follower(state, max(state.term, state.log.last_term), NO_NODE)
    return state


def bootstrap(state: State, changes: Sequence[ConfChange]) -> None:
    """Append the entries of the first members to an empty log, in term 1 and committed."""
    log = state.log
    if log.last_index or state.term:
        raise RaftError(f"a log at index {log.last_index}, term {state.term} is not empty")
    become_follower(state, 1, NO_NODE)
    log.append(
        [
            Entry(EntryType.CONF_CHANGE, 1, index, confchange_codec.encode(change))
            for index, change in enumerate(changes, 1)
        ]
    )
    log.commit_to(log.last_index)


def _restore_log(initial: InitialState) -> Log:
    """Return the saved log with every entry stable; RaftError if it has gaps."""
    snapshot_index, commit = initial.snapshot_index, initial.hard_state.commit
    index, term = snapshot_index, initial.snapshot_term
    for entry in initial.entries:
        index += 1
        if entry.index != index or entry.term < term:
            raise RaftError(
                f"saved entry {entry.index} of term {entry.term} cannot follow"
                f" entry {index - 1} of term {term}"
            )
        term = entry.term
    # The commit index is not synced on its own: the applied index or a snapshot may be ahead of it.
    committed = max(commit, initial.applied, snapshot_index)
    if committed > index:
        raise RaftError(f"saved commit {committed} lies after the last saved entry, {index}")
    if initial.applied < snapshot_index:
        raise RaftError(f"applied {initial.applied} lies before the snapshot, {snapshot_index}")
    log = Log(
        offset=snapshot_index,
        offset_term=initial.snapshot_term,
        entries=list(initial.entries),
        stable=index,
        committed=committed,
        applied=initial.applied,
    )
    log.applied_to(initial.applied)
    return log
