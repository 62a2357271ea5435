"""The replicated list of members, changed only by applied entries.

Rows are etcd's: `members` hex id → member JSON, `members_removed` hex id → "removed",
`cluster` clusterVersion / downgrade. A change that the list at apply time does not allow is refused
(node id 0 goes to raft), in the same way on every member. Removed ids are never used again.

Raft keeps the configuration of its own; this list is what operators and clients see.
"""

import json
from typing import Final

from kvstore.backend import Backend, Table, scan_all
from kvstore.errors import (
    MEMBER_EXISTS,
    MEMBER_NOT_FOUND,
    MEMBER_NOT_LEARNER,
    PEER_URL_EXISTS,
    TOO_MANY_LEARNERS,
    CorruptionError,
    DataDirError,
    Refusal,
)
from kvstore.raft.model import ConfChange, ConfChangeType
from kvstore.types import SERVER_VERSION
from kvstore.wire.internal import V2Request
from kvstore.wire.members import Member, decode_change_context, decode_member, encode_member
from kvstore.wire.v2_members import V2Members, decode_attributes, is_version
from kvstore.wire.versions import parse_version

_REMOVED: Final = b"removed"
_VERSION: Final = b"clusterVersion"
_DOWNGRADE: Final = b"downgrade"


def _row_key(member_id: int) -> bytes:
    return f"{member_id:x}".encode()


class Membership:
    """The applied member list, cluster version and downgrade state, kept in the backend."""

    def __init__(self, backend: Backend, *, learners_max: int) -> None:
        self._backend = backend
        self._learners_max = learners_max
        self.members: dict[int, Member] = {}
        self.removed: set[int] = set()
        self.cluster_version: str | None = None
        self.downgrade_target: str | None = None
        self.was_lowered = False  # the cluster version; reset when the log's snapshot is taken

    def restore(self) -> None:
        """Read everything from the backend, again if it was replaced."""
        self.members, self.removed = {}, set()
        self.downgrade_target = None
        for key, value in scan_all(self._backend, Table.MEMBERS):
            member = decode_member(value)
            if _row_key(member.id) != key:
                raise CorruptionError(f"members row {key!r} holds member {member.id:x}")
            self.members[member.id] = member
        for key, _ in scan_all(self._backend, Table.MEMBERS_REMOVED):
            self.removed.add(int(key, 16))
        version = self._backend.get(Table.CLUSTER, _VERSION)
        self.cluster_version = None if version is None else version.decode()
        downgrade = self._backend.get(Table.CLUSTER, _DOWNGRADE)
        if downgrade is not None:
            state = json.loads(downgrade)
            self.downgrade_target = state["target-version"] if state["enabled"] else None

    def sorted_members(self) -> list[Member]:
        """Return the members by ascending id."""
        return [self.members[member_id] for member_id in sorted(self.members)]

    def change(self, change: ConfChange) -> Refusal | None:
        """Apply a committed configuration change, or return why it is not allowed."""
        if change.node_id in self.removed:
            return MEMBER_NOT_FOUND
        match change.type:
            case ConfChangeType.ADD_NODE | ConfChangeType.ADD_LEARNER_NODE:
                return self._add_or_promote(change)
            case ConfChangeType.REMOVE_NODE:
                return self._remove(change.node_id)
            case ConfChangeType.UPDATE_NODE:
                return self._update_peer_urls(change)
            case _:
                raise CorruptionError(f"configuration change of unknown type {change.type}")

    def set_attributes(self, member_id: int, name: str, client_urls: list[str]) -> None:
        """Set a member's published name and client URLs; those of a removed member are ignored."""
        member = self.members.get(member_id)
        if member is None:
            if member_id in self.removed:
                return
            raise CorruptionError(f"attributes of member {member_id:x}, which was never added")
        member.name = name
        member.client_urls = client_urls
        self._save(member)

    def correct(self, recorded: V2Members) -> list[int]:
        """Set the list to that of a version 2 store; return the ids whose rows were wrong.

        A member that has published nothing there keeps the name it was created with.
        """
        wrong: list[int] = []
        for member in recorded.members.values():
            before = self.members.get(member.id)
            if before is not None and not member.client_urls:
                member.name, member.client_urls = before.name, before.client_urls
            if before != member:
                self.members[member.id] = member
                self._save(member)
                wrong.append(member.id)
        for member_id in self.members.keys() - recorded.members.keys():
            del self.members[member_id]
            self._backend.delete(Table.MEMBERS, _row_key(member_id))
            wrong.append(member_id)
        for member_id in recorded.removed - self.removed:
            self.removed.add(member_id)
            self._backend.put(Table.MEMBERS_REMOVED, _row_key(member_id), _REMOVED)
        return wrong

    def apply_v2(self, request: V2Request) -> None:
        """Apply the v2 requests of etcd 3.5 that still matter: attributes and cluster version."""
        if is_version(request.path):
            self.set_version(request.val)
            return
        attributes = decode_attributes(request.path, request.val)
        if attributes is not None:
            self.set_attributes(*attributes)

    def set_version(self, version: str) -> None:
        """Set the cluster version (major.minor.0); DataDirError for one above this server's."""
        try:
            cluster, own = parse_version(version), parse_version(SERVER_VERSION)
        except ValueError as error:
            raise CorruptionError(f"cluster version in the log: {error}") from None
        if cluster > own.without_patch:
            raise DataDirError(
                "invalid downgrade; server version is lower than determined cluster version: "
                f"this server is {own}, the cluster {cluster}"
            )
        before = self.cluster_version
        self.was_lowered |= before is not None and cluster < parse_version(before)
        self.cluster_version = version
        self._backend.put(Table.CLUSTER, _VERSION, version.encode())

    def set_downgrade(self, target: str | None) -> None:
        """Set the target of the downgrade under way; None: there is none."""
        self.downgrade_target = target
        state = {"target-version": target or "", "enabled": target is not None}
        text = json.dumps(state, separators=(",", ":"))
        self._backend.put(Table.CLUSTER, _DOWNGRADE, text.encode())

    def _save(self, member: Member) -> None:
        self._backend.put(Table.MEMBERS, _row_key(member.id), encode_member(member))

    def _add_or_promote(self, change: ConfChange) -> Refusal | None:
        member, is_promote = decode_change_context(change.context)
        if member.id != change.node_id:
            raise CorruptionError(
                f"configuration change for node {change.node_id:x} describes member {member.id:x}"
            )
        known = self.members.get(member.id)
        if is_promote:
            return self._promote(known)
        if known is not None:
            return MEMBER_EXISTS
        if self._taken_by_another(member.id, member.peer_urls):
            return PEER_URL_EXISTS
        if member.is_learner and change.type == ConfChangeType.ADD_LEARNER_NODE:
            learners = sum(1 for other in self.members.values() if other.is_learner)
            if learners >= self._learners_max:
                return TOO_MANY_LEARNERS
        self.members[member.id] = member
        self._save(member)
        return None

    def _promote(self, member: Member | None) -> Refusal | None:
        if member is None:
            return MEMBER_NOT_FOUND
        if not member.is_learner:
            return MEMBER_NOT_LEARNER
        member.is_learner = False
        self._save(member)
        return None

    def _remove(self, member_id: int) -> Refusal | None:
        if member_id not in self.members:
            return MEMBER_NOT_FOUND
        del self.members[member_id]
        self.removed.add(member_id)
        self._backend.delete(Table.MEMBERS, _row_key(member_id))
        self._backend.put(Table.MEMBERS_REMOVED, _row_key(member_id), _REMOVED)
        return None

    def _update_peer_urls(self, change: ConfChange) -> Refusal | None:
        member = self.members.get(change.node_id)
        if member is None:
            return MEMBER_NOT_FOUND
        updated, _ = decode_change_context(change.context)
        if self._taken_by_another(member.id, updated.peer_urls):
            return PEER_URL_EXISTS
        member.peer_urls = updated.peer_urls
        self._save(member)
        return None

    def _taken_by_another(self, member_id: int, peer_urls: list[str]) -> bool:
        wanted = set(peer_urls)
        return any(
            wanted.intersection(other.peer_urls)
            for other in self.members.values()
            if other.id != member_id
        )
