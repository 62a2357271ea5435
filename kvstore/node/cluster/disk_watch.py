"""A leader with a slow disk slows down the cluster: it transfers leadership to another member.

    a save of the log took half an election timeout or longer ─► counted
    three of them within ten seconds ─► leadership goes to the voter connected longest
    at most once a minute: if all disks are slow, leadership does not move all the time

A disk that stalls for longer than an election timeout needs none of this: the others elect another
leader, and this one steps down when it continues (raft's timers).
"""

from collections import deque
from typing import Final

from kvstack.component.units import SECOND_NS
from kvstore.node.cluster.leadership import Leadership
from kvstore.node.parts import Parts

_SLOW_MAX: Final = 3
_WITHIN_NS: Final = 10 * SECOND_NS
_TRANSFER_INTERVAL_NS: Final = 60 * SECOND_NS


class DiskWatch:
    """Watches how long saves of the log take while this member leads."""

    def __init__(self, parts: Parts, leadership: Leadership) -> None:
        self._parts = parts
        self._leadership = leadership
        self._slow_ns: deque[int] = deque(maxlen=_SLOW_MAX)  # when the last slow saves were
        self._transferred_ns: int | None = None

    def saved(self, took_ns: int, now_ns: int) -> None:
        """Record a save."""
        parts = self._parts
        if took_ns * 2 < parts.limits.election_timeout_ns or not parts.raft.is_leader:
            return
        slow_ns = self._slow_ns
        slow_ns.append(now_ns)
        if len(slow_ns) < _SLOW_MAX or now_ns - slow_ns[0] > _WITHIN_NS:
            return
        last_ns = self._transferred_ns
        if last_ns is not None and now_ns - last_ns < _TRANSFER_INTERVAL_NS:
            return
        if self._leadership.transfer_to_another():
            self._transferred_ns = now_ns
            parts.logger.warning(
                "transferring leadership: the log's disk is slow", last_save_ms=took_ns // 1_000_000
            )
