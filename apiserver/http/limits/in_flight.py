"""Requests in flight: their number and their time limit.

    enter    TooManyError above the limit: of reads, or of writes; administrators are never refused
    leave
    overdue  a request that has taken its time is cancelled, and is answered 504 by who handles it

A request ends when its answer is written. One whose answer is being written (`note_writing`) has
the same time limit; then the answer is cut. One user may have half of the available requests in
that state. Watches and streams do not count, and have no time limit here.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from kvstack.apimachinery.attributes import PRIVILEGED, User
from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.http.limits.too_many import TooManyError
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.component.clock import Clock

READS_MAX: Final = 400
WRITES_MAX: Final = 200
_LOOK_AGAIN_S: Final = 1.0
_READS: Final = frozenset(("get", "list", "watch", "head"))


class InFlight:
    """Counts requests and ends those that exceed their time limit."""

    def __init__(
        self, clock: Clock, *, reads_max: int = READS_MAX, writes_max: int = WRITES_MAX
    ) -> None:
        """A limit of 0: none."""
        self._clock = clock
        self._maxima = {False: reads_max, True: writes_max}
        self.counts: Final[dict[bool, int]] = {False: 0, True: 0}
        """Number of reads (False) and writes (True)."""
        self.long_count = 0
        """Number of watches and streams."""
        self._open: dict[Reply, tuple[bool, int]] = {}
        self._writing: dict[Reply, str] = {}
        """Users of the answers that are being written."""
        self._writing_counts: dict[str, int] = {}
        """Number of answers being written, by user."""
        self._overdue: set[Reply] = set()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, context: RequestContext) -> None:
        """Enter a request; raises TooManyError."""
        reply, route, user = context.reply, context.route, context.user
        if route.is_long:
            self.long_count += 1
            self._open[reply] = (False, 0)
            return
        is_write = route.info.verb not in _READS
        limit = self._maxima[is_write]
        if limit and self.counts[is_write] >= limit and PRIVILEGED not in user.groups:
            raise TooManyError
        if limit and self._writing_counts.get(user.name, 0) >= max(limit // 2, 1):
            raise TooManyError
        self.counts[is_write] += 1
        self._open[reply] = (is_write, context.began_ns + route.timeout_ns)
        if self._timer is None:
            self._look_later()

    def note_writing(self, reply: Reply, user: User) -> None:
        """Note that a request is done except for its answer being read."""
        if reply in self._open and reply not in self._writing and PRIVILEGED not in user.groups:
            self._writing[reply] = user.name
            self._writing_counts[user.name] = self._writing_counts.get(user.name, 0) + 1

    def leave(self, reply: Reply) -> None:
        """Release a request, if it had been entered."""
        name = self._writing.pop(reply, None)
        if name is not None:
            self._writing_counts[name] -= 1
            if not self._writing_counts[name]:
                del self._writing_counts[name]
        found = self._open.pop(reply, None)
        if found is None:
            return
        is_write, deadline_ns = found
        if deadline_ns:
            self.counts[is_write] -= 1
        else:
            self.long_count -= 1
        self._overdue.discard(reply)

    def is_overdue(self, reply: Reply) -> bool:
        """Return whether a request was cancelled because it exceeded its time limit."""
        return reply in self._overdue

    def writes(self) -> Iterator[Reply]:
        """Yield the replies to writes in flight."""
        yield from (reply for reply, (is_write, _) in self._open.items() if is_write)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._look)

    def _look(self) -> None:
        """Cancel requests that exceed their time limit."""
        self._timer = None
        now_ns = self._clock.monotonic_ns()
        for reply, (_, deadline_ns) in self._open.items():
            if not deadline_ns or deadline_ns >= now_ns:
                continue
            task = reply.answer.task
            if task is not None:
                self._overdue.add(reply)
                task.cancel()
            elif reply.is_begun:
                reply.answer.cut()  # its handler has returned
        if any(self.counts.values()):  # watches and streams have no time limit
            self._look_later()
