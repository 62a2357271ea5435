"""The calls that change the list of members: add, remove, update, promote.

    call ─► strict checks (reconfiguration) ─► pending.add_change ─► applied ─► the list as it is

Any member accepts them. Only a promotion needs the leader (promotion). A change is one entry of
the log, V1 with etcd's JSON; whether it is allowed is decided when it is applied, alike on every
member.
"""

from collections.abc import Sequence
from functools import partial

from kvstore.batch import Outbox
from kvstore.config.values import check_url
from kvstore.errors import MEMBER_BAD_URLS, Code, Refusal
from kvstore.node.call_context import CallContext, Handler
from kvstore.node.cluster.promotion import Promotions
from kvstore.node.cluster.reconfiguration import may_add, may_remove
from kvstore.node.parts import Parts
from kvstore.node.reads.member_list import member_messages
from kvstore.raft.model import ConfChange, ConfChangeType
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.members import Member, encode_member, member_id

Response = (
    pb.MemberAddResponse
    | pb.MemberRemoveResponse
    | pb.MemberUpdateResponse
    | pb.MemberPromoteResponse
)


class Members:
    """Handles the calls."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._time = parts.time
        self._promotions = Promotions(parts)

    def handlers(self) -> dict[int, Handler]:
        """Return the handler of each method."""
        return {
            rpc.MEMBER_ADD: self._add,
            rpc.MEMBER_REMOVE: self._remove,
            rpc.MEMBER_UPDATE: self._update,
            rpc.MEMBER_PROMOTE: self._promote,
        }

    def cancel(self, call_id: int) -> None:
        """Forget a call whose client went away."""
        self._promotions.cancel(call_id)

    def step(self, now_ns: int, out: Outbox) -> None:
        """Continue with what waits; before the turn's proposals are made."""
        self._promotions.step(now_ns, out)

    # Calls.

    def _add(self, call_id: int, body: bytes, _context: CallContext) -> Refusal | None:
        request = pb.MemberAddRequest.FromString(body)
        try:
            urls = sorted(check_url(url.strip()) for url in request.peerURLs)
        except ValueError:
            return MEMBER_BAD_URLS
        if not urls:
            return MEMBER_BAD_URLS
        refusal = may_add(self._parts, self._time.now_ns, is_learner=request.isLearner)
        if refusal is not None:
            return refusal
        new_id = member_id(urls, "", self._time.wall_ms // 1000)
        member = Member(new_id, peer_urls=urls, is_learner=request.isLearner)
        kind = ConfChangeType.ADD_LEARNER_NODE if request.isLearner else ConfChangeType.ADD_NODE
        response = pb.MemberAddResponse(member=member_messages((member,))[0])
        self._propose(call_id, kind, new_id, encode_member(member), response)
        return None

    def _remove(self, call_id: int, body: bytes, _context: CallContext) -> Refusal | None:
        request = pb.MemberRemoveRequest.FromString(body)
        refusal = may_remove(self._parts, request.ID, self._time.now_ns)
        if refusal is None:
            kind = ConfChangeType.REMOVE_NODE
            self._propose(call_id, kind, request.ID, b"", pb.MemberRemoveResponse())
        return refusal

    def _update(self, call_id: int, body: bytes, _context: CallContext) -> Refusal | None:
        request = pb.MemberUpdateRequest.FromString(body)
        context = encode_member(Member(request.ID, peer_urls=list(request.peerURLs)))
        kind = ConfChangeType.UPDATE_NODE
        self._propose(call_id, kind, request.ID, context, pb.MemberUpdateResponse())
        return None

    def _promote(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        request = pb.MemberPromoteRequest.FromString(body)
        metadata = context.metadata
        token = metadata.get("token") or metadata.get("authorization") or ""
        answer = partial(self._answer, call_id, pb.MemberPromoteResponse())
        self._promotions.add(call_id, request.ID, token, self._time.now_ns, answer)
        return None

    def _propose(
        self, call_id: int, kind: ConfChangeType, node_id: int, context: bytes, response: Response
    ) -> None:
        parts = self._parts

        def changed(refusal: Refusal | None, out: Outbox) -> None:
            self._answer(call_id, response, refusal or parts.state.membership.sorted_members(), out)

        change = ConfChange(parts.replication.request_ids.next(), kind, node_id, context)
        parts.replication.pending.add_change(change, call_id, changed)

    def _answer(
        self, call_id: int, response: Response, result: Sequence[Member] | Refusal, out: Outbox
    ) -> None:
        if isinstance(result, Refusal):
            out.refuse(call_id, result)
            return
        response.members.extend(member_messages(result))
        header = self._parts.headers.field(0, self._parts.raft.term)
        out.replies.append((call_id, Code.OK, header + response.SerializeToString()))
