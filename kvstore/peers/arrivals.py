"""What other threads have for the turn, until it asks: bytes of streams, messages of requests,
losses, ends of snapshots and tasks.

    any thread      post(message) · lose(member) · … ──► wake the driver
    turn's thread   fill(inbox)

Bytes of streams are found by the ready set and read by the turn itself. Messages of requests wait
in line, POSTED_MAX and POSTED_BYTES_MAX of them, and so does who brought them.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from kvstore.batch import Inbox, TaskResult
from kvstore.peers.ready_set import ReadySet
from kvstore.raft.model import Message

POSTED_MAX: Final = 1024
POSTED_BYTES_MAX: Final = 64 << 20
POST_WAIT_S: Final = 5.0


class Arrivals:
    """The inbox's other half."""

    def __init__(self, member_id: int, is_removed: Callable[[int], bool]) -> None:
        """Drop messages that are not for member_id, and those of removed members."""
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
        self._reached: deque[int] = deque()
        self._sent: deque[tuple[int, bool]] = deque()
        self._tasks: deque[TaskResult] = deque()
        self._is_closed = False

    # From any thread.

    def post(self, message: Message, size_bytes: int) -> bool:
        """Give a message to the turn and wait until it has it; False: it will not have it."""
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
            # The turn takes all or nothing, so what waited is still there.
            self._posted = [each for each in self._posted if each is not message]
            self._posted_bytes -= size_bytes
            return False

    def lose(self, member_id: int) -> None:
        """Say that a message to a member was lost."""
        self._lost.append(member_id)

    def reach(self, member_id: int) -> None:
        """Say that a member has taken a stream of ours: it waits to hear from its leader."""
        self._reached.append(member_id)
        self.wake()

    def snapshot_done(self, member_id: int, arrived: bool) -> None:  # noqa: FBT001
        """Say how the sending of a snapshot ended."""
        self._sent.append((member_id, arrived))
        self.wake()

    def task_done(self, result: TaskResult) -> None:
        """Hand in the result of a task."""
        self._tasks.append(result)
        self.wake()

    def close(self) -> None:
        """Let everyone go who waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return self._is_closed or (
            len(self._posted) < POSTED_MAX and self._posted_bytes < POSTED_BYTES_MAX
        )

    # In the turn's thread.

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
            self._drop_strangers(messages)
        if self._lost:
            inbox.unreachable += _take(self._lost)
        if self._reached:
            inbox.reached += _take(self._reached)
        while self._sent:
            inbox.snapshots_sent.append(self._sent.popleft())
        while self._tasks:
            inbox.task_results.append(self._tasks.popleft())

    def _drop_strangers(self, messages: list[Message]) -> None:
        own, is_removed = self._member_id, self._is_removed
        for message in messages:
            if message.to != own or is_removed(message.from_):
                messages[:] = [
                    each for each in messages if each.to == own and not is_removed(each.from_)
                ]
                return


def _take(members: deque[int]) -> list[int]:
    """Take all that others have put there so far, each member once."""
    return list(dict.fromkeys([members.popleft() for _ in range(len(members))]))
