"""Handles a message of another member: first its term, then the table of handlers.

    higher term   become follower in it (a vote request: unless the leader was active recently)
    lower term    ignored; an old leader and an old pre-candidate get a response with the new term
    same term     (role, message type) → function

                    APP HEARTBEAT SNAP  VOTE_RESP  PRE_VOTE_RESP  APP_RESP …    PROP READ_INDEX
    FOLLOWER        handle                                                      forward
    PRE_CANDIDATE   follow, handle                 count
    CANDIDATE       follow, handle      count
    LEADER                                                        update, send  handle

What is not in the table is ignored: late responses are normal. What a correct member would not send
is ignored with a warning.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from kvstore.raft import candidate, follower, leader
from kvstore.raft.election import CAMPAIGN_TRANSFER, answer_vote_request
from kvstore.raft.model import NO_NODE, Message, MessageType, Role
from kvstore.raft.state import State, send, warn
from kvstore.raft.transitions import become_follower

Handler: TypeAlias = Callable[[State, Message], None]

_M = MessageType
_CANDIDATE: Final[dict[int, Handler]] = {
    _M.APP: candidate.on_append,
    _M.HEARTBEAT: candidate.on_heartbeat,
    _M.SNAP: candidate.on_snapshot,
}
TABLE: Final[Mapping[Role, Mapping[int, Handler]]] = {
    Role.FOLLOWER: {
        _M.APP: follower.on_append,
        _M.HEARTBEAT: follower.on_heartbeat,
        _M.SNAP: follower.on_snapshot,
        _M.PROP: follower.forward,
        _M.READ_INDEX: follower.forward,
        _M.READ_INDEX_RESP: follower.on_read_index_response,
        _M.TRANSFER_LEADER: follower.forward,
        _M.TIMEOUT_NOW: follower.on_timeout_now,
    },
    Role.PRE_CANDIDATE: {**_CANDIDATE, _M.PRE_VOTE_RESP: candidate.on_vote_response},
    Role.CANDIDATE: {**_CANDIDATE, _M.VOTE_RESP: candidate.on_vote_response},
    Role.LEADER: {
        _M.PROP: leader.on_proposal,
        _M.APP_RESP: leader.on_append_response,
        _M.HEARTBEAT_RESP: leader.on_heartbeat_response,
        _M.READ_INDEX: leader.on_read_index,
        _M.TRANSFER_LEADER: leader.on_transfer_leader,
    },
}

_WITHOUT_TERM: Final = frozenset((_M.PROP, _M.READ_INDEX))
# These keep their sender when they are forwarded, and may come back to it.
_FORWARDED: Final = frozenset((_M.PROP, _M.READ_INDEX, _M.TRANSFER_LEADER))
_FROM_LEADER: Final = frozenset((_M.APP, _M.HEARTBEAT, _M.SNAP))
_VOTE_REQUESTS: Final = frozenset((_M.VOTE, _M.PRE_VOTE))
_RESPONSES: Final = frozenset(
    (_M.APP_RESP, _M.VOTE_RESP, _M.HEARTBEAT_RESP, _M.READ_INDEX_RESP, _M.PRE_VOTE_RESP)
)
_FROM_NETWORK: Final = (
    _WITHOUT_TERM
    | _FROM_LEADER
    | _VOTE_REQUESTS
    | _RESPONSES
    | frozenset((_M.TRANSFER_LEADER, _M.TIMEOUT_NOW))
)


def step(state: State, message: Message) -> None:
    """Handle a message."""
    kind = message.type
    if not _is_acceptable(state, message):
        return
    if kind not in _WITHOUT_TERM:
        if message.term > state.term:
            if not _accept_higher_term(state, message):
                return
        elif message.term < state.term:
            _answer_lower_term(state, message)
            return
    if kind in _VOTE_REQUESTS:
        answer_vote_request(state, message)
        return
    handler = TABLE[state.role].get(kind)
    if handler is not None:
        handler(state, message)


def _is_acceptable(state: State, message: Message) -> bool:
    """Return whether a correct member can have sent this to us."""
    kind, from_ = message.type, message.from_
    if kind not in _FROM_NETWORK:
        warn(state, f"{from_:x} sent a message of type {kind}, which is local only")
        return False
    if message.to not in (state.id, NO_NODE):
        warn(state, f"{from_:x} sent us a message for {message.to:x}")
        return False
    if from_ == NO_NODE or (from_ == state.id and kind not in _FORWARDED):
        warn(state, f"a message of type {kind} came from {from_:x}")
        return False
    if message.term == 0 and kind not in _WITHOUT_TERM:
        warn(state, f"{from_:x} sent a message of type {kind} without a term")
        return False
    return not (kind in _RESPONSES and from_ not in state.progress)


def _accept_higher_term(state: State, message: Message) -> bool:
    """Become follower in the message's higher term if that is due; False: ignore the message."""
    kind = message.type
    if kind in _VOTE_REQUESTS and _holds_lease(state) and message.context != CAMPAIGN_TRANSFER:
        return False
    if kind == _M.PRE_VOTE:
        return True  # the term has not begun
    if kind == _M.PRE_VOTE_RESP and not message.reject:
        return message.term == state.term + 1  # the term we requested
    become_follower(state, message.term, message.from_ if kind in _FROM_LEADER else NO_NODE)
    return True


def _holds_lease(state: State) -> bool:
    """Return whether the leader was active so recently that votes are refused (Raft 4.2.3)."""
    config = state.config
    return (
        config.check_quorum
        and state.lead != NO_NODE
        and state.election_elapsed < config.election_tick
    )


def _answer_lower_term(state: State, message: Message) -> None:
    """Answer messages of a lower term whose sender would otherwise be stuck in it."""
    kind, config = message.type, state.config
    if kind in (_M.HEARTBEAT, _M.APP) and (config.check_quorum or config.pre_vote):
        # An old leader, or after a partition a member whose vote requests we ignore: our term makes
        # it step down.
        send(state, Message(_M.APP_RESP, message.from_))
    elif kind == _M.PRE_VOTE:
        send(state, Message(_M.PRE_VOTE_RESP, message.from_, term=state.term, reject=True))
