"""A hash over everything that went into the nodes of a world and came out of them.

Two runs of one seed must have the same hash; `lines`, if kept, show where they differ.
"""

import hashlib

from kvstore.batch import Inbox, Outbox


class Trace:
    """The inputs and outputs so far."""

    def __init__(self, *, keep_lines: bool = False) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._keep_lines = keep_lines
        self.lines: list[str] = []

    @property
    def keeps_lines(self) -> bool:
        """Whether lines are kept."""
        return self._keep_lines

    def note(self, *words: object) -> None:
        """Add an event of the world."""
        line = repr(words)
        self._hash.update(line.encode())
        if self._keep_lines:
            self.lines.append(line)

    def log(
        self, member: int, now_ns: int, level: str, msg: str, fields: dict[str, object]
    ) -> None:
        """Add a line of a member's log; it does not count in the hash."""
        if self._keep_lines:
            self.lines.append(f"{now_ns / 1e9:.6f} m{member} {level} {msg} {fields}")

    def inbox(self, member: int, inbox: Inbox) -> None:
        """Add a member's inbox."""
        self.note(
            member,
            inbox.now_ns,
            inbox.calls,
            inbox.opened,
            inbox.frames,
            inbox.half_closed,
            inbox.gone,
            sorted(inbox.backlog.items()),
            inbox.messages,
            inbox.unreachable,
            inbox.snapshots_sent,
            inbox.task_results,
            inbox.metadata,
        )

    def outbox(self, member: int, out: Outbox) -> None:
        """Add a member's outbox."""
        self.note(member, out.replies, out.deliveries, out.ends, out.snapshots, out.tasks)

    def hexdigest(self) -> str:
        """Return the hash so far."""
        return self._hash.hexdigest()
