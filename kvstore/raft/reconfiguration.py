"""A change of members coming into force, on the member that applies it.

What may change is in confchange; here the progress of each member follows, and a leader acts on
what the new quorum means: more may be committed, newcomers are sent to at once, a transfer to one
who no longer votes is off.
"""

from kvstore.raft import confchange
from kvstore.raft.confchange import Change, ConfChangeError, Configuration
from kvstore.raft.model import NO_NODE, RaftError, Role
from kvstore.raft.progress import Progress
from kvstore.raft.reads import confirm, release_postponed
from kvstore.raft.replication import advance_commit, want_appends
from kvstore.raft.state import State
from kvstore.raft.transitions import become_follower


def apply_change(state: State, change: Change) -> None:
    """Make a committed change; RaftError if it cannot be made, and then nothing has changed."""
    try:
        configuration = confchange.next_configuration(state.configuration, change)
    except ConfChangeError as error:
        raise RaftError(f"committed change {change} cannot be applied: {error}") from error
    set_configuration(state, configuration)
    if state.role is Role.LEADER:
        _lead_on(state)


def set_configuration(state: State, configuration: Configuration) -> None:
    """Put a configuration in force; members that stay keep their progress."""
    state.configuration = configuration
    window, known = state.config.max_inflight_messages, state.progress
    state.progress = {}
    for member in sorted(configuration.members):
        progress = known.get(member)
        if progress is None:
            # As if just heard from: else the next check of the quorum might depose the leader
            # before the newcomer had a chance to speak.
            next_index = max(state.log.last_index, 1)
            progress = Progress(0, next_index, window, recent_active=True)
        progress.is_learner = member in configuration.learners
        state.progress[member] = progress


def _lead_on(state: State) -> None:
    configuration = state.configuration
    if state.id not in configuration.all_voters:
        if state.config.step_down_on_removal:
            become_follower(state, state.term, NO_NODE)
        return  # else it still commits its own removal, without counting itself
    if advance_commit(state):
        release_postponed(state)
        want_appends(state, even_empty=True)
    else:
        want_appends(state, even_empty=False)
    confirm(state)
    if state.transferee not in configuration.all_voters:
        state.transferee = NO_NODE
