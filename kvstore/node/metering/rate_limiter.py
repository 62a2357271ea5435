"""A rate limiter for warnings that could come with every request.

A few lines of each kind are logged in an interval; the first line after it has the number of those
that were omitted.
"""

from typing import Final

INTERVAL_NS: Final = 10_000_000_000
LINES_MAX: Final = 10  # of one kind in an interval


class RateLimiter:
    """Limits the log lines of each kind."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[str, list[int]] = {}  # kind → [start of its interval, logged, omitted]

    def admit(self, kind: str, now_ns: int) -> int | None:
        """Return how many lines of a kind were omitted before this one; None: omit it as well.

        Kinds are a few fixed names, never text of a client.
        """
        state = self._kinds.get(kind)
        if state is None:
            self._kinds[kind] = [now_ns, 1, 0]
            return 0
        if now_ns - state[0] >= INTERVAL_NS:
            omitted = state[2]
            state[:] = [now_ns, 1, 0]
            return omitted
        if state[1] < LINES_MAX:
            state[1] += 1
            return 0
        state[2] += 1
        return None
