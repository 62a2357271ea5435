"""Elections: requesting votes, granting them, and acting on the count.

    pre-vote   asks whether a vote would be granted in the next term; changes no state
    vote       is saved before the response is sent; one a term
    transfer   a vote requested by the old leader: no pre-vote, and its leader lease is ignored

A vote is granted only to a candidate whose log is at least as up-to-date as the voter's, so a
winner has every committed entry (Raft 5.4.1). A candidate's own vote counts once it is saved; see
RawNode.
"""

from typing import Final

from kvstore.raft import quorum
from kvstore.raft.model import NO_NODE, Message, MessageType, Role
from kvstore.raft.quorum import VoteResult
from kvstore.raft.replication import schedule_appends
from kvstore.raft.state import State, send
from kvstore.raft.transitions import (
    become_candidate,
    become_follower,
    become_leader,
    become_pre_candidate,
)

CAMPAIGN_TRANSFER: Final = b"CampaignTransfer"  # etcd's context of the vote requests of a transfer
_VOTE_RESPONSES: Final = {
    MessageType.VOTE: MessageType.VOTE_RESP,
    MessageType.PRE_VOTE: MessageType.PRE_VOTE_RESP,
}


def start_campaign(state: State, *, transfer: bool = False) -> None:
    """Campaign, unless this member leads, is no voter, or has an unapplied membership change."""
    if state.role is Role.LEADER or not state.is_promotable:
        return
    if state.log.has_unapplied_conf_change():
        return  # it might send the requests to the wrong members
    if state.config.pre_vote and not transfer:
        _request_pre_votes(state)
    else:
        _request_votes(state, CAMPAIGN_TRANSFER if transfer else b"")


def _request_pre_votes(state: State) -> None:
    become_pre_candidate(state)
    _broadcast(state, MessageType.PRE_VOTE, state.term + 1, b"")
    count_vote(state, state.id, granted=True)  # changes no state, so need not be saved


def _request_votes(state: State, context: bytes) -> None:
    become_candidate(state)
    _broadcast(state, MessageType.VOTE, state.term, context)


def _broadcast(state: State, kind: MessageType, term: int, context: bytes) -> None:
    log = state.log
    for member in sorted(state.configuration.all_voters):
        if member != state.id:
            send(
                state,
                Message(
                    kind,
                    member,
                    term=term,
                    log_term=log.last_term,
                    index=log.last_index,
                    context=context,
                ),
            )


def count_vote(state: State, member: int, *, granted: bool) -> None:
    """Count a member's first response, and act on the result."""
    state.votes.setdefault(member, granted)
    configuration = state.configuration
    result = quorum.joint_vote(configuration.voters, configuration.outgoing, state.votes)
    if result is VoteResult.LOST:
        become_follower(state, state.term, NO_NODE)
    elif result is VoteResult.WON and state.role is Role.PRE_CANDIDATE:
        _request_votes(state, b"")
    elif result is VoteResult.WON:
        become_leader(state)
        schedule_appends(state, even_empty=True)


def answer_vote_request(state: State, message: Message) -> None:
    """Grant or reject a vote. Learners vote too: they may be voters and not know it yet."""
    kind = MessageType(message.type)
    may_vote = (
        state.vote == message.from_
        or (state.vote == NO_NODE and state.lead == NO_NODE)
        or (kind is MessageType.PRE_VOTE and message.term > state.term)
    )
    granted = may_vote and state.log.is_up_to_date(message.index, message.log_term)
    # A grant has the requested term: a pre-vote's is not ours yet, and a response in an older term
    # would be ignored.
    term = message.term if granted else state.term
    response = _VOTE_RESPONSES[kind]
    send(state, Message(response, message.from_, term=term, reject=not granted))
    if granted and kind is MessageType.VOTE:
        state.election_elapsed = 0
        state.vote = message.from_
