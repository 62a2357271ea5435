"""Members as etcd writes them in the log and in the database, and how their ids are made.

    {"id":7101852577860610209,"peerURLs":["http://127.0.0.1:23800"],"name":"n1"}

The JSON is Go's: compact, fields in this order (id, peerURLs, isLearner, name, clientURLs), all but
the first two omitted if empty, ids as exact numbers, and <, >, & and two line separators escaped.
The same text is the context of a configuration change and the row of the members table; the context
of a promotion has no URLs and contains "isPromote".

A member's id is a hash of its peer URLs and of the cluster's token (the first members) or the time
in seconds when it was added; a cluster's id is a hash of its first members' ids.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kvstore.types import ClusterId, MemberId
from kvstore.wire.varint import UINT64_MAX, WireError

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_GO_ESCAPES: Final = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
)


@dataclass(slots=True)
class Member:
    """One member: peer URLs for the other members, name and client URLs once it has started."""

    id: MemberId
    name: str = ""
    peer_urls: list[str] = field(default_factory=list)
    client_urls: list[str] = field(default_factory=list)
    is_learner: bool = False

    @property
    def is_started(self) -> bool:
        """Whether it has run: a member publishes its name when it starts."""
        return bool(self.name)


def encode_member(member: Member) -> bytes:
    """Return the member's JSON, for a table row or the context of an addition or update."""
    row: dict[str, object] = {"id": member.id, "peerURLs": member.peer_urls}
    if member.is_learner:
        row["isLearner"] = True
    if member.name:
        row["name"] = member.name
    if member.client_urls:
        row["clientURLs"] = member.client_urls
    return go_json(row)


def encode_promotion(member_id: MemberId) -> bytes:
    """Return the context of the change that makes a learner a voter."""
    return go_json({"id": member_id, "peerURLs": None, "isPromote": True})


def decode_member(text: bytes) -> Member:
    """Return the member of a JSON row; raise WireError if it is not one."""
    return decode_change_context(text)[0]


def decode_members(text: bytes) -> list[Member]:
    """Return the members of a JSON list, as peer ports serve it; WireError if it is not one."""
    try:
        rows = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise WireError(f"members of {len(text)} bytes are not JSON: {error}") from None
    if not isinstance(rows, list):
        raise WireError(f"members of {len(text)} bytes are not a JSON list")
    return [_member(row, len(text))[0] for row in rows]


def decode_change_context(text: bytes) -> tuple[Member, bool]:
    """Return (member, is a promotion) of a change's context; raise WireError if it is not one."""
    try:
        row = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise WireError(f"member of {len(text)} bytes is not JSON: {error}") from None
    return _member(row, len(text))


def member_id(peer_urls: Iterable[str], token: str, unix_seconds: int | None) -> MemberId:
    """Return the id of a member.

    A cluster's first members have its token and no time; a member added later has an empty token
    and the time of its addition.
    """
    text = "".join(sorted(peer_urls)) + token
    if unix_seconds is not None:
        text += str(unix_seconds)
    return _hash64(text.encode())


def cluster_id(member_ids: Iterable[MemberId]) -> ClusterId:
    """Return the id of the cluster that begins with these members."""
    return _hash64(b"".join(number.to_bytes(8, "big") for number in sorted(member_ids)))


def go_json(value: object) -> bytes:
    """Return the compact JSON Go's encoder writes for a value of dicts, lists, text and numbers."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _SURROGATE.sub(r"\\ufffd", text.translate(_GO_ESCAPES)).encode()


def _hash64(data: bytes) -> int:
    return int.from_bytes(hashlib.sha1(data, usedforsecurity=False).digest()[:8], "big")


def _member(row: object, size_bytes: int) -> tuple[Member, bool]:
    if not isinstance(row, dict):
        raise WireError(f"member of {size_bytes} bytes is not a JSON object")
    member_id = row.get("id", 0)
    if type(member_id) is not int or not 0 <= member_id <= UINT64_MAX:
        raise WireError(f"member id {member_id!r:.40} is not a number from 0 to 2**64 - 1")
    name = row.get("name") or ""
    if not isinstance(name, str):
        raise WireError(f"name of member {member_id:x} is not text")
    member = Member(
        member_id,
        name,
        _urls(row, "peerURLs", member_id),
        _urls(row, "clientURLs", member_id),
        _flag(row, "isLearner", member_id),
    )
    return member, _flag(row, "isPromote", member_id)


def _urls(row: dict[str, object], name: str, of_member: MemberId) -> list[str]:
    urls = row.get(name)
    if urls is None:
        return []
    if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
        raise WireError(f"{name} of member {of_member:x} is not a list of strings")
    return urls


def _flag(row: dict[str, object], name: str, of_member: MemberId) -> bool:
    flag = row.get(name)
    if flag is not None and not isinstance(flag, bool):
        raise WireError(f"{name} of member {of_member:x} is neither true nor false")
    return flag is True
