"""Messages from and to the other members, and the snapshots that go with some of them.

    inbox.messages ─► step                                    (first in a turn)
    Ready ─► send early │ the log is saved │ send late
                  └ SNAP waits ─► settle: after a commit of the database ─► send_snapshot
    settle: commit notifications, unless an append with the same commit index is expected

A SNAP message names the applied index at which raft made it. What is sent is the database as of a
later commit, and the message is changed to that index. While a snapshot is being sent, and some
time after, the log retains the entries after it: otherwise the member would need another one at
once.

Connections are not opened here: that is PeerLinks.
"""

from typing import TYPE_CHECKING, Final

from kvstack.component.units import MILLISECOND_NS, SECOND_NS
from kvstore.batch import Inbox
from kvstore.failpoints import armed, hit
from kvstore.node.disk_budget import DiskBudget
from kvstore.node.parts import Parts
from kvstore.raft.model import Message, MessageType, Snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

_RETAINED_AFTER_NS: Final = 30 * SECOND_NS
_NOTIFICATION_DELAY_NS: Final = MILLISECOND_NS
_SINGLE_APPENDS_MIN: Final = 3  # in a row, until another one is expected
_LATE_ACKNOWLEDGEMENTS_WAIT_NS: Final = MILLISECOND_NS
_FORWARDED: Final = frozenset({MessageType.PROP, MessageType.READ_INDEX})
_WRITTEN: Final = frozenset({MessageType.PROP, MessageType.APP})
_FORWARDED_NS: Final = 100 * MILLISECOND_NS  # most requests are committed within that time


class Exchange:
    """One member's messages and snapshots to and from the others."""

    def __init__(self, parts: Parts, budget: DiskBudget) -> None:
        self._parts = parts
        self._budget = budget
        self._due: dict[int, Message] = {}  # SNAP messages to send after the next commit, by member
        self._in_flight: dict[int, int] = {}  # member → index of the snapshot being sent to it
        self._retained: list[tuple[int, int]] = []  # (until when, index the log must reach back to)
        # Since when the others lack a commit index; 0: appends carried all. A notification does not
        # reset it: it also measures how long after the commit the next append comes.
        self._owing_since_ns = 0
        self._single_appends = 0  # the last appends, of one entry each, each soon after a commit
        self._defers_wakeups = False
        self._forwarded_ns = -_FORWARDED_NS  # when a member last forwarded a client's request
        self._has_received = False
        self._failed: list[int] = []  # members whose snapshot could not be sent now
        if parts.state.membership.members or parts.replication.remotes:
            self.update_links()

    # In.

    @property
    def has_failed(self) -> bool:
        """Whether there are failed snapshots to report to raft."""
        return bool(self._failed)

    def receive(self, inbox: Inbox) -> None:
        """Give raft the messages and reports of the inbox."""
        raft = self._parts.raft
        for message in inbox.messages:
            if armed and hit("raftDropHeartbeat") is not None:
                continue
            if self._budget.is_counting and not self._fits(message):
                continue  # as if it was lost: it is sent again, and fits once there is space
            if message.type == MessageType.SNAP:
                self._has_received = True
            elif message.type in _FORWARDED:
                self._forwarded_ns = inbox.now_ns
            raft.step(message)
        for member in inbox.unreachable:
            raft.report_unreachable(member)
        if inbox.reached:
            raft.report_reached()
        for member, arrived in inbox.snapshots_sent:
            index = self._in_flight.pop(member, None)
            if index is not None and arrived:
                self._retained.append((inbox.now_ns + _RETAINED_AFTER_NS, index))
            raft.report_snapshot(member, ok=arrived)
        if self._failed:
            for member in self._failed:
                raft.report_snapshot(member, ok=False)
            self._failed = []

    def _fits(self, message: Message) -> bool:
        """Return whether the disk has room for what a message asks to write."""
        if message.type not in _WRITTEN or not message.entries:
            return True
        return self._budget.admits_entries(message.entries)

    def drop_received(self) -> None:
        """Delete databases of received snapshots that raft did not use."""
        if self._has_received:
            self._has_received = False
            self._parts.replication.snapshots.drop_received(self._parts.raft.committed)

    # Out.

    def send_early(self, messages: list[Message], now_ns: int) -> None:
        """Send what may be sent before the log is saved."""
        count = max([len(message.entries) for message in messages])
        if count:
            is_in_time = now_ns - self._owing_since_ns <= _NOTIFICATION_DELAY_NS
            self._single_appends = self._single_appends + 1 if is_in_time and count == 1 else 0
            self._owing_since_ns = 0
        self.send(messages)

    def notify_commits(self, now_ns: int) -> int | None:
        """Send the others the commit index, or return when to: the next append may carry it.

        A message without entries costs each follower a turn: one for every write, if one client
        writes after the answer to its last write. Readers at followers see the delay, so it is made
        only while such appends come in time, and not while followers forward requests. Larger
        appends follow so closely that a delay would only make followers apply later.
        """
        raft = self._parts.raft
        if not raft.owes_commit_notification:
            return None
        if not self._owing_since_ns:
            self._owing_since_ns = now_ns
        due_ns = self._owing_since_ns + _NOTIFICATION_DELAY_NS
        expects_append = self._single_appends >= _SINGLE_APPENDS_MIN
        if expects_append and self._forwarded_ns + _FORWARDED_NS <= now_ns < due_ns:
            return due_ns
        self.send(raft.commit_notifications())
        return None

    def defer_wakeups(self, now_ns: int, *, is_waiting: bool) -> None:
        """Let late acknowledgements of what is committed cause no turn of their own.

        is_waiting: whether something else depends on the members' messages.
        """
        defers = (
            not is_waiting
            and self._parts.raft.awaits_late_acknowledgements
            and self._forwarded_ns + _FORWARDED_NS <= now_ns
        )
        if defers or self._defers_wakeups:
            self._defers_wakeups = defers
            self._parts.replication.peers.defer_wakeups(
                _LATE_ACKNOWLEDGEMENTS_WAIT_NS if defers else 0
            )

    def send(self, messages: list[Message]) -> None:
        """Send raft's messages; snapshots wait for a commit of the database."""
        for message in messages:
            if message.type == MessageType.SNAP:
                break
        else:
            self._parts.replication.peers.send(messages)
            return
        for message in messages:
            if message.type == MessageType.SNAP:
                self._due[message.to] = message
        self._parts.replication.peers.send(
            [each for each in messages if each.type != MessageType.SNAP]
        )

    @property
    def wants_commit(self) -> bool:
        """Whether a snapshot waits for the database on disk to be up to date."""
        return bool(self._due)

    def send_snapshots(self) -> None:
        """Send the waiting snapshots: everything applied has just been committed."""
        if not self._due:
            return
        due, self._due = self._due, {}
        parts = self._parts
        raft = parts.raft
        metadata = raft.create_snapshot_metadata(raft.applied)
        snapshot = Snapshot(metadata, parts.replication.snapshots.describe(parts.state.membership))
        for member, message in due.items():
            if not raft.is_leader or message.term != raft.term:
                continue  # of an earlier term: another member leads now
            if member in self._in_flight:
                self._failed.append(member)
                continue
            self._in_flight[member] = metadata.index
            message.snapshot = snapshot
            parts.logger.info(
                "sending database snapshot", to=f"{member:x}", snapshot_index=metadata.index
            )
            parts.replication.peers.send_snapshot(message)

    def retained_index(self, now_ns: int) -> int | None:
        """Return the index after which entries must stay in memory; None: there is none."""
        if not self._retained and not self._in_flight:
            return None
        if self._retained:
            self._retained = [each for each in self._retained if each[0] > now_ns]
        indexes = [*self._in_flight.values(), *(index for _, index in self._retained)]
        return min(indexes, default=None)

    # The members.

    def update_links(self) -> None:
        """Give the links the list of the other members, after a change of it was applied."""
        parts = self._parts
        members, own_id = parts.state.membership.members, parts.member_id
        if own_id in members:
            parts.replication.remotes = {}  # the others are known from the log now
        others: dict[int, Sequence[str]] = {
            each: urls
            for each, urls in parts.replication.remotes.items()
            if each not in parts.state.membership.removed
        }
        for each, member in members.items():
            if each != own_id:
                others[each] = member.peer_urls
        for each in [each for each in self._in_flight if each not in others]:
            del self._in_flight[each]
        parts.replication.peers.set_members(others)

    def active_count(self) -> int:
        """Return how many of the others are connected."""
        parts = self._parts
        members = parts.state.membership.members or parts.replication.remotes
        return sum(
            each != parts.member_id and parts.replication.peers.active_since_ns(each) is not None
            for each in members
        )
