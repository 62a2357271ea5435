"""A leader with a slow disk makes everybody wait: it hands over, to a disk that may do better.

    a save of the log took half an election timeout or longer ─► counted
    three of them within ten seconds ─► leadership goes to the voter connected longest
    once a minute at most: if all disks are slow, it does not go round and round

A disk that stands still for longer than the others wait for a leader needs nothing of this: they
elect another, and this one steps down when it comes back (raft's timers).
"""

from collections import deque
from typing import Final

from kvstore.node.cluster.leadership import Leadership
from kvstore.node.limits import SECOND_NS
from kvstore.node.parts import Parts

_SLOW_MAX: Final = 3
_WITHIN_NS: Final = 10 * SECOND_NS
_AGAIN_NS: Final = 60 * SECOND_NS


class DiskWatch:
    """How long the log's disk takes while this member leads."""

    def __init__(self, parts: Parts, leadership: Leadership) -> None:
        self._parts = parts
        self._leadership = leadership
        self._slow_ns: deque[int] = deque(maxlen=_SLOW_MAX)  # when
        self._handed_over_ns: int | None = None

    def saved(self, took_ns: int, now_ns: int) -> None:
        """Take note of a save."""
        parts = self._parts
        if took_ns * 2 < parts.limits.election_timeout_ns or not parts.raft.is_leader:
            return
        slow_ns = self._slow_ns
        slow_ns.append(now_ns)
        if len(slow_ns) < _SLOW_MAX or now_ns - slow_ns[0] > _WITHIN_NS:
            return
        last_ns = self._handed_over_ns
        if last_ns is not None and now_ns - last_ns < _AGAIN_NS:
            return
        if self._leadership.shed():
            self._handed_over_ns = now_ns
            parts.logger.warning(
                "handing leadership over: the log's disk is slow", last_save_ms=took_ns // 1_000_000
            )
