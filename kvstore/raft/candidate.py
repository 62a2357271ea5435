"""Messages to a candidate or pre-candidate.

It counts responses until it wins or loses, or follows the leader of its own term.
"""

from kvstore.raft import follower
from kvstore.raft.election import count_vote
from kvstore.raft.model import Message, Role
from kvstore.raft.state import State
from kvstore.raft.transitions import become_follower


def on_vote_response(state: State, message: Message) -> None:
    """Count a response to a vote or pre-vote request."""
    requested = state.term + 1 if state.role is Role.PRE_CANDIDATE else state.term
    if not message.reject and message.term != requested:
        return  # of an earlier campaign
    count_vote(state, message.from_, granted=not message.reject)


def on_append(state: State, message: Message) -> None:
    """Follow the leader of this term, and append its entries."""
    become_follower(state, message.term, message.from_)
    follower.append(state, message)


def on_heartbeat(state: State, message: Message) -> None:
    """Follow the leader of this term, and answer its heartbeat."""
    become_follower(state, message.term, message.from_)
    follower.heartbeat(state, message)


def on_snapshot(state: State, message: Message) -> None:
    """Follow the leader of this term, and restore its snapshot."""
    become_follower(state, message.term, message.from_)
    follower.snapshot(state, message)
