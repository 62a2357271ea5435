"""What the node needs from outside: the log on disk, snapshot files, links to peers.

Each is an argument of the constructor; the simulator has its own. A call of a port either succeeds
or raises StorageFatalError, after which the node must not be used again.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from kvstore.apply.membership import Membership
from kvstore.apply.quota import NO_LIMIT_BYTES
from kvstore.raft.model import Entry, HardState, Message, Snapshot, SnapshotMetadata


class LogFile(Protocol):
    """The write-ahead log."""

    def save(self, hard_state: HardState | None, entries: Sequence[Entry], *, sync: bool) -> None:
        """Append entries, then the state if given; with sync, return once they are durable."""
        ...

    def start_save(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        """Begin a save that finish_save ends, while the disk works; there is one at a time."""
        ...

    def finish_save(self) -> None:
        """Return once the save that start_save began is durable."""
        ...


class SnapshotKeeper(Protocol):
    """Snapshot records in the log, from which a restart may begin, and their files.

    A leader's snapshot comes in two parts: its database, which becomes a new state beside the
    current one (`storage/snapshots/received.py`), then the SNAP message. The node installs it:

        record(snapshot) ─► log.save(its commit index, sync) ─► install(index)

    A crash before the save is done leaves the old state, one after it the new: a start installs the
    snapshot that the log names if the database is older.
    """

    def save(self, metadata: SnapshotMetadata, membership: Membership) -> bool:
        """Write the snapshot file and its record in the log, synced; free older segments.

        False: it cannot be done now, and nothing has changed; try again later.
        """
        ...

    def describe(self, membership: Membership) -> bytes:
        """Return a snapshot's data: the member list as members up to 3.6 read it."""
        ...

    def record(self, snapshot: Snapshot) -> None:
        """Write a received snapshot's file and its record in the log, synced."""
        ...

    def install(self, index: int) -> None:
        """Replace the current state with the one received with the snapshot at index.

        Uncommitted rows are lost; durable on return. Frees older log segments.
        """
        ...

    def drop_received(self, up_to_index: int) -> None:
        """Delete the states received with snapshots up to this index that were not installed."""
        ...

    def purge(self) -> None:
        """Delete log segments and snapshot files beyond the configured number."""
        ...


class DiskRoom(Protocol):
    """Whether the disk has the space that the log and the database keep back."""

    @property
    def is_short(self) -> bool:
        """Whether there was too little space at the last check."""
        ...

    @property
    def shortage(self) -> str:
        """The missing space as a text, empty if there is enough."""
        ...

    @property
    def log_bytes(self) -> int:
        """By how much the log may grow within the space that is reserved for it."""
        ...

    @property
    def rows_bytes(self) -> int:
        """By how much the rows may grow within reserved space, as of the database's last commit."""
        ...

    @property
    def has_raised(self) -> bool:
        """Whether this member's NOSPACE alarm was raised because of the disk; survives restarts."""
        ...

    def note_raised(self, has_raised: bool) -> None:  # noqa: FBT001 - a setter
        """Set has_raised."""
        ...

    def check(self) -> bool:
        """Try to reserve the missing space again; return is_short."""
        ...


class AmpleRoom:
    """DiskRoom of a member without a disk."""

    is_short = False
    shortage = ""
    log_bytes = rows_bytes = NO_LIMIT_BYTES
    has_raised = False

    def note_raised(self, has_raised: bool) -> None:  # noqa: FBT001 - a setter
        """Do nothing."""

    def check(self) -> bool:
        """Return False."""
        return False


class PeerLinks(Protocol):
    """The links to the other members. No call waits, and none fails.

    A message whose link is down or full is dropped, and its receiver listed in a later
    `inbox.unreachable`. A SNAP message is never dropped silently: `inbox.snapshots_sent` has the
    result. No message is delivered twice: a proposal would be applied twice.
    """

    def send(self, messages: Sequence[Message]) -> None:
        """Send raft's messages, except snapshots."""
        ...

    def send_snapshot(self, message: Message) -> None:
        """Stream the database as it is committed now, after this SNAP message.

        The message's snapshot names the applied index of that commit.
        """
        ...

    def set_members(self, peers: Mapping[int, Sequence[str]]) -> None:
        """Set the other members' peer URLs by id; links to all others are closed."""
        ...

    def defer_wakeups(self, for_ns: int) -> None:
        """Let no message of a member end the driver's next sleep for so long; 0: let it.

        It applies to one sleep. Every turn reads the messages that have arrived all the same.
        """
        ...

    def active_since_ns(self, member_id: int) -> int | None:
        """Since when (monotonic) the member is connected without a break; None: it is not."""
        ...


Backlog: TypeAlias = Mapping[int, int]
