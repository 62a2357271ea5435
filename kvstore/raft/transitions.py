"""How a member changes its role: what it forgets, and what it starts with.

                no leader heard               quorum says yes           quorum says yes
    ┌► FOLLOWER ──────────────► PRE_CANDIDATE ───────────────► CANDIDATE ─────────────► LEADER
    └─── a leader is heard, a higher term is seen, or the quorum says no (or falls silent) ──┘

The laws: a term only grows; the vote is forgotten only with its term; a leader never replaces its
own entries. Each function changes the state at once and sends nothing.
"""

from kvstore.raft.model import NO_NODE, Entry, EntryType, RaftError, Role
from kvstore.raft.progress import Progress
from kvstore.raft.read_index import ReadIndex
from kvstore.raft.state import State


def become_follower(state: State, term: int, lead: int) -> None:
    """Follow lead (or nobody yet) in term."""
    _reset(state, term)
    state.role = Role.FOLLOWER
    state.lead = lead


def become_pre_candidate(state: State) -> None:
    """Ask whether a campaign could be won; term and vote stay as they are."""
    if state.role is Role.LEADER:
        raise RaftError("a leader cannot become a pre-candidate")
    state.votes = {}
    state.role = Role.PRE_CANDIDATE
    state.lead = NO_NODE


def become_candidate(state: State) -> None:
    """Begin a new term and vote for oneself in it."""
    if state.role is Role.LEADER:
        raise RaftError("a leader cannot become a candidate")
    _reset(state, state.term + 1)
    state.vote = state.id
    state.role = Role.CANDIDATE


def become_leader(state: State) -> None:
    """Lead the term, with an empty entry first: only an entry of one's own term can be committed
    by counting, and it takes the earlier ones along (Raft 5.4.2).
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
    # There may be a configuration change in the tail; no other may enter before it is applied.
    state.pending_conf_index = log.last_index
    log.append([Entry(EntryType.NORMAL, state.term, log.last_index + 1, b"")])


def _reset(state: State, term: int) -> None:
    """Forget what belonged to the role before."""
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
