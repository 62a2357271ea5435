"""Linearizable reads without a log entry.

A read may be served at the commit index of the time of its request, once a quorum has confirmed
that the leader was still leader then.

    requested    r1 r2 r3 r4 r5        numbered 1, 2, 3 … in the order of arrival
    confirmed    ──────►               3: a quorum echoed 3 or more
    heartbeat carries 5                the number of reads requested so far

One heartbeat round confirms every read before it; reads are released in the order of arrival. Reads
that arrive before the leader has committed in its own term wait: until then it may not know all
commits of its predecessors (Raft 6.4, step 1).

This is only the bookkeeping: it sends nothing and does not know the voters.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

CONTEXT_BYTES: Final = 8  # of a heartbeat's context: the number, little-endian


class ReadRequest(NamedTuple):
    """One request to read: of which member (0: this one), and the context to answer it with."""

    from_: int
    context: bytes


@dataclass(slots=True)
class ReadIndex:
    """The reads waiting at a leader; a new one each term."""

    postponed: list[ReadRequest] = field(default_factory=list)  # nothing committed in this term
    unconfirmed: list[tuple[int, ReadRequest]] = field(default_factory=list)  # (commit, request)
    confirmed_count: int = 0  # reads released since the term began
    acked: dict[int, int] = field(default_factory=dict)  # member → the number it echoed

    @property
    def waiting_count(self) -> int:
        """How many reads wait."""
        return len(self.postponed) + len(self.unconfirmed)

    @property
    def requested_count(self) -> int:
        """The number of the last read requested."""
        return self.confirmed_count + len(self.unconfirmed)

    def heartbeat_context(self) -> bytes:
        """Return the context of heartbeats: empty unless a read waits to be confirmed."""
        if not self.unconfirmed:
            return b""
        return self.requested_count.to_bytes(CONTEXT_BYTES, "little")

    def acknowledge(self, member: int, context: bytes) -> bool:
        """Record a member's echo of a context; False if that context was never sent."""
        if len(context) != CONTEXT_BYTES:
            return False
        number = int.from_bytes(context, "little")
        if number > self.requested_count:
            return False
        self.acked[member] = max(self.acked.get(member, 0), number)
        return True

    def release(self, confirmed_count: int) -> list[tuple[int, ReadRequest]]:
        """Remove and return the reads up to this number."""
        count = min(confirmed_count - self.confirmed_count, len(self.unconfirmed))
        if count <= 0:
            return []
        released = self.unconfirmed[:count]
        del self.unconfirmed[:count]
        self.confirmed_count += count
        return released
