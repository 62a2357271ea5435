"""What a leader knows of one follower's log, and how fast it may send to it.

    PROBE      match is a guess: one append at a time, the next after an answer or a heartbeat's
    REPLICATE  match is known: appends stream ahead of the answers, up to the window
    SNAPSHOT   what it needs is compacted: nothing is sent until it has a snapshot

         ┌── append acknowledged ──►┐
       PROBE ◄── rejected, lost ── REPLICATE
         │ ▲                        │
         │ └─ snapshot done/failed ─┼─ acknowledged within the log ─┐
         └────────► SNAPSHOT ◄──────┘  ────────────────────────────►┘

The laws: match < next; match only grows in a term; entries up to match are in the follower's log
and equal to the leader's. next is a guess and may fall back to match + 1.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from kvstore.raft.model import RaftError


class ProgressKind(IntEnum):
    """How a follower is sent to; the numbers are etcd's."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2


@dataclass(slots=True)
class Progress:
    """One follower (or the leader itself) as the leader sees it."""

    match: int
    next: int
    window: int  # appends that may be on their way at once
    is_learner: bool = False
    kind: ProgressKind = ProgressKind.PROBE
    recent_active: bool = False  # heard from since the last check of the quorum
    flow_paused: bool = False  # a probe is out or the window is full: wait for an answer
    pending_snapshot: int = 0  # index of the snapshot being sent
    sent_commit: int = 0  # highest commit index it was told
    inflight: deque[int] = field(default_factory=deque)  # last index of each append on its way

    @property
    def is_paused(self) -> bool:
        """Whether appends have to wait."""
        return self.flow_paused or self.kind is ProgressKind.SNAPSHOT

    @property
    def is_window_full(self) -> bool:
        """Whether as many appends are on their way as may be."""
        return len(self.inflight) >= self.window

    # Changes of kind.

    def become_probe(self) -> None:
        """Send one at a time from match + 1, or after the snapshot that was sent."""
        after_snapshot = self.pending_snapshot if self.kind is ProgressKind.SNAPSHOT else 0
        self._become(ProgressKind.PROBE)
        self.next = max(self.match, after_snapshot) + 1
        self.sent_commit = min(self.sent_commit, self.next - 1)

    def become_replicate(self) -> None:
        """Stream from match + 1."""
        self._become(ProgressKind.REPLICATE)
        self.next = self.match + 1

    def become_snapshot(self, index: int) -> None:
        """Send nothing until the snapshot at index has arrived, or failed to."""
        self._become(ProgressKind.SNAPSHOT)
        self.pending_snapshot = index
        self.next = index + 1
        self.sent_commit = index

    def _become(self, kind: ProgressKind) -> None:
        self.kind = kind
        self.flow_paused = False
        self.pending_snapshot = 0
        self.inflight.clear()

    # What was sent.

    def sent_entries(self, count: int) -> None:
        """Take note of an append of count entries from next on."""
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
        """Tell whether hearing commit could move the follower's commit index."""
        return commit > self.sent_commit and self.sent_commit < self.next - 1

    # What was answered.

    def acknowledged(self, index: int) -> bool:
        """Take note that the follower holds all up to index; tell whether that is news."""
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, index + 1)
        self.flow_paused = False
        return True

    def free_inflight(self, index: int) -> None:
        """Take appends up to index out of the window."""
        inflight = self.inflight
        while inflight and inflight[0] <= index:
            inflight.popleft()

    def rejected(self, index: int, hint: int) -> bool:
        """Step next back after an append at index was refused; False for an old refusal.

        hint is the furthest index at which both logs may agree.
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
