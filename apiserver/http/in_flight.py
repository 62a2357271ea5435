"""Requests that are being handled: how many at most, and for how long.

    enter    TooManyError above the limit: of reads, or of writes; administrators are never refused
    leave
    overdue  a request that has taken its time is cancelled, and is answered 504 by who handles it

Watches and streams do not count, and have no time limit here.
"""

import asyncio
from typing import Final

from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.http.routing import Route
from kvstack.apiserver.policy.attributes import PRIVILEGED, User
from kvstack.apiserver.registry.timing import Clock

READS_MAX: Final = 400
WRITES_MAX: Final = 200
_LOOK_AGAIN_S: Final = 1.0
_READS: Final = frozenset(("get", "list", "watch", "head"))


class TooManyError(Exception):
    """More requests are being handled than may be."""

    def __init__(self, retry_s: int = 1) -> None:
        """Keep after how many seconds the client may try again."""
        self.retry_s = retry_s


class InFlight:
    """Counts requests and ends those that take too long."""

    def __init__(
        self, clock: Clock, *, reads_max: int = READS_MAX, writes_max: int = WRITES_MAX
    ) -> None:
        """Count from zero; a limit of 0: none."""
        self._clock = clock
        self._maxima = {False: reads_max, True: writes_max}
        self.counts: Final[dict[bool, int]] = {False: 0, True: 0}
        """Of reads (False) and writes (True)."""
        self.long_count = 0
        """Watches and streams."""
        self._open: dict[Reply, tuple[bool, int]] = {}
        self._overdue: set[Reply] = set()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, reply: Reply, route: Route, user: User, began_ns: int) -> None:
        """Begin with a request; raises TooManyError."""
        if route.is_long:
            self.long_count += 1
            self._open[reply] = (False, 0)
            return
        is_write = route.info.verb not in _READS
        limit = self._maxima[is_write]
        if limit and self.counts[is_write] >= limit and PRIVILEGED not in user.groups:
            raise TooManyError
        self.counts[is_write] += 1
        self._open[reply] = (is_write, began_ns + route.timeout_ns)
        if self._timer is None:
            self._look_later()

    def leave(self, reply: Reply) -> None:
        """Be done with a request, if it had begun."""
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
        """Tell whether a request was cancelled because it took too long."""
        return reply in self._overdue

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._look)

    def _look(self) -> None:
        """Cancel what is overdue."""
        self._timer = None
        now_ns = self._clock.monotonic_ns()
        for reply, (_, deadline_ns) in self._open.items():
            if not deadline_ns or deadline_ns >= now_ns:
                continue
            task = reply.answer.task
            if task is not None:
                self._overdue.add(reply)
                task.cancel()
        if self._open:
            self._look_later()
