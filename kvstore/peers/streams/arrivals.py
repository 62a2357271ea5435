"""Input of other threads for the next turn: messages, losses, results of snapshots and tasks.

    any thread      post(message) · report_lost(member) · … ──► wake the driver
    turn's thread   fill(inbox)

Streams are found by the ready set and read by the turn itself. Messages of POST requests are
queued, at most POSTED_MAX and POSTED_BYTES_MAX; the thread of the request waits until the turn has
taken its message.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from kvstore.batch import Inbox, TaskResult
from kvstore.peers.streams.ready_set import ReadySet
from kvstore.raft.model import Message

POSTED_MAX: Final = 1024
POSTED_BYTES_MAX: Final = 64 << 20
POST_WAIT_S: Final = 5.0


class Arrivals:
    """The queues that are emptied into the inbox."""

    def __init__(self, member_id: int, is_removed: Callable[[int], bool]) -> None:
        """Messages not addressed to member_id, and those from removed members, are dropped."""
        self._member_id = member_id
        self._is_removed = is_removed
        self.wake: Callable[[], None] = lambda: None  # makes the driver take a turn
        self.ready: Final = ReadySet()
        self._changed = threading.Condition()
        self._posted: list[Message] = []
        self._posted_bytes = 0
        self._posts = 0  # so far
        self._taken = 0  # of them
        self._lost: deque[int] = deque()
        self._attached: deque[int] = deque()
        self._sent: deque[tuple[int, bool]] = deque()
        self._tasks: deque[TaskResult] = deque()
        self._is_closed = False

    # Called in any thread.

    def post(self, message: Message, size_bytes: int) -> bool:
        """Queue a message and wait until the turn has taken it; False: it was dropped."""
        with self._changed:
            if not self._changed.wait_for(self._has_room, POST_WAIT_S) or self._is_closed:
                return False
            self._posted.append(message)
            self._posted_bytes += size_bytes
            self._posts += 1
            number = self._posts
        self.wake()
        with self._changed:
            if self._changed.wait_for(
                lambda: self._taken >= number or self._is_closed, POST_WAIT_S
            ):
                return self._taken >= number
            # The turn takes all messages or none, so this one is still queued.
            self._posted = [each for each in self._posted if each is not message]
            self._posted_bytes -= size_bytes
            return False

    def report_lost(self, member_id: int) -> None:
        """Report that a message to a member was lost."""
        self._lost.append(member_id)

    def report_attached(self, member_id: int) -> None:
        """Report that a member has dialled its message stream, waiting for its leader."""
        self._attached.append(member_id)
        self.wake()

    def snapshot_done(self, member_id: int, arrived: bool) -> None:  # noqa: FBT001
        """Report whether a snapshot was sent successfully."""
        self._sent.append((member_id, arrived))
        self.wake()

    def task_done(self, result: TaskResult) -> None:
        """Queue the result of a task."""
        self._tasks.append(result)
        self.wake()

    def close(self) -> None:
        """Make every waiting post() return."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return self._is_closed or (
            len(self._posted) < POSTED_MAX and self._posted_bytes < POSTED_BYTES_MAX
        )

    # Called in the turn's thread.

    def fill(self, inbox: Inbox) -> None:
        """Move everything into the inbox."""
        messages = inbox.messages
        had = len(messages)
        self.ready.take(messages)
        if self._posted:
            with self._changed:
                messages += self._posted
                self._posted = []
                self._posted_bytes = 0
                self._taken = self._posts
                self._changed.notify_all()
        if len(messages) > had:
            self._drop_invalid(messages)
        if self._lost:
            inbox.unreachable += _take(self._lost)
        if self._attached:
            inbox.reached += _take(self._attached)
        while self._sent:
            inbox.snapshots_sent.append(self._sent.popleft())
        while self._tasks:
            inbox.task_results.append(self._tasks.popleft())

    def _drop_invalid(self, messages: list[Message]) -> None:
        own, is_removed = self._member_id, self._is_removed
        for message in messages:
            if message.to != own or is_removed(message.from_):
                messages[:] = [
                    each for each in messages if each.to == own and not is_removed(each.from_)
                ]
                return


def _take(members: deque[int]) -> list[int]:
    """Remove and return all members so far, each once."""
    return list(dict.fromkeys([members.popleft() for _ in range(len(members))]))
