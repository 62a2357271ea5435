"""A leader's view of one follower's log, and how much may be sent to it.

    PROBE      the position is a guess: one append at a time, the next after a response
    REPLICATE  the position is known: appends are sent ahead of the responses, up to the window
    SNAPSHOT   the entries it needs are compacted: nothing is sent until it has a snapshot

         ┌── append acknowledged ──►┐
       PROBE ◄── rejected, lost ── REPLICATE
         │ ▲                        │
         │ └─ snapshot done/failed ─┼─ acknowledged within the log ─┐
         └────────► SNAPSHOT ◄──────┘  ────────────────────────────►┘

Invariants: match < next; match never decreases in a term; entries up to match are in the follower's
log and equal to the leader's. next is a guess and may fall back to match + 1.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from kvstore.raft.model import RaftError


class ProgressKind(IntEnum):
    """How appends are sent to a follower; the numbers are etcd's."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2


@dataclass(slots=True)
class Progress:
    """The leader's view of one follower (or of itself)."""

    match: int
    next: int
    window: int  # the maximum of unacknowledged appends
    is_learner: bool = False
    kind: ProgressKind = ProgressKind.PROBE
    recent_active: bool = False  # a message arrived since the last quorum check
    flow_paused: bool = False  # a probe is unanswered or the window is full
    pending_snapshot: int = 0  # index of the snapshot being sent
    sent_commit: int = 0  # highest commit index sent to it
    inflight: deque[int] = field(default_factory=deque)  # last index of each unacknowledged append

    @property
    def is_paused(self) -> bool:
        """Whether appends have to wait."""
        return self.flow_paused or self.kind is ProgressKind.SNAPSHOT

    @property
    def is_window_full(self) -> bool:
        """Whether the maximum of appends is unacknowledged."""
        return len(self.inflight) >= self.window

    # Changes of kind.

    def become_probe(self) -> None:
        """Send one append at a time, from match + 1 or after the snapshot that was sent."""
        after_snapshot = self.pending_snapshot if self.kind is ProgressKind.SNAPSHOT else 0
        self._become(ProgressKind.PROBE)
        self.next = max(self.match, after_snapshot) + 1
        self.sent_commit = min(self.sent_commit, self.next - 1)

    def become_replicate(self) -> None:
        """Send ahead from match + 1."""
        self._become(ProgressKind.REPLICATE)
        self.next = self.match + 1

    def become_snapshot(self, index: int) -> None:
        """Send nothing until the snapshot at index has arrived or failed."""
        self._become(ProgressKind.SNAPSHOT)
        self.pending_snapshot = index
        self.next = index + 1
        self.sent_commit = index

    def _become(self, kind: ProgressKind) -> None:
        self.kind = kind
        self.flow_paused = False
        self.pending_snapshot = 0
        self.inflight.clear()

    # After sending.

    def sent_entries(self, count: int) -> None:
        """Note an append of count entries from next on."""
        if self.kind is ProgressKind.REPLICATE:
            if count:
                self.next += count
                self.inflight.append(self.next - 1)
            self.flow_paused = self.is_window_full
        elif self.kind is ProgressKind.PROBE:
            if count:
                self.flow_paused = True
        else:
            raise RaftError(f"an append was sent to a follower in state {self.kind.name}")

    def can_bump_commit(self, commit: int) -> bool:
        """Return whether sending commit could advance the follower's commit index."""
        return commit > self.sent_commit and self.sent_commit < self.next - 1

    # After responses.

    def acknowledged(self, index: int) -> bool:
        """Note that the follower has everything up to index; return whether match advanced."""
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, index + 1)
        self.flow_paused = False
        return True

    def free_inflight(self, index: int) -> None:
        """Remove appends up to index from the window."""
        inflight = self.inflight
        while inflight and inflight[0] <= index:
            inflight.popleft()

    def rejected(self, index: int, hint: int) -> bool:
        """Move next back after an append at index was rejected; False for an old rejection.

        hint is the last index at which both logs may agree.
        """
        if self.kind is ProgressKind.REPLICATE:
            if index <= self.match:
                return False
            self.next = self.match + 1
        else:
            if index != self.next - 1:
                return False
            self.next = max(min(index, hint + 1), self.match + 1)
            self.flow_paused = False
        self.sent_commit = min(self.sent_commit, self.next - 1)
        return True
