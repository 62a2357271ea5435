"""A leader's answers to read-index requests; the bookkeeping is in read_index.

A leader that is the only voter needs no confirmation, but like any other it waits until it has
committed an entry of its own term: right after a restart its commit index may be before writes that
were acknowledged.
"""

from kvstore.raft import quorum
from kvstore.raft.model import NO_NODE, Entry, EntryType, Message, MessageType, Role
from kvstore.raft.read_index import ReadRequest
from kvstore.raft.replication import has_committed_in_term
from kvstore.raft.state import State, send, warn


def index_if_alone(state: State) -> int | None:
    """Return the read index of a leader that is the only voter; None: a request is needed."""
    leads_alone = state.role is Role.LEADER and state.is_only_voter
    return state.log.committed if leads_alone and has_committed_in_term(state) else None


def add(state: State, request: ReadRequest) -> None:
    """Add a request; it is answered at once, or when a quorum has confirmed the leader."""
    reads = state.reads
    if reads.waiting_count >= state.config.max_pending_reads:
        warn(state, f"read-index request dropped: {reads.waiting_count} are waiting already")
    elif not has_committed_in_term(state):
        reads.postponed.append(request)
    elif state.is_only_voter:
        _answer(state, state.log.committed, request)
    else:
        reads.unconfirmed.append((state.log.committed, request))
        reads.acknowledge(state.id, reads.heartbeat_context())
        state.heartbeat_due = True


def release_postponed(state: State) -> None:
    """Add the requests that waited for the first commit of the term."""
    if state.reads.postponed and has_committed_in_term(state):
        postponed, state.reads.postponed = state.reads.postponed, []
        for request in postponed:
            add(state, request)


def confirm(state: State) -> None:
    """Answer the requests that a quorum has confirmed."""
    reads, configuration = state.reads, state.configuration
    if not reads.unconfirmed:
        return
    confirmed = quorum.joint_index(configuration.voters, configuration.outgoing, reads.acked)
    for index, request in reads.release(confirmed):
        _answer(state, index, request)


def _answer(state: State, index: int, request: ReadRequest) -> None:
    if request.from_ in (NO_NODE, state.id):
        state.read_states.append((index, request.context))
        return
    entry = Entry(EntryType.NORMAL, 0, 0, request.context)
    send(state, Message(MessageType.READ_INDEX_RESP, request.from_, index=index, entries=[entry]))
