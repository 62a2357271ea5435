"""Elections: who asks for votes, who gets them, and what the count leads to.

    pre-vote   would you vote for me in the next term? binds nobody, disturbs nobody
    vote       binds: it is saved before it leaves, and there is one a term
    transfer   a vote at the old leader's wish: no pre-vote, and no regard for its lease

A vote goes only to a candidate whose log is at least as up-to-date as the voter's, so a winner
holds everything committed (Raft 5.4.1). One's own vote counts once it is saved; see RawNode.
"""

from typing import Final

from kvstore.raft import quorum
from kvstore.raft.model import NO_NODE, Message, MessageType, Role
from kvstore.raft.quorum import VoteResult
from kvstore.raft.replication import want_appends
from kvstore.raft.state import State, send
from kvstore.raft.transitions import (
    become_candidate,
    become_follower,
    become_leader,
    become_pre_candidate,
)

CAMPAIGN_TRANSFER: Final = b"CampaignTransfer"  # etcd's mark on votes of a transfer
_VOTE_RESPONSES: Final = {
    MessageType.VOTE: MessageType.VOTE_RESP,
    MessageType.PRE_VOTE: MessageType.PRE_VOTE_RESP,
}


def start_campaign(state: State, *, transfer: bool = False) -> None:
    """Campaign, unless this member may not: it leads, does not vote, or is about to change."""
    if state.role is Role.LEADER or not state.is_promotable:
        return
    if state.log.has_unapplied_conf_change():
        return  # it might ask the wrong members
    if state.config.pre_vote and not transfer:
        _ask_pre_votes(state)
    else:
        _ask_votes(state, CAMPAIGN_TRANSFER if transfer else b"")


def _ask_pre_votes(state: State) -> None:
    become_pre_candidate(state)
    _broadcast(state, MessageType.PRE_VOTE, state.term + 1, b"")
    count_vote(state, state.id, granted=True)  # binds nobody, so need not be saved


def _ask_votes(state: State, context: bytes) -> None:
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
    """Count a member's first answer, and act on what the count says."""
    state.votes.setdefault(member, granted)
    configuration = state.configuration
    result = quorum.joint_vote(configuration.voters, configuration.outgoing, state.votes)
    if result is VoteResult.LOST:
        become_follower(state, state.term, NO_NODE)
    elif result is VoteResult.WON and state.role is Role.PRE_CANDIDATE:
        _ask_votes(state, b"")
    elif result is VoteResult.WON:
        become_leader(state)
        want_appends(state, even_empty=True)


def answer_vote_request(state: State, message: Message) -> None:
    """Grant or refuse a vote. Learners vote too: they may be voters and not know it yet."""
    kind = MessageType(message.type)
    may_vote = (
        state.vote == message.from_
        or (state.vote == NO_NODE and state.lead == NO_NODE)
        or (kind is MessageType.PRE_VOTE and message.term > state.term)
    )
    granted = may_vote and state.log.is_up_to_date(message.index, message.log_term)
    # A grant echoes the term asked for: a pre-vote's is not yet ours, and an answer in an older
    # term would be passed over.
    term = message.term if granted else state.term
    response = _VOTE_RESPONSES[kind]
    send(state, Message(response, message.from_, term=term, reject=not granted))
    if granted and kind is MessageType.VOTE:
        state.election_elapsed = 0
        state.vote = message.from_
