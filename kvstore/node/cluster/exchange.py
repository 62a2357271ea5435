"""Messages from and to the other members, and the snapshots that go with some of them.

    inbox.messages ─► step                                    (first of all in a turn)
    Ready ─► send early │ the log is saved │ send late
                  └ SNAP kept ─► settle: after a commit of the database ─► send_snapshot
    settle: word of commits, unless an append that says as much is awaited

A SNAP message that raft made names the position it stood at then; what is sent is the database as
of a later commit, and the message is changed to name that. While one is on its way, and a while
after, the log keeps what follows it: else the member would need another at once.

It opens no connection: that is PeerLinks.
"""

from typing import TYPE_CHECKING, Final

from kvstore.batch import Inbox
from kvstore.failpoints import armed, hit
from kvstore.node.limits import MILLISECOND_NS, SECOND_NS
from kvstore.node.parts import Parts
from kvstore.raft.model import Message, MessageType, Snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEPT_AFTER_NS: Final = 30 * SECOND_NS
_WORD_WAITS_NS: Final = MILLISECOND_NS
_LONE_APPENDS_MIN: Final = 3  # until the next is expected
_STRAGGLERS_WAIT_NS: Final = MILLISECOND_NS
_PASSED_ON: Final = frozenset({MessageType.PROP, MessageType.READ_INDEX})
_PASSED_ON_NS: Final = 100 * MILLISECOND_NS  # it will be committed by then, mostly


class Exchange:
    """What one member says to the others and hears from them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._due: dict[int, Message] = {}  # SNAP messages to send after the next commit, by member
        self._on_their_way: dict[int, int] = {}  # member → index of the snapshot sent to it
        self._kept: list[tuple[int, int]] = []  # (until when, index the log must reach back to)
        # When a commit was first not told; 0: appends told all. Word of it leaves this as it is: it
        # is to be known how long the next append takes.
        self._owing_since_ns = 0
        self._lone_appends = 0  # of one entry each, the last ones, each soon after such a commit
        self._rests = False
        self._passed_on_ns = -_PASSED_ON_NS  # when a member passed on what its clients asked
        self._has_received = False
        self._failed: list[int] = []  # members whose snapshot could not be sent now
        if parts.membership.members or parts.remotes:
            self.name_members()

    # In.

    def take_in(self, inbox: Inbox) -> None:
        """Hand raft what came from other members."""
        raft = self._parts.raft
        for message in inbox.messages:
            if armed and hit("raftDropHeartbeat") is not None:
                continue
            if message.type == MessageType.SNAP:
                self._has_received = True
            elif message.type in _PASSED_ON:
                self._passed_on_ns = inbox.now_ns
            raft.step(message)
        for member in inbox.unreachable:
            raft.report_unreachable(member)
        if inbox.reached:
            raft.report_reached()
        for member, arrived in inbox.snapshots_sent:
            index = self._on_their_way.pop(member, None)
            if index is not None and arrived:
                self._kept.append((inbox.now_ns + _KEPT_AFTER_NS, index))
            raft.report_snapshot(member, ok=arrived)
        if self._failed:
            for member in self._failed:
                raft.report_snapshot(member, ok=False)
            self._failed = []

    def drop_received(self) -> None:
        """Let go of databases that came with snapshots raft had no use for."""
        if self._has_received:
            self._has_received = False
            self._parts.snapshots.drop_received(self._parts.raft.committed)

    # Out.

    def send_early(self, messages: list[Message], now_ns: int) -> None:
        """Send what may leave before the sync of a round."""
        count = max([len(message.entries) for message in messages])
        if count:
            is_in_time = now_ns - self._owing_since_ns <= _WORD_WAITS_NS
            self._lone_appends = self._lone_appends + 1 if is_in_time and count == 1 else 0
            self._owing_since_ns = 0
        self.send(messages)

    def tell_commits(self, now_ns: int) -> int | None:
        """Tell the others how far is committed, or return when to: an append may do it before.

        Without entries it costs them a turn, and where one client writes after the other's answer,
        one for every write. The delay is seen by readers at followers; so it is made only as long
        as such appends come in time, and not while followers pass on what their clients ask.
        Larger appends come so close that followers would only apply later.
        """
        raft = self._parts.raft
        if not raft.owes_word:
            return None
        if not self._owing_since_ns:
            self._owing_since_ns = now_ns
        due_ns = self._owing_since_ns + _WORD_WAITS_NS
        awaits_append = self._lone_appends >= _LONE_APPENDS_MIN
        if awaits_append and self._passed_on_ns + _PASSED_ON_NS <= now_ns < due_ns:
            return due_ns
        self.send(raft.tell_commits())
        return None

    def rest(self, now_ns: int, *, is_waiting: bool) -> None:
        """Have the last acknowledgements of what is committed wait for something worth a turn.

        is_waiting: whether something else hangs on what the members say.
        """
        rests = (
            not is_waiting
            and self._parts.raft.awaits_stragglers
            and self._passed_on_ns + _PASSED_ON_NS <= now_ns
        )
        if rests or self._rests:
            self._rests = rests
            self._parts.peers.rest(_STRAGGLERS_WAIT_NS if rests else 0)

    def send(self, messages: list[Message]) -> None:
        """Send what raft wants sent now; snapshots wait for a commit."""
        for message in messages:
            if message.type == MessageType.SNAP:
                break
        else:
            self._parts.peers.send(messages)
            return
        for message in messages:
            if message.type == MessageType.SNAP:
                self._due[message.to] = message
        self._parts.peers.send([each for each in messages if each.type != MessageType.SNAP])

    @property
    def wants_commit(self) -> bool:
        """Whether a snapshot waits for the database on disk to be up to date."""
        return bool(self._due)

    def send_snapshots(self) -> None:
        """Send what waits: everything applied has just been committed."""
        if not self._due:
            return
        due, self._due = self._due, {}
        parts = self._parts
        raft = parts.raft
        metadata = raft.create_snapshot_metadata(raft.applied)
        snapshot = Snapshot(metadata, parts.snapshots.describe(parts.membership))
        for member, message in due.items():
            if not raft.is_leader or message.term != raft.term:
                continue  # another's business by now
            if member in self._on_their_way:
                self._failed.append(member)
                continue
            self._on_their_way[member] = metadata.index
            message.snapshot = snapshot
            parts.logger.info(
                "sending database snapshot", to=f"{member:x}", snapshot_index=metadata.index
            )
            parts.peers.send_snapshot(message)

    def kept_index(self, now_ns: int) -> int | None:
        """Return the index the log must not be cut off after; None: wherever."""
        if not self._kept and not self._on_their_way:
            return None
        if self._kept:
            self._kept = [each for each in self._kept if each[0] > now_ns]
        indexes = [*self._on_their_way.values(), *(index for _, index in self._kept)]
        return min(indexes, default=None)

    # Who they are.

    def name_members(self) -> None:
        """Tell the links who the other members are, after an applied change of them."""
        parts = self._parts
        members, own_id = parts.membership.members, parts.member_id
        if own_id in members:
            parts.remotes = {}  # this member knows the others from the log by now
        others: dict[int, Sequence[str]] = {
            each: urls
            for each, urls in parts.remotes.items()
            if each not in parts.membership.removed
        }
        for each, member in members.items():
            if each != own_id:
                others[each] = member.peer_urls
        for each in [each for each in self._on_their_way if each not in others]:
            del self._on_their_way[each]
        parts.peers.set_members(others)

    def active_count(self) -> int:
        """Return how many of the others are connected."""
        parts = self._parts
        members = parts.membership.members or parts.remotes
        return sum(
            each != parts.member_id and parts.peers.active_since_ns(each) is not None
            for each in members
        )
