"""A network in memory between the members of a test cluster, with the faults that a test sets.

    send ──► dropped? ──► encoded ──► delay (drawn) ──► due(now) ──► decoded, in a member's inbox

Messages are bytes on their way, so nothing is shared between members. Proposals and other messages
of clients are never duplicated, as PeerLinks demands. A member's process that ends loses what was
on its way to it. Snapshots travel as one piece: the message, and the rows of the sender's last
commit, which arrive as a received state beside the receiver's own. They take time by their size,
break off where either end goes, and may arrive without their sender ever hearing of it.
"""

import heapq
import random
from collections.abc import Mapping, Sequence
from typing import Final

from kvstore.raft.model import Message, MessageType
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.wire.raft_codec import decode_message, encode_message

MS: Final = 1_000_000
_ONCE: Final = frozenset({MessageType.PROP, MessageType.READ_INDEX})


class Network:
    """All links of one cluster; members are known by their raft ids."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_ns = 0
        self.delay_ns = (MS // 2, 2 * MS)  # drawn between
        self.is_ordered = False  # what one sends another arrives in order, as on one connection
        self.slow_ns: dict[tuple[int, int], int] = {}  # (from, to) → delay on top
        self.snapshot_ns = 20 * MS
        self.snapshot_byte_ns = 0  # on top, for each byte of its rows
        self.snapshot_loss = 0.0  # share of snapshots that break off on their way
        self.snapshot_doubt = 0.0  # share of those that arrive and are said to have not
        self.loss = 0.0  # share of messages
        self.duplication = 0.0
        self.cut: set[tuple[int, int]] = set()  # (from, to) where nothing goes through
        self.down: set[int] = set()  # members whose process does not run
        self.links: dict[int, Links] = {}
        self.keeps_sent = True
        self.sent: list[tuple[int, Message]] = []  # (from, message), of all time, if kept
        self._due: list[tuple[int, int, int, int, bytes, MemoryBackend | None]] = []
        self._count = 0
        self._last_ns: dict[tuple[int, int], int] = {}  # (from, to) → when the last arrives
        self._up_since: dict[frozenset[int], int] = {}

    def partition(self, *groups: Sequence[int]) -> None:
        """Let only members of one group reach each other, both ways."""
        self.cut = {
            (a, b)
            for mine in groups
            for other in groups
            if mine is not other
            for a in mine
            for b in other
        }
        self._note_changes()

    def heal(self) -> None:
        """Let all reach all."""
        self.cut = set()
        self._note_changes()

    def set_down(self, member: int, *, is_down: bool) -> None:
        """Note that a member's process ended or began."""
        (self.down.add if is_down else self.down.discard)(member)
        if is_down:
            self._break_off(member)
        self._note_changes()

    def _break_off(self, member: int) -> None:
        """Lose what is on its way to a member, and the snapshots it sends."""
        left = []
        for each in self._due:
            _, _, from_, to, _, rows = each
            if to == member or (from_ == member and rows is not None):
                self._snapshot_ended(from_, to, rows, arrived=False)
            else:
                left.append(each)
        self._due = left
        heapq.heapify(left)

    def _snapshot_ended(
        self, from_: int, to: int, rows: MemoryBackend | None, *, arrived: bool
    ) -> None:
        if rows is not None and from_ not in self.down:
            self.links[from_].snapshots_sent.append((to, arrived))

    def is_up(self, a: int, b: int) -> bool:
        """Tell whether two members have a connection."""
        return {a, b} <= self.links.keys() and not (
            {(a, b), (b, a)} & self.cut or {a, b} & self.down
        )

    def _note_changes(self) -> None:
        for a in self.links:
            for b in self.links:
                pair = frozenset((a, b))
                if a == b or not self.is_up(a, b):
                    self._up_since.pop(pair, None)
                else:
                    self._up_since.setdefault(pair, self.now_ns)

    def active_since_ns(self, a: int, b: int) -> int | None:
        """Return since when two members are connected."""
        return self._up_since.get(frozenset((a, b)))

    def send(self, from_: int, message: Message, rows: MemoryBackend | None = None) -> bool:
        """Take a message; False: it was dropped, and the sender can know."""
        to = message.to
        if self.keeps_sent:
            self.sent.append((from_, message))
        if (from_, to) in self.cut or to in self.down or to not in self.links:
            return False
        if rows is None and self.rng.random() < self.loss:
            return True
        times = 1
        if message.type not in _ONCE and self.rng.random() < self.duplication:
            times = 2
        for _ in range(times):
            at_ns = self.now_ns + self._takes_ns(from_, to, rows)
            if self.is_ordered and rows is None:
                at_ns = self._last_ns[from_, to] = max(at_ns, self._last_ns.get((from_, to), 0))
            self._count += 1
            entry = (at_ns, self._count, from_, to, encode_message(message), rows)
            heapq.heappush(self._due, entry)
        return True

    def _takes_ns(self, from_: int, to: int, rows: MemoryBackend | None) -> int:
        """Draw how long something is on its way."""
        slow_ns = self.slow_ns.get((from_, to), 0)
        if rows is None:
            return slow_ns + self.rng.randint(*self.delay_ns)
        return slow_ns + self.snapshot_ns + self.snapshot_byte_ns * rows.size_in_use_bytes()

    def next_ns(self) -> int | None:
        """Return when the next message arrives."""
        return self._due[0][0] if self._due else None

    def arrived(self) -> list[tuple[int, int, Message, MemoryBackend | None]]:
        """Return (from, to, message, rows) of what has arrived by now."""
        found = []
        while self._due and self._due[0][0] <= self.now_ns:
            _, _, from_, to, data, rows = heapq.heappop(self._due)
            is_lost = rows is not None and self.rng.random() < self.snapshot_loss
            if is_lost or (from_, to) in self.cut:
                self._snapshot_ended(from_, to, rows, arrived=False)
                continue
            found.append((from_, to, decode_message(data), rows))
            self.links[to].strangers.add(from_)
            if rows is not None:
                is_told = self.rng.random() >= self.snapshot_doubt
                self._snapshot_ended(from_, to, rows, arrived=is_told)
        return found


class Links:
    """`PeerLinks` of one member."""

    def __init__(self, network: Network, member_id: int) -> None:
        self._network = network
        self._member_id = member_id
        self.members: dict[int, tuple[str, ...]] = {}
        self.strangers: set[int] = set()  # heard from, and so with an address, members or not
        self.unreachable: list[int] = []
        self.snapshots_sent: list[tuple[int, bool]] = []
        self.rows: MemoryBackend | None = None  # the member's own state
        self.deferred_ns = 0  # as it was last told
        network.links[member_id] = self

    def send(self, messages: Sequence[Message]) -> None:
        """See PeerLinks."""
        for message in messages:
            is_known = message.to in self.members or message.to in self.strangers
            reached = is_known and self._network.send(self._member_id, message)
            if not reached and message.to not in self.unreachable:
                self.unreachable.append(message.to)

    def send_snapshot(self, message: Message) -> None:
        """See PeerLinks."""
        assert self.rows is not None
        assert not self.rows.pending_ops(), "a snapshot of rows that are not committed"
        rows = self.rows.copy_committed()
        if message.to not in self.members or not self._network.send(self._member_id, message, rows):
            self.snapshots_sent.append((message.to, False))

    def set_members(self, peers: Mapping[int, Sequence[str]]) -> None:
        """See PeerLinks."""
        self.members = {member: tuple(urls) for member, urls in peers.items()}

    def defer_wakeups(self, for_ns: int) -> None:
        """See PeerLinks; messages come when they come."""
        self.deferred_ns = for_ns

    def active_since_ns(self, member_id: int) -> int | None:
        """See PeerLinks."""
        if member_id not in self.members:
            return None
        return self._network.active_since_ns(self._member_id, member_id)
