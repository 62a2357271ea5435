"""Changes of a member's role: what is reset, and what the new role starts with.

                no leader                    quorum grants            quorum grants
    ┌► FOLLOWER ───────────► PRE_CANDIDATE ───────────────► CANDIDATE ─────────────► LEADER
    └── a message of a leader, a higher term, or a quorum that refuses (or does not answer) ─┘

Invariants: a term never decreases; the vote is reset only with its term; a leader never replaces
its own entries. Each function changes the state at once and sends nothing.
"""

from kvstore.raft.model import NO_NODE, Entry, EntryType, RaftError, Role
from kvstore.raft.progress import Progress
from kvstore.raft.read_index import ReadIndex
from kvstore.raft.state import State


def become_follower(state: State, term: int, lead: int) -> None:
    """Follow lead (0: none yet) in term."""
    _reset(state, term)
    state.role = Role.FOLLOWER
    state.lead = lead


def become_pre_candidate(state: State) -> None:
    """Begin a pre-vote; term and vote stay as they are."""
    if state.role is Role.LEADER:
        raise RaftError("a leader cannot become a pre-candidate")
    state.votes = {}
    state.role = Role.PRE_CANDIDATE
    state.lead = NO_NODE


def become_candidate(state: State) -> None:
    """Begin a new term and vote for this member in it."""
    if state.role is Role.LEADER:
        raise RaftError("a leader cannot become a candidate")
    _reset(state, state.term + 1)
    state.vote = state.id
    state.role = Role.CANDIDATE


def become_leader(state: State) -> None:
    """Lead the term, and append an empty entry.

    Only an entry of the leader's own term can be committed by counting, and all earlier ones with
    it (Raft 5.4.2).
    """
    if state.role is not Role.CANDIDATE:
        raise RaftError(f"a {state.role.name} cannot become leader")
    log = state.log
    _reset(state, state.term)
    state.role = Role.LEADER
    state.lead = state.id
    own = state.progress[state.id]
    own.match = log.stable
    own.become_replicate()
    own.recent_active = True
    # The tail may contain a configuration change; no other may be appended before it is applied.
    state.pending_conf_index = log.last_index
    log.append([Entry(EntryType.NORMAL, state.term, log.last_index + 1, b"")])


def _reset(state: State, term: int) -> None:
    """Reset everything that belonged to the previous role."""
    config = state.config
    if term != state.term:
        state.term = term
        state.vote = NO_NODE
    state.lead = NO_NODE
    state.transferee = NO_NODE
    state.election_elapsed = state.heartbeat_elapsed = 0
    state.election_timeout = config.election_tick + state.rng.randrange(config.election_tick)
    state.votes = {}
    state.pending_conf_index = 0
    state.uncommitted_bytes = 0
    state.reads = ReadIndex()
    state.append_due = {}
    state.heartbeat_due = False
    after_last = state.log.last_index + 1
    learners, window = state.configuration.learners, config.max_inflight_messages
    state.progress = {
        member: Progress(0, after_last, window, member in learners) for member in state.progress
    }
