"""Linearizable reads without a log entry: the commit index at the time of asking, once a quorum
has confirmed that the one who was asked still leads.

    asked        r1 r2 r3 r4 r5        numbered 1, 2, 3 … as they come
    confirmed    ──────►               3: a quorum echoed 3 or more
    heartbeat carries 5                the number of reads asked so far

One heartbeat round confirms every read before it; answers leave in the order of asking. Reads that
come before the leader has committed in its own term wait: until then it may not know of commits its
predecessor made (Raft 6.4, step 1).

It does not send anything and does not know who votes.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

CONTEXT_BYTES: Final = 8  # of a heartbeat's context: the number, little-endian


class ReadRequest(NamedTuple):
    """One request to read: by whom (0: this member), and the mark to answer it with."""

    from_: int
    context: bytes


@dataclass(slots=True)
class ReadIndex:
    """The reads a leader holds; a new one each term."""

    postponed: list[ReadRequest] = field(default_factory=list)  # nothing committed in this term
    unconfirmed: list[tuple[int, ReadRequest]] = field(default_factory=list)  # (commit, request)
    confirmed_count: int = 0  # reads answered so far, since the term began
    acked: dict[int, int] = field(default_factory=dict)  # member → the number it echoed

    @property
    def held_count(self) -> int:
        """How many reads wait."""
        return len(self.postponed) + len(self.unconfirmed)

    @property
    def asked_count(self) -> int:
        """The number of the last read asked for."""
        return self.confirmed_count + len(self.unconfirmed)

    def heartbeat_context(self) -> bytes:
        """Return what heartbeats carry: empty unless a read waits to be confirmed."""
        if not self.unconfirmed:
            return b""
        return self.asked_count.to_bytes(CONTEXT_BYTES, "little")

    def acknowledge(self, member: int, context: bytes) -> bool:
        """Take a member's echo; False if it is none that was ever sent."""
        if len(context) != CONTEXT_BYTES:
            return False
        number = int.from_bytes(context, "little")
        if number > self.asked_count:
            return False
        self.acked[member] = max(self.acked.get(member, 0), number)
        return True

    def release(self, confirmed_count: int) -> list[tuple[int, ReadRequest]]:
        """Return the reads up to this number that were not confirmed before."""
        count = min(confirmed_count - self.confirmed_count, len(self.unconfirmed))
        if count <= 0:
            return []
        released = self.unconfirmed[:count]
        del self.unconfirmed[:count]
        self.confirmed_count += count
        return released
