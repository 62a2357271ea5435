"""The passing of time, in ticks: election timeouts, heartbeats, and the leader's quorum check.

Several ticks may come at once, after the process was stopped or its disk stalled. That says nothing
about the others: what they sent meanwhile has not been read yet. So several ticks at once neither
make a follower campaign nor a leader check its quorum; the next tick does. But a leader that was
stopped for longer than the longest election timeout steps down: by then the others have campaigned.
"""

from kvstore.raft import quorum
from kvstore.raft.election import start_campaign
from kvstore.raft.model import NO_NODE, Role
from kvstore.raft.quorum import VoteResult
from kvstore.raft.state import State
from kvstore.raft.transitions import become_follower


def tick(state: State, count: int) -> None:
    """Advance the time by count ticks at once."""
    if state.role is Role.LEADER:
        _tick_leader(state, count)
    else:
        _tick_others(state, count)


def _tick_others(state: State, count: int) -> None:
    state.election_elapsed = _elapsed(state, count, state.election_timeout)
    if state.election_elapsed >= state.election_timeout and state.is_promotable:
        state.election_elapsed = 0
        start_campaign(state)


def _tick_leader(state: State, count: int) -> None:
    config = state.config
    if config.check_quorum and count >= 2 * config.election_tick and not state.is_only_voter:
        become_follower(state, state.term, NO_NODE)
        return
    state.heartbeat_elapsed += count
    state.election_elapsed = _elapsed(state, count, config.election_tick)
    if state.election_elapsed >= config.election_tick:
        state.election_elapsed = 0
        state.transferee = NO_NODE
        if config.check_quorum:
            _check_quorum(state)
    if state.role is Role.LEADER and state.heartbeat_elapsed >= config.heartbeat_tick:
        state.heartbeat_elapsed = 0
        state.heartbeat_due = True


def _elapsed(state: State, count: int, timeout: int) -> int:
    """Return election_elapsed after count ticks; several at once do not reach the timeout."""
    elapsed = state.election_elapsed + count
    if count > 1 and state.election_elapsed < timeout - 1:
        return min(elapsed, timeout - 1)
    return elapsed


def _check_quorum(state: State) -> None:
    """Step down unless messages of a quorum have arrived since the last check."""
    configuration = state.configuration
    active = {member: each.recent_active for member, each in state.progress.items()}
    active[state.id] = True
    result = quorum.joint_vote(configuration.voters, configuration.outgoing, active)
    if result is not VoteResult.WON:
        become_follower(state, state.term, NO_NODE)
        return
    for member, progress in state.progress.items():
        progress.recent_active = member == state.id
