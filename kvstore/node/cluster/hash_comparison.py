"""Compares the hashes of all members' data at one revision.

    own hash, in slices ─► GET /members/hashkv of each other ─► callback(comparison)

Hashes are comparable if the compact revisions are equal: what was compacted is not hashed. If one
state has two hashes (see mvcc.record_hash), either counts as this member's.
"""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from kvstore.batch import Outbox, TaskKind, TaskResult
from kvstore.errors import Refusal
from kvstore.mvcc.hashing import HashResult
from kvstore.node.maintenance.long_jobs import LongJobs
from kvstore.node.parts import Parts


class PeerHash(NamedTuple):
    """Another member's answer."""

    revision: int  # its newest revision
    hash: int
    compact_revision: int


class HashComparison:
    """The hashes at one revision; own is this member's."""

    def __init__(self, own: HashResult) -> None:
        self.own = own
        self.peers: dict[int, PeerHash] = {}
        self.errors: dict[int, str] = {}  # of the members that gave no hash

    @property
    def answered(self) -> int:
        """How many members have answered, with a hash or an error."""
        return len(self.peers) + len(self.errors)

    def comparable(self) -> dict[int, int]:
        """Return the hashes of others that cover the same records, by member."""
        own = self.own
        return {
            member: own.hash if peer.hash == own.alternative else peer.hash
            for member, peer in self.peers.items()
            if peer.compact_revision == own.compact_revision
        }

    def groups(self, own_id: int) -> dict[int, list[int]]:
        """Return the members by hash: this one and all with a comparable hash."""
        groups: dict[int, list[int]] = {self.own.hash: [own_id]}
        for member, value in self.comparable().items():
            groups.setdefault(value, []).append(member)
        return groups


ComparisonCallback = Callable[[HashComparison], None]


class HashCollector:
    """Collects the hashes for comparisons."""

    def __init__(self, parts: Parts, jobs: LongJobs) -> None:
        self._parts = parts
        self._jobs = jobs

    def begin(self, callback: ComparisonCallback) -> None:
        """Hash the current revision here, then ask the others; callback gets the comparison."""

        def hashed(result: HashResult | Refusal) -> None:
            assert isinstance(result, HashResult), "the newest revision can always be hashed"
            self.ask_others(result, callback)

        self._jobs.hash_newest(hashed)

    def ask_others(self, own: HashResult, callback: ComparisonCallback) -> None:
        """Ask the others for their hash at the revision of this member's hash."""
        parts = self._parts
        others = [each for each in parts.state.membership.members if each != parts.member_id]
        comparison = HashComparison(own)
        body = json.dumps({"revision": own.hash_revision}, separators=(",", ":")).encode()
        answered = partial(self._handle_answer, comparison, len(others), callback)
        for member in others:
            args = (f"{member:x}".encode(), b"/members/hashkv", body)
            parts.host.tasks.ask(TaskKind.GET_PEER, args, partial(answered, member))
        if not others:
            callback(comparison)

    def _handle_answer(
        self,
        comparison: HashComparison,
        count: int,
        callback: ComparisonCallback,
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
        if comparison.answered == count:
            callback(comparison)


def _read(result: TaskResult) -> PeerHash | str:
    """Return the hash in an answer, or why there is none."""
    if result.error:
        return f"{result.error}: {result.body[:200].decode('utf-8', 'replace')}".rstrip(": \n")
    try:
        row = json.loads(result.body)
        header = row.get("header") or {}
        numbers = [header.get("revision", 0), row.get("hash", 0), row.get("compact_revision", 0)]
    except (ValueError, RecursionError, AttributeError):
        return "the answer is not a hash"
    if not all(type(number) is int for number in numbers):
        return "the answer is not a hash"
    return PeerHash(*numbers)


def majority(groups: dict[int, list[int]], members: Iterable[int]) -> int | None:
    """Return the hash that more than half of the members have; None if there is none."""
    quorum = len(list(members)) // 2 + 1
    return next((value for value, having in groups.items() if len(having) >= quorum), None)
