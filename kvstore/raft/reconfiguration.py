"""Applies a change of members to the state of this member.

confchange decides which changes are allowed. Here the progress of each member is updated, and a
leader acts on the new quorum: more may be committed, new members are sent to at once, a leader
transfer to a removed voter is aborted.
"""

from kvstore.raft import confchange
from kvstore.raft.confchange import Change, ConfChangeError, Configuration
from kvstore.raft.model import NO_NODE, RaftError, Role
from kvstore.raft.progress import Progress
from kvstore.raft.reads import confirm, release_postponed
from kvstore.raft.replication import advance_commit, schedule_appends
from kvstore.raft.state import State
from kvstore.raft.transitions import become_follower


def apply_change(state: State, change: Change) -> None:
    """Apply a committed change; RaftError if it is not allowed, and then nothing has changed."""
    try:
        configuration = confchange.next_configuration(state.configuration, change)
    except ConfChangeError as error:
        raise RaftError(f"committed change {change} cannot be applied: {error}") from error
    set_configuration(state, configuration)
    if state.role is Role.LEADER:
        _lead_after_change(state)


def set_configuration(state: State, configuration: Configuration) -> None:
    """Set the configuration; members that stay keep their progress."""
    state.configuration = configuration
    window, known = state.config.max_inflight_messages, state.progress
    state.progress = {}
    for member in sorted(configuration.members):
        progress = known.get(member)
        if progress is None:
            # Active from the start: otherwise the next quorum check might fail before the new
            # member could send anything.
            next_index = max(state.log.last_index, 1)
            progress = Progress(0, next_index, window, recent_active=True)
        progress.is_learner = member in configuration.learners
        state.progress[member] = progress


def _lead_after_change(state: State) -> None:
    configuration = state.configuration
    if state.id not in configuration.all_voters:
        if state.config.step_down_on_removal:
            become_follower(state, state.term, NO_NODE)
        return  # otherwise it still commits its own removal, without counting itself
    if advance_commit(state):
        release_postponed(state)
        schedule_appends(state, even_empty=True)
    else:
        schedule_appends(state, even_empty=False)
    confirm(state)
    if state.transferee not in configuration.all_voters:
        state.transferee = NO_NODE
