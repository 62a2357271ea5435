"""A member whose data is known to differ from the others' serves none of it.

Its log is sound, so it goes on voting and taking entries; only what clients would read or write is
refused, with a text that tells them to go elsewhere and the operator what to do. The code is
UNAVAILABLE, which makes clients try another member.

Who is fenced off is in the alarms, so it outlives a restart; see kvstore.node.cluster.corruption.
"""

from typing import Final

from kvstore.errors import Code, Refusal
from kvstore.wire import rpc

# What would show or change data. Status, members, alarms, hashes and leadership stay.
REFUSED: Final = frozenset(
    {
        rpc.RANGE,
        rpc.RANGE_STREAM,
        rpc.PUT,
        rpc.DELETE_RANGE,
        rpc.TXN,
        rpc.COMPACT,
        rpc.LEASE_GRANT,
        rpc.LEASE_REVOKE,
        rpc.LEASE_TIME_TO_LIVE,
        rpc.LEASE_LEASES,
        rpc.SNAPSHOT,
        rpc.WATCH,
        rpc.LEASE_KEEP_ALIVE,
        rpc.LOCK,
        rpc.UNLOCK,
        rpc.ELECTION_CAMPAIGN,
        rpc.ELECTION_PROCLAIM,
        rpc.ELECTION_LEADER,
        rpc.ELECTION_OBSERVE,
        rpc.ELECTION_RESIGN,
    }
)


class Fence:
    """Open, or the refusal every call meets that touches data."""

    def __init__(self) -> None:
        self.refusal: Refusal | None = None

    def close(self, member_id: int) -> None:
        """Let nobody at this member's data."""
        self.refusal = Refusal(
            Code.UNAVAILABLE,
            f"etcdserver: member {member_id:x} is fenced off: its data differs from the other "
            "members'; it must be rebuilt from them",
        )

    def open(self) -> None:
        """Let everybody at it again."""
        self.refusal = None
