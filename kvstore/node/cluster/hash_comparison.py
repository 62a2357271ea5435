"""One question to all members: what is the hash of your data at this revision?

    own hash, in slices ─► GET /members/hashkv of each other, at that revision ─► then(comparison)

Hashes can be compared where the compact revisions are equal: what was compacted is not hashed.
Where one state has two hashes (see mvcc.record_hash), either counts as this member's.
"""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from kvstore.batch import Outbox, TaskKind, TaskResult
from kvstore.errors import Refusal
from kvstore.mvcc.hashing import HashResult
from kvstore.node.parts import Parts
from kvstore.node.upkeep.maintenance import Maintenance


class PeerHash(NamedTuple):
    """What another member answered."""

    revision: int  # its newest
    hash: int
    compact_revision: int


class HashComparison:
    """The answers to one question; own is this member's."""

    def __init__(self, own: HashResult) -> None:
        self.own = own
        self.peers: dict[int, PeerHash] = {}
        self.errors: dict[int, str] = {}  # of the members that gave no hash

    @property
    def asked(self) -> int:
        """How many members answered, one way or the other."""
        return len(self.peers) + len(self.errors)

    def comparable(self) -> dict[int, int]:
        """Return the hashes of others that cover the same records, by member."""
        own = self.own
        return {
            member: own.hash if peer.hash == own.other else peer.hash
            for member, peer in self.peers.items()
            if peer.compact_revision == own.compact_revision
        }

    def groups(self, own_id: int) -> dict[int, list[int]]:
        """Return who has which hash, this member included; others than those do not count."""
        groups: dict[int, list[int]] = {self.own.hash: [own_id]}
        for member, value in self.comparable().items():
            groups.setdefault(value, []).append(member)
        return groups


Then = Callable[[HashComparison], None]


class HashCollector:
    """Makes surveys."""

    def __init__(self, parts: Parts, maintenance: Maintenance) -> None:
        self._parts = parts
        self._maintenance = maintenance

    def begin(self, then: Then) -> None:
        """Hash the current revision here, then ask the others; then is told all of it."""

        def take(result: HashResult | Refusal) -> None:
            assert isinstance(result, HashResult), "the newest revision can always be hashed"
            self.ask_others(result, then)

        self._maintenance.hash_newest(take)

    def ask_others(self, own: HashResult, then: Then) -> None:
        """Ask the others for their hash at the revision of a hash that is known."""
        parts = self._parts
        others = [each for each in parts.membership.members if each != parts.member_id]
        comparison = HashComparison(own)
        body = json.dumps({"revision": own.hash_revision}, separators=(",", ":")).encode()
        take = partial(self._take, comparison, len(others), then)
        for member in others:
            args = (f"{member:x}".encode(), b"/members/hashkv", body)
            parts.tasks.ask(TaskKind.GET_PEER, args, partial(take, member))
        if not others:
            then(comparison)

    def _take(
        self,
        comparison: HashComparison,
        count: int,
        then: Then,
        member: int,
        result: TaskResult,
        _out: Outbox,
    ) -> None:
        answer = _read(result)
        if isinstance(answer, PeerHash):
            comparison.peers[member] = answer
        else:
            comparison.errors[member] = answer
            self._parts.logger.warning(
                "failed hash kv request",
                requested_revision=comparison.own.hash_revision,
                remote_peer_id=f"{member:x}",
                error=answer,
            )
        if comparison.asked == count:
            then(comparison)


def _read(result: TaskResult) -> PeerHash | str:
    """Return the hash in an answer, or why there is none."""
    if result.error:
        return f"{result.error}: {result.body[:200].decode('utf-8', 'replace')}".rstrip(": \n")
    try:
        row = json.loads(result.body)
        header = row.get("header") or {}
        numbers = [header.get("revision", 0), row.get("hash", 0), row.get("compact_revision", 0)]
    except (ValueError, RecursionError, AttributeError):
        return "the answer is no hash"
    if not all(type(number) is int for number in numbers):
        return "the answer is no hash"
    return PeerHash(*numbers)


def majority(groups: dict[int, list[int]], members: Iterable[int]) -> int | None:
    """Return the hash that more than half of the members have, None if there is none."""
    quorum = len(list(members)) // 2 + 1
    return next((value for value, having in groups.items() if len(having) >= quorum), None)
