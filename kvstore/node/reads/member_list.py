"""The MemberList response, and a member as the API shows it."""

from collections.abc import Iterable

from kvstore.node.parts import Parts
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.members import Member


def member_list_response(parts: Parts) -> bytes:
    """Return the encoded MemberListResponse as of now."""
    listed = pb.MemberListResponse(members=member_messages(parts.state.membership.sorted_members()))
    return parts.headers.field(0, parts.raft.term) + listed.SerializeToString()


def member_messages(members: Iterable[Member]) -> list[pb.Member]:
    """Return members as the API shows them."""
    return [
        pb.Member(
            ID=member.id,
            name=member.name,
            peerURLs=member.peer_urls,
            clientURLs=member.client_urls,
            isLearner=member.is_learner,
        )
        for member in members
    ]
