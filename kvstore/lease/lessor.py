"""The leases of the store: who lives how long, and which keys go with them.

What is replicated (rows of table `lease`, changed only by applied entries) and what is not:

    replicated       id, TTL, remaining TTL (a checkpoint, 0: none)
    rebuilt          which key hangs on which lease (from the keys' own records)
    the primary's    expiry: only the leader counts down, and asks for a revoke through the log

    grant, checkpoint, revoke ── apply ──► rows, leases
    promote ──► expiry = now + remaining or TTL + an election timeout
    renew   ──► expiry = now + TTL
    due     ──► ids to propose revokes for; asked again if the revoke has not come back

The law: no lease ends before the time its holder was told. Expiry is only ever later than
promised, and a lease ends by its revoke being applied, on every member at the same entry, never
by a clock. Times are monotonic nanoseconds given by the caller; nothing here reads one.

It does not delete keys (revoke names them, the caller deletes them), does not propose anything
and does not know about members: forwarding a renew to the leader is the node's business.
"""

from collections.abc import Iterable, Iterator
from typing import Final

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
from kvstore.mvcc.backend import Backend, Table
from kvstore.types import NO_LEASE, LeaseId

TTL_MAX_S: Final = 9_000_000_000
NOT_PRIMARY: Final = Refusal(int(Code.UNKNOWN), "not a primary lessor")
RENEW_LATER: Final = -1  # what renew returns when the answer hangs on an entry still to be applied

_SECOND_NS: Final = 1_000_000_000
_REQUEST_TIMEOUT_NS: Final = 5 * _SECOND_NS
_SPREAD_FROM = 1000  # leases; below this many a promotion cannot cause a storm
_EXPIRIES_PER_SECOND_MAX: Final = 750  # after a promotion
_DUE_MAX: Final = 500
_CHECKPOINTS_MAX: Final = 1000
_ROWS_PER_SCAN: Final = 10_000


class _Lease:
    """One lease; keys is None, the only key, or a set of several (most leases hold one)."""

    __slots__ = ("expiry_ns", "keys", "remaining_s", "ttl_s")

    def __init__(self, ttl_s: int, remaining_s: int) -> None:
        self.ttl_s = ttl_s
        self.remaining_s = remaining_s  # as last checkpointed; 0: none
        self.expiry_ns = 0  # means something on the primary only
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
        """Read all leases anew and hang the keys on them; O(n). The lessor is no primary then.

        attachments: (key, lease id) of every live key that carries a lease. Returns those whose
        lease does not exist. TTLs below the minimum are raised, in memory only.
        """
        self.demote()
        self._lease_of = {}
        self._leases = {
            lease_id: _Lease(max(ttl_s, self._min_ttl_s), remaining_s)
            for lease_id, ttl_s, remaining_s in self._rows()
        }
        orphans = []
        for key, lease_id in attachments:
            if lease_id in self._leases:
                self.attach(lease_id, key)
            else:
                orphans.append((key, lease_id))
        return orphans

    def _rows(self) -> Iterator[tuple[LeaseId, int, int]]:
        start = b""
        while rows := self._backend.scan(Table.LEASE, start, None, _ROWS_PER_SCAN):
            for key, value in rows:
                yield decode_row(key, value)
            start = rows[-1][0] + b"\0"

    # What applied entries change: the same on every member.

    def grant(self, lease_id: LeaseId, ttl_s: int, now_ns: int) -> Refusal | int:
        """Create a lease and return the TTL in seconds it got, or a refusal that changes nothing.

        Raises ValueError for id 0: the caller picks an id before it proposes.
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
            lease.expiry_ns = now_ns + ttl_s * _SECOND_NS
            self._expiries.set(lease_id, lease.expiry_ns)
            self._schedule_checkpoint(lease_id, lease, now_ns)
        return ttl_s

    def revoke(self, lease_id: LeaseId) -> Refusal | list[bytes]:
        """End a lease: remove its row and return its keys, ascending, for the caller to delete."""
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
        """Note how long the lease still had (0: its full TTL); an unknown lease is passed over.

        Only a later promotion makes use of it. persist: write it to the row, too.
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
        """Hang key on the lease, taking it off any other; raise KeyError for an unknown lease."""
        lease = self._leases[lease_id]
        old_id = self._lease_of.get(key, NO_LEASE)
        if old_id == lease_id:
            return
        if old_id != NO_LEASE:
            self.detach(key)
        self._lease_of[key] = lease_id
        held = lease.keys
        if held is None:
            lease.keys = key
        elif isinstance(held, bytes):
            lease.keys = {held, key}
        else:
            held.add(key)

    @property
    def has_keys(self) -> bool:
        """Whether any key hangs on a lease."""
        return bool(self._lease_of)

    def detach(self, key: bytes) -> None:
        """Take key off its lease, if it hangs on one."""
        lease_id = self._lease_of.pop(key, NO_LEASE)
        if lease_id == NO_LEASE:
            return
        lease = self._leases[lease_id]
        if isinstance(lease.keys, set):
            lease.keys.discard(key)
        else:
            lease.keys = None

    # What can be asked.

    def exists(self, lease_id: LeaseId) -> bool:
        """Tell whether the lease is known; an expired one is until its revoke is applied."""
        return lease_id in self._leases

    def lease_of(self, key: bytes) -> LeaseId:
        """Return the lease key hangs on, or 0."""
        return self._lease_of.get(key, NO_LEASE)

    def keys(self, lease_id: LeaseId) -> list[bytes]:
        """Return the keys of a lease, ascending; an unknown lease has none."""
        lease = self._leases.get(lease_id)
        return [] if lease is None else _keys_of(lease)

    def leases(self) -> list[LeaseId]:
        """Return all leases, the one that expires first at the front; O(n log n).

        A member that is not the primary knows no expiries and lists them by id.
        """
        if not self._primary:
            return sorted(self._leases)
        leases = self._leases
        return sorted(leases, key=lambda lease_id: (leases[lease_id].expiry_ns, lease_id))

    def time_to_live(self, lease_id: LeaseId, now_ns: int) -> Refusal | tuple[int, int]:
        """Return (remaining, granted) in whole seconds; an expired lease has 0 remaining."""
        lease = self._leases.get(lease_id)
        if lease is None:
            return LEASE_NOT_FOUND
        if not self._primary:
            return LEADER_CHANGED
        return max(lease.expiry_ns - now_ns, 0) // _SECOND_NS, lease.ttl_s

    # What the primary does.

    @property
    def is_primary(self) -> bool:
        """Whether this member counts the leases down."""
        return self._primary

    def promote(self, now_ns: int, extend_ns: int | None = None) -> None:
        """Start counting down: each lease gets its remaining time (or TTL) and extend_ns more.

        extend_ns: None means an election timeout, which covers the time without a leader. From
        1000 leases on, expiries are put off so far that no more than 750 fall within any second.
        O(n log n).
        """
        extra_ns = self._election_timeout_ns if extend_ns is None else extend_ns
        self._primary = True
        for lease in self._leases.values():
            remaining_s = lease.remaining_s if lease.remaining_s > 0 else lease.ttl_s
            lease.expiry_ns = now_ns + remaining_s * _SECOND_NS + extra_ns
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
        """Give the lease its full TTL again and return it in seconds.

        RENEW_LATER: ask again once more entries are applied. Either the lease has expired and
        its revoke is on the way (then the answer will be that it is gone), or a checkpoint of
        its remaining TTL must be cleared first (checkpoints_due asks for it), for else a new
        leader would count down from less than was promised.
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
        expiry_ns = now_ns + lease.ttl_s * _SECOND_NS
        if expiry_ns > lease.expiry_ns:
            lease.expiry_ns = expiry_ns  # its entry in the queue stays, and moves when it is due
        if lease.remaining_s > 0:
            if lease_id not in self._clears:
                self._clears.set(lease_id, now_ns)
            return RENEW_LATER
        self.renewed += 1
        return lease.ttl_s

    def due(self, now_ns: int, limit: int = _DUE_MAX) -> list[LeaseId]:
        """Return up to limit expired leases whose revoke is to be proposed.

        One whose revoke has not been applied after a request timeout is returned again.
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

        Remaining 0 clears the checkpoint of a renewed lease, and is asked for even where
        checkpoints are turned off: the row may come from a member that has them on.
        """
        proposed: list[tuple[LeaseId, int]] = []
        while len(proposed) < limit and (lease_id := self._clears.pop_due(now_ns)) is not None:
            proposed.append((lease_id, 0))
            self._clears.set(lease_id, now_ns + self._retry_ns)
        while len(proposed) < limit and (lease_id := self._checkpoints.pop_due(now_ns)) is not None:
            lease = self._leases[lease_id]
            self._schedule_checkpoint(lease_id, lease, now_ns)
            remaining_s = -((now_ns - lease.expiry_ns) // _SECOND_NS)  # rounded up
            if 0 < remaining_s < lease.ttl_s and lease_id not in self._clears:
                proposed.append((lease_id, remaining_s))
        return proposed

    def next_expiry_ns(self) -> int | None:
        """Return a time before which due and checkpoints_due have nothing; None: never.

        It may be early (a lease renewed since), never late.
        """
        queues = (self._expiries, self._checkpoints, self._clears)
        return min((at for queue in queues if (at := queue.next_ns()) is not None), default=None)

    def _schedule_checkpoint(self, lease_id: LeaseId, lease: _Lease, now_ns: int) -> None:
        interval_ns = self._checkpoint_interval_ns
        if interval_ns is not None and lease.ttl_s * _SECOND_NS > interval_ns:
            self._checkpoints.set(lease_id, now_ns + interval_ns)


def _keys_of(lease: _Lease) -> list[bytes]:
    held = lease.keys
    if held is None:
        return []
    return [held] if isinstance(held, bytes) else sorted(held)


def _spread(leases: dict[LeaseId, _Lease]) -> None:
    """Put expiries off so that no more than _EXPIRIES_PER_SECOND_MAX fall within any second."""
    order = sorted(leases, key=lambda lease_id: (leases[lease_id].expiry_ns, lease_id))
    at_ns = [leases[lease_id].expiry_ns for lease_id in order]
    for place in range(_EXPIRIES_PER_SECOND_MAX, len(order)):
        at_ns[place] = max(at_ns[place], at_ns[place - _EXPIRIES_PER_SECOND_MAX] + _SECOND_NS)
    for lease_id, expiry_ns in zip(order, at_ns, strict=True):
        leases[lease_id].expiry_ns = expiry_ns
