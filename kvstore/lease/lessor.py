"""The leases of one member: their TTLs, expiries, and the keys attached to them.

    replicated       id, TTL, remaining TTL (a checkpoint, 0: none): rows of table `lease`, changed
                     only by applied entries
    rebuilt          which key is attached to which lease, from the keys' own records
    on the primary   expiry: only the leader counts down, and proposes revokes

    grant, checkpoint, revoke ── apply ──► rows, leases
    promote ──► expiry = now + remaining or TTL + an election timeout
    renew   ──► expiry = now + TTL
    due     ──► ids to propose revokes for; returned again if the revoke was not applied

Invariant: no lease ends before the time promised to its client. Expiry is never earlier than
promised, and a lease ends only when its revoke is applied, on every member at the same entry, never
by a clock. Times are monotonic nanoseconds given by the caller.

It does not delete keys (revoke returns them, the caller deletes them), proposes nothing and does
not know the members: forwarding a renewal to the leader is done by the node.
"""

from collections.abc import Iterable
from typing import Final

from kvstack.component.units import SECOND_NS
from kvstore.backend import Backend, Table, scan_all
from kvstore.deadlines import Deadlines
from kvstore.errors import (
    LEADER_CHANGED,
    LEASE_EXISTS,
    LEASE_NOT_FOUND,
    LEASE_TTL_TOO_LARGE,
    Code,
    Refusal,
)
from kvstore.failpoints import armed, hit
from kvstore.lease.row import decode_row, encode_row, row_key
from kvstore.types import NO_LEASE, LeaseId

TTL_MAX_S: Final = 9_000_000_000
NOT_PRIMARY: Final = Refusal(int(Code.UNKNOWN), "not a primary lessor")
RENEW_LATER: Final = -1  # returned by renew if it depends on an entry that is not applied yet

_REQUEST_TIMEOUT_NS: Final = 5 * SECOND_NS
_SPREAD_FROM = 1000  # leases; with fewer a promotion cannot cause a burst of revokes
_EXPIRIES_PER_SECOND_MAX: Final = 750  # after a promotion
_DUE_MAX: Final = 500
_CHECKPOINTS_MAX: Final = 1000


class _Lease:
    """One lease; keys is None, the only key, or a set of several (most leases hold one)."""

    __slots__ = ("expiry_ns", "keys", "remaining_s", "ttl_s")

    def __init__(self, ttl_s: int, remaining_s: int) -> None:
        self.ttl_s = ttl_s
        self.remaining_s = remaining_s  # as last checkpointed; 0: none
        self.expiry_ns = 0  # valid on the primary only
        self.keys: bytes | set[bytes] | None = None


class Lessor:
    """All leases of one member; every method is O(log n) or better unless it says otherwise."""

    def __init__(
        self,
        backend: Backend,
        min_ttl_s: int,
        election_timeout_ns: int,
        checkpoint_interval_ns: int | None = None,
    ) -> None:
        """Take the rows' backend; call restore before anything else.

        min_ttl_s: shorter TTLs are raised to it. checkpoint_interval_ns: how often the primary
        asks to store the remaining TTL of leases that outlive it; None turns that off.
        """
        self._backend = backend
        self._min_ttl_s = min_ttl_s
        self._election_timeout_ns = election_timeout_ns
        self._retry_ns = _REQUEST_TIMEOUT_NS + 2 * election_timeout_ns
        self._checkpoint_interval_ns = checkpoint_interval_ns
        self._leases: dict[LeaseId, _Lease] = {}
        self._lease_of: dict[bytes, LeaseId] = {}
        self._primary = False
        self.granted = self.revoked = self.renewed = 0  # since the start
        self.granted_ttl_s = 0  # the sum of all
        self.granted_by_bits = [0] * 64  # TTLs granted, by their bit length
        self._expiries = Deadlines()  # never later than the lease's expiry
        self._checkpoints = Deadlines()
        self._clears = Deadlines()  # renewed leases whose checkpoint must become 0

    def __len__(self) -> int:
        return len(self._leases)

    def restore(self, attachments: Iterable[tuple[bytes, LeaseId]]) -> list[tuple[bytes, LeaseId]]:
        """Read all leases again and attach the keys; O(n). The lessor is not primary afterwards.

        attachments: (key, lease id) of every live key with a lease. Returns those whose lease does
        not exist. TTLs below the minimum are raised, in memory only.
        """
        self.demote()
        self._lease_of = {}
        self._leases = {
            lease_id: _Lease(max(ttl_s, self._min_ttl_s), remaining_s)
            for lease_id, ttl_s, remaining_s in (
                decode_row(*row) for row in scan_all(self._backend, Table.LEASE)
            )
        }
        orphans = []
        for key, lease_id in attachments:
            if lease_id in self._leases:
                self.attach(lease_id, key)
            else:
                orphans.append((key, lease_id))
        return orphans

    # Changes by applied entries, the same on every member.

    def grant(self, lease_id: LeaseId, ttl_s: int, now_ns: int) -> Refusal | int:
        """Create a lease and return its TTL in seconds, or a refusal that changes nothing.

        Raises ValueError for id 0: the caller chooses an id before it proposes.
        """
        if lease_id == NO_LEASE:
            raise ValueError("lease id 0 means no lease and cannot be granted")
        if ttl_s > TTL_MAX_S:
            return LEASE_TTL_TOO_LARGE
        if lease_id in self._leases:
            return LEASE_EXISTS
        ttl_s = max(ttl_s, self._min_ttl_s)
        lease = self._leases[lease_id] = _Lease(ttl_s, 0)
        self.granted += 1
        self.granted_ttl_s += ttl_s
        self.granted_by_bits[(ttl_s - 1).bit_length()] += 1
        self._backend.put(Table.LEASE, row_key(lease_id), encode_row(lease_id, ttl_s, 0))
        if self._primary:
            lease.expiry_ns = now_ns + ttl_s * SECOND_NS
            self._expiries.set(lease_id, lease.expiry_ns)
            self._schedule_checkpoint(lease_id, lease, now_ns)
        return ttl_s

    def revoke(self, lease_id: LeaseId) -> Refusal | list[bytes]:
        """Remove a lease and its row; return its keys, ascending, for the caller to delete."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return LEASE_NOT_FOUND
        self.revoked += 1
        self._backend.delete(Table.LEASE, row_key(lease_id))
        self._expiries.drop(lease_id)
        self._checkpoints.drop(lease_id)
        self._clears.drop(lease_id)
        keys = _keys_of(lease)
        for key in keys:
            del self._lease_of[key]
        return keys

    def checkpoint(self, lease_id: LeaseId, remaining_ttl_s: int, *, persist: bool) -> None:
        """Set the remaining TTL (0: the full TTL); an unknown lease is ignored.

        Only a later promotion uses it. persist: write it to the row, too.
        """
        lease = self._leases.get(lease_id)
        if lease is None:
            return
        lease.remaining_s = remaining_ttl_s
        if remaining_ttl_s <= 0:
            self._clears.drop(lease_id)
        if persist:
            row = encode_row(lease_id, lease.ttl_s, remaining_ttl_s)
            self._backend.put(Table.LEASE, row_key(lease_id), row)

    def attach(self, lease_id: LeaseId, key: bytes) -> None:
        """Attach key to the lease, detaching it from any other; KeyError for an unknown lease."""
        lease = self._leases[lease_id]
        old_id = self._lease_of.get(key, NO_LEASE)
        if old_id == lease_id:
            return
        if old_id != NO_LEASE:
            self.detach(key)
        self._lease_of[key] = lease_id
        keys = lease.keys
        if keys is None:
            lease.keys = key
        elif isinstance(keys, bytes):
            lease.keys = {keys, key}
        else:
            keys.add(key)

    @property
    def has_keys(self) -> bool:
        """Whether any key is attached to a lease."""
        return bool(self._lease_of)

    def detach(self, key: bytes) -> None:
        """Detach key from its lease, if it has one."""
        lease_id = self._lease_of.pop(key, NO_LEASE)
        if lease_id == NO_LEASE:
            return
        lease = self._leases[lease_id]
        if isinstance(lease.keys, set):
            lease.keys.discard(key)
        else:
            lease.keys = None

    # Queries.

    def exists(self, lease_id: LeaseId) -> bool:
        """Return whether the lease exists; an expired one does until its revoke is applied."""
        return lease_id in self._leases

    def lease_of(self, key: bytes) -> LeaseId:
        """Return the lease that key is attached to, or 0."""
        return self._lease_of.get(key, NO_LEASE)

    def keys(self, lease_id: LeaseId) -> list[bytes]:
        """Return the keys of a lease, ascending; an unknown lease has none."""
        lease = self._leases.get(lease_id)
        return [] if lease is None else _keys_of(lease)

    def leases(self) -> list[LeaseId]:
        """Return all leases by expiry; O(n log n).

        A member that is not the primary knows no expiries and returns them by id.
        """
        if not self._primary:
            return sorted(self._leases)
        leases = self._leases
        return sorted(leases, key=lambda lease_id: (leases[lease_id].expiry_ns, lease_id))

    def time_to_live(self, lease_id: LeaseId, now_ns: int) -> Refusal | tuple[int, int]:
        """Return (remaining, granted TTL) in whole seconds; an expired lease has 0 remaining."""
        lease = self._leases.get(lease_id)
        if lease is None:
            return LEASE_NOT_FOUND
        if not self._primary:
            return LEADER_CHANGED
        return max(lease.expiry_ns - now_ns, 0) // SECOND_NS, lease.ttl_s

    # The primary.

    @property
    def is_primary(self) -> bool:
        """Whether this member counts the leases down."""
        return self._primary

    def promote(self, now_ns: int, extend_ns: int | None = None) -> None:
        """Start counting down: each lease expires after its remaining time (or TTL) and extend_ns.

        extend_ns: None means an election timeout, which covers the time without a leader. With 1000
        leases or more, expiries are delayed so that no more than 750 fall within any second.
        O(n log n).
        """
        extra_ns = self._election_timeout_ns if extend_ns is None else extend_ns
        self._primary = True
        for lease in self._leases.values():
            remaining_s = lease.remaining_s if lease.remaining_s > 0 else lease.ttl_s
            lease.expiry_ns = now_ns + remaining_s * SECOND_NS + extra_ns
        if len(self._leases) >= _SPREAD_FROM:
            _spread(self._leases)
        self._expiries.replace((each, lease.expiry_ns) for each, lease in self._leases.items())
        for lease_id, lease in self._leases.items():
            self._schedule_checkpoint(lease_id, lease, now_ns)

    def demote(self) -> None:
        """Stop counting down; no lease expires until a promotion."""
        self._primary = False
        self._expiries.replace(())
        self._checkpoints.replace(())
        self._clears.replace(())

    def renew(self, lease_id: LeaseId, now_ns: int) -> Refusal | int:
        """Restart the lease's TTL and return it in seconds.

        RENEW_LATER: try again when more entries are applied. Either the lease has expired and its
        revoke is under way (then it will not be found), or a checkpoint of its remaining TTL must
        be cleared first (checkpoints_due returns it), since otherwise a new leader would count down
        from less than was promised.
        """
        lease = self._leases.get(lease_id)
        if not self._primary:
            return NOT_PRIMARY
        if lease is None:
            return LEASE_NOT_FOUND
        if lease.expiry_ns <= now_ns:
            return RENEW_LATER
        if armed:
            hit("beforeCheckpointInLeaseRenew")
        expiry_ns = now_ns + lease.ttl_s * SECOND_NS
        if expiry_ns > lease.expiry_ns:  # noqa: PLR1730 - hot path
            lease.expiry_ns = expiry_ns  # its deadline stays, and is moved when it is due
        if lease.remaining_s > 0:
            if lease_id not in self._clears:
                self._clears.set(lease_id, now_ns)
            return RENEW_LATER
        self.renewed += 1
        return lease.ttl_s

    def due(self, now_ns: int, limit: int = _DUE_MAX) -> list[LeaseId]:
        """Return up to limit expired leases whose revoke is to be proposed.

        A lease whose revoke is not applied within a request timeout is returned again.
        """
        expired: list[LeaseId] = []
        while len(expired) < limit:
            lease_id = self._expiries.pop_due(now_ns)
            if lease_id is None:
                break
            expiry_ns = self._leases[lease_id].expiry_ns
            if expiry_ns > now_ns:
                self._expiries.set(lease_id, expiry_ns)
            else:
                expired.append(lease_id)
                self._expiries.set(lease_id, now_ns + self._retry_ns)
        return expired

    def checkpoints_due(
        self, now_ns: int, limit: int = _CHECKPOINTS_MAX
    ) -> list[tuple[LeaseId, int]]:
        """Return up to limit (lease, remaining seconds) to propose as a checkpoint.

        Remaining 0 clears the checkpoint of a renewed lease, and is returned even if checkpoints
        are disabled: the row may come from a member that has them enabled.
        """
        proposed: list[tuple[LeaseId, int]] = []
        while len(proposed) < limit and (lease_id := self._clears.pop_due(now_ns)) is not None:
            proposed.append((lease_id, 0))
            self._clears.set(lease_id, now_ns + self._retry_ns)
        while len(proposed) < limit and (lease_id := self._checkpoints.pop_due(now_ns)) is not None:
            lease = self._leases[lease_id]
            self._schedule_checkpoint(lease_id, lease, now_ns)
            remaining_s = -((now_ns - lease.expiry_ns) // SECOND_NS)  # rounded up
            if 0 < remaining_s < lease.ttl_s and lease_id not in self._clears:
                proposed.append((lease_id, remaining_s))
        return proposed

    def next_expiry_ns(self) -> int | None:
        """Return a time before which due and checkpoints_due return nothing; None: never.

        It may be too early (if a lease was renewed), never too late.
        """
        queues = (self._expiries, self._checkpoints, self._clears)
        return min((at for queue in queues if (at := queue.next_ns()) is not None), default=None)

    def _schedule_checkpoint(self, lease_id: LeaseId, lease: _Lease, now_ns: int) -> None:
        interval_ns = self._checkpoint_interval_ns
        if interval_ns is not None and lease.ttl_s * SECOND_NS > interval_ns:
            self._checkpoints.set(lease_id, now_ns + interval_ns)


def _keys_of(lease: _Lease) -> list[bytes]:
    keys = lease.keys
    if keys is None:
        return []
    return [keys] if isinstance(keys, bytes) else sorted(keys)


def _spread(leases: dict[LeaseId, _Lease]) -> None:
    """Delay expiries so that no more than _EXPIRIES_PER_SECOND_MAX fall within any second."""
    order = sorted(leases, key=lambda lease_id: (leases[lease_id].expiry_ns, lease_id))
    at_ns = [leases[lease_id].expiry_ns for lease_id in order]
    for position in range(_EXPIRIES_PER_SECOND_MAX, len(order)):
        earliest_ns = at_ns[position - _EXPIRIES_PER_SECOND_MAX] + SECOND_NS
        at_ns[position] = max(at_ns[position], earliest_ns)
    for lease_id, expiry_ns in zip(order, at_ns, strict=True):
        leases[lease_id].expiry_ns = expiry_ns
