"""What the node needs of the outside: the log on disk, snapshot files, peers.

Each is given at construction; the simulator gives its own. A port's call either did what it says
or raised StorageFatalError, after which the node must not be used again.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from kvstore.apply.membership import Membership
from kvstore.raft.model import Entry, HardState, Message, Snapshot, SnapshotMetadata


class LogFile(Protocol):
    """The write-ahead log."""

    def save(self, hard_state: HardState | None, entries: Sequence[Entry], *, sync: bool) -> None:
        """Append entries, then the state if given; with sync, return once they are durable."""
        ...


class SnapshotKeeper(Protocol):
    """Marks in the log from which a restart may begin, and the files that go with them.

    A leader's snapshot comes in two parts: its database, which becomes a fresh state beside the
    current one (`storage/snapshots/received.py`), then the SNAP message. The node takes it:

        record(snapshot) ─► log.save(its commit index, sync) ─► install(index)

    A crash before the save is done leaves the old state, one after it the new: the boot installs
    what the log names and the database is behind of.
    """

    def save(self, metadata: SnapshotMetadata, membership: Membership) -> None:
        """Write the snapshot file and its record in the log, synced; free older segments."""
        ...

    def describe(self, membership: Membership) -> bytes:
        """Return what a snapshot's data is: the member list as members up to 3.6 read it."""
        ...

    def record(self, snapshot: Snapshot) -> None:
        """Write a received snapshot's file and its record in the log, synced."""
        ...

    def install(self, index: int) -> None:
        """Put the state received with the snapshot at index in the place of the current one.

        Rows that were not committed are gone; durable on return. Frees older log segments.
        """
        ...

    def drop_received(self, up_to_index: int) -> None:
        """Delete the states received with snapshots up to this index that were not installed."""
        ...

    def purge(self) -> None:
        """Delete log segments and snapshot files beyond the configured number."""
        ...


class PeerLinks(Protocol):
    """The way to the other members. Nothing here waits, and nothing here fails.

    A message whose link is down or full is dropped, and the member told in a later
    `inbox.unreachable`. A SNAP message is never dropped silently: how its sending ended comes in
    `inbox.snapshots_sent`. No message is delivered twice: a proposal that was would be applied
    twice.
    """

    def send(self, messages: Sequence[Message]) -> None:
        """Send what raft wants sent, except snapshots."""
        ...

    def send_snapshot(self, message: Message) -> None:
        """Stream the database as it is committed right now, with this SNAP message before it.

        The message's snapshot names the applied index of that very commit.
        """
        ...

    def set_members(self, peers: Mapping[int, Sequence[str]]) -> None:
        """Take the other members' peer URLs by id; links to members not named are closed."""
        ...

    def rest(self, rest_ns: int) -> None:
        """Take note that for so long nothing the members may say need end a sleep; 0: it must.

        It holds for one sleep. What they have said is taken in by every turn all the same.
        """
        ...

    def active_since_ns(self, member_id: int) -> int | None:
        """Since when (monotonic) the member is connected without a break; None: it is not."""
        ...


Backlog: TypeAlias = Mapping[int, int]
