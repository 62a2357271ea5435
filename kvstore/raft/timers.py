"""Time passing, in ticks: followers grow impatient, leaders send heartbeats and doubt themselves.

Ticks may come in a lump, after the process was stopped or its disk stood still. Such a lump says
nothing about the others: what they sent meanwhile is still to be read. So a lump alone makes no
follower campaign and no leader doubt its quorum; the next tick does. But a leader that has slept
through the longest election timeout steps down: by now the others all campaign.
"""

from kvstore.raft import quorum
from kvstore.raft.election import start_campaign
from kvstore.raft.model import NO_NODE, Role
from kvstore.raft.quorum import VoteResult
from kvstore.raft.state import State
from kvstore.raft.transitions import become_follower


def tick(state: State, count: int) -> None:
    """Let count ticks pass at once."""
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
    """Return election_elapsed after count ticks; a lump does not reach the timeout by itself."""
    elapsed = state.election_elapsed + count
    if count > 1 and state.election_elapsed < timeout - 1:
        return min(elapsed, timeout - 1)
    return elapsed


def _check_quorum(state: State) -> None:
    """Step down unless a quorum was heard from since the last check."""
    configuration = state.configuration
    active = {member: each.recent_active for member, each in state.progress.items()}
    active[state.id] = True
    result = quorum.joint_vote(configuration.voters, configuration.outgoing, active)
    if result is not VoteResult.WON:
        become_follower(state, state.term, NO_NODE)
        return
    for member, progress in state.progress.items():
        progress.recent_active = member == state.id
