"""A plain model of the cluster's members: the log's changes applied one by one.

A change is either valid and applied, or changes nothing, at all members alike. Removed ids are
never used again.
"""

from typing import NamedTuple

from kvstore.raft.model import ConfChange, ConfChangeType
from kvstore.wire.gen import membership_pb2
from kvstore.wire.internal import Field
from kvstore.wire.members import decode_change_context


class MemberInfo(NamedTuple):
    """One member."""

    peer_urls: tuple[str, ...]
    is_learner: bool
    name: str = ""


class Roster:
    """The members, by id; `states` holds every list there ever was, the newest last."""

    def __init__(self, learners_max: int) -> None:
        self.members: dict[int, MemberInfo] = {}
        self.removed: set[int] = set()
        self.has_version = (
            False  # whether the cluster version is decided; no member can join before
        )
        self.states: list[dict[int, MemberInfo]] = [{}]
        self._learners_max = learners_max
        self._changes: set[int] = set()  # ids of those applied

    def voters(self) -> list[int]:
        """Return the voters' ids, ascending."""
        return sorted(each for each, known in self.members.items() if not known.is_learner)

    def change(self, change: ConfChange) -> bool:
        """Apply a change; tell whether it is valid. Raises ValueError for one applied before."""
        if change.id in self._changes:
            raise ValueError(f"change {change.id} of members is applied twice")
        if change.id:
            self._changes.add(change.id)
        holds = change.node_id not in self.removed and self._apply(change)
        if holds:
            self.states.append(dict(self.members))
        return holds

    def _apply(self, change: ConfChange) -> bool:
        members, node = self.members, change.node_id
        if change.type == ConfChangeType.REMOVE_NODE:
            self.removed |= {node} & members.keys()
            return members.pop(node, None) is not None
        described, is_promotion = decode_change_context(change.context)
        urls = tuple(described.peer_urls)
        known = members.get(node)
        if is_promotion:
            if known is None or not known.is_learner:
                return False
            members[node] = known._replace(is_learner=False)
            return True
        taken = {url for each, who in members.items() if each != node for url in who.peer_urls}
        if taken & set(urls):
            return False
        if change.type == ConfChangeType.UPDATE_NODE:
            if known is not None:
                members[node] = known._replace(peer_urls=urls)
            return known is not None
        is_learner = described.is_learner
        learners = sum(each.is_learner for each in members.values())
        is_full = learners >= self._learners_max and change.type == ConfChangeType.ADD_LEARNER_NODE
        if known is not None or (is_learner and is_full):
            return False
        members[node] = MemberInfo(urls, is_learner, described.name)
        return True

    def request(self, request_field: int, body: bytes) -> None:
        """Apply a request of the log, if it is about members or the cluster version."""
        self.has_version |= request_field == Field.CLUSTER_VERSION_SET
        if request_field == Field.CLUSTER_MEMBER_ATTR_SET:
            said = membership_pb2.ClusterMemberAttrSetRequest.FromString(body)
            known = self.members.get(said.member_ID)
            if known is not None and known.name != said.member_attributes.name:
                self.members[said.member_ID] = known._replace(name=said.member_attributes.name)
                self.states.append(dict(self.members))
