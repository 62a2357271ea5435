"""A leader's answers to requests for a read index; the bookkeeping is in read_index.

A leader that is the only voter needs nobody's confirmation, but like any other it waits until it
has committed an entry of its own term: right after a restart its commit index may lie before
writes that were acknowledged.
"""

from kvstore.raft import quorum
from kvstore.raft.model import NO_NODE, Entry, EntryType, Message, MessageType, Role
from kvstore.raft.read_index import ReadRequest
from kvstore.raft.replication import has_committed_in_term
from kvstore.raft.state import State, send, warn


def at_once(state: State) -> int | None:
    """Return the read index of a leader who need ask nobody; None: a request is needed."""
    leads_alone = state.role is Role.LEADER and state.is_only_voter
    return state.log.committed if leads_alone and has_committed_in_term(state) else None


def ask(state: State, request: ReadRequest) -> None:
    """Take a request; its answer comes at once, or when a quorum has confirmed the leader."""
    reads = state.reads
    if reads.held_count >= state.config.max_pending_reads:
        warn(state, f"read-index request passed over: {reads.held_count} wait already")
    elif not has_committed_in_term(state):
        reads.postponed.append(request)
    elif state.is_only_voter:
        _answer(state, state.log.committed, request)
    else:
        reads.unconfirmed.append((state.log.committed, request))
        reads.acknowledge(state.id, reads.heartbeat_context())
        state.heartbeat_due = True


def release_postponed(state: State) -> None:
    """Take up the requests that waited for the first commit of the term."""
    if state.reads.postponed and has_committed_in_term(state):
        postponed, state.reads.postponed = state.reads.postponed, []
        for request in postponed:
            ask(state, request)


def confirm(state: State) -> None:
    """Answer what a quorum has confirmed."""
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
