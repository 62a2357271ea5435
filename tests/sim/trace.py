"""The life of a world as one hash: everything that went into a node and everything that came out.

Two runs of one seed must have the same; where they part, `lines` (if kept) tells.
"""

import hashlib

from kvstore.batch import Inbox, Outbox


class Trace:
    """Gathers; `hexdigest` at any time."""

    def __init__(self, *, keep_lines: bool = False) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._keep_lines = keep_lines
        self.lines: list[str] = []

    def note(self, *words: object) -> None:
        """Add an event of the world."""
        line = repr(words)
        self._hash.update(line.encode())
        if self._keep_lines:
            self.lines.append(line)

    def say(
        self, member: int, now_ns: int, level: str, msg: str, fields: dict[str, object]
    ) -> None:
        """Add what a member says to its operator: to the lines alone."""
        if self._keep_lines:
            self.lines.append(f"{now_ns / 1e9:.6f} m{member} {level} {msg} {fields}")

    def inbox(self, member: int, inbox: Inbox) -> None:
        """Add what a member was given."""
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
        """Add what a member said."""
        self.note(member, out.replies, out.deliveries, out.ends, out.snapshots, out.tasks)

    def hexdigest(self) -> str:
        """Return the hash so far."""
        return self._hash.hexdigest()
