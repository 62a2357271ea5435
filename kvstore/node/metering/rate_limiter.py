"""Warnings that could come with every request, kept from flooding the log.

Each kind is let through a few times in an interval; the next line of its kind after a pause tells
how many were left out.
"""

from typing import Final

INTERVAL_NS: Final = 10_000_000_000
LINES_MAX: Final = 10  # of one kind in an interval


class RateLimiter:
    """Says what may be said."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[str, list[int]] = {}  # kind → [begin of its interval, said, omitted]

    def admit(self, kind: str, now_ns: int) -> int | None:
        """Return how many of a kind were left out before this line; None: leave it out as well.

        Kinds are the caller's own few words, never a client's.
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
