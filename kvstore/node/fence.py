"""Fences off a member whose data is known to differ from the others'.

Its log is correct, so it still votes and appends entries; only clients' reads and writes are
refused, with a text that says what to do. The code is UNAVAILABLE, on which clients
try another member.

The CORRUPT alarm decides, so the fence survives a restart; see kvstore.node.cluster.corruption.
"""

from typing import Final

from kvstore.errors import Code, Refusal
from kvstore.wire import rpc

# The methods that show or change data. Status, members, alarms, hashes and leader transfers stay.
REFUSED: Final = rpc.COMPOSED | frozenset(
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
    }
)


class Fence:
    """Open, or with the refusal of every call that needs data."""

    def __init__(self) -> None:
        self.refusal: Refusal | None = None

    def close(self, member_id: int) -> None:
        """Refuse all access to this member's data."""
        self.refusal = Refusal(
            Code.UNAVAILABLE,
            f"etcdserver: member {member_id:x} is fenced off: its data differs from the other "
            "members'; it must be rebuilt from them",
        )

    def open(self) -> None:
        """Allow access again."""
        self.refusal = None
