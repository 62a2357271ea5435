"""The members in the JSON of etcd's version 2 store, the data of a raft snapshot.

    /0/members/<id>/raftAttributes   {"peerURLs":[…]}          and isLearner
    /0/members/<id>/attributes       {"name":…,"clientURLs":[…]}  once they are known
    /0/removed_members/<id>          ""

In a cluster of etcd 3.5 this list is correct, and the rows of its `members` table may be wrong:
early 3.5 releases do not write promotions of learners and published attributes there. Later
versions make this text from their rows. `storage/v2_store` writes it.
"""

import json
from typing import Any, Final, NamedTuple

from kvstore.types import MemberId
from kvstore.wire.members import Member
from kvstore.wire.varint import WireError

_MEMBERS: Final = "/0/members/"
_ATTRIBUTES: Final = "/attributes"
_VERSION: Final = "/0/version"


class V2Members(NamedTuple):
    """The members, and the ids of removed ones."""

    members: dict[MemberId, Member]
    removed: set[MemberId]


class Attributes(NamedTuple):
    """The attributes that a member has published."""

    member_id: MemberId
    name: str
    client_urls: list[str]


def decode_v2_members(text: bytes) -> V2Members:
    """Return the members of a version 2 store; raise WireError if it is not one."""
    try:
        namespace = json.loads(text)["Root"]["Children"]["0"]["Children"]
        removed = _children(namespace, "removed_members")
        found = {
            int(key, 16): _member(int(key, 16), row["Children"])
            for key, row in _children(namespace, "members").items()
        }
        return V2Members(found, {int(key, 16) for key in removed})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireError(f"{len(text)} bytes are not a version 2 store: {error!r}") from None


def decode_attributes(path: str, value: str) -> Attributes | None:
    """Return the attributes in a version 2 request; None for another path; WireError if invalid."""
    if not (path.startswith(_MEMBERS) and path.endswith(_ATTRIBUTES)):
        return None
    try:
        return _attributes(int(path[len(_MEMBERS) : -len(_ATTRIBUTES)], 16), json.loads(value))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise WireError(f"attributes at {path} cannot be read: {error!r}") from None


def is_version(path: str) -> bool:
    """Return whether a version 2 request sets the cluster version."""
    return path == _VERSION


def _children(node: dict[str, Any], name: str) -> dict[str, Any]:
    found = node.get(name)
    return (found["Children"] or {}) if found is not None else {}


def _member(member_id: MemberId, leaves: dict[str, Any]) -> Member:
    raft = json.loads(leaves["raftAttributes"]["Value"])
    member = Member(member_id, peer_urls=list(raft["peerURLs"]))
    member.is_learner = bool(raft.get("isLearner", False))
    if "attributes" in leaves:
        row = json.loads(leaves["attributes"]["Value"])
        _, member.name, member.client_urls = _attributes(member_id, row)
    return member


def _attributes(member_id: MemberId, row: dict[str, Any]) -> Attributes:
    return Attributes(member_id, row.get("name", ""), list(row.get("clientURLs") or []))
