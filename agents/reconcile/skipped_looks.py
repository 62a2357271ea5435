"""Leaves out looks around that would do nothing, in virtual time.

    looks = SkippedLooks(queue, clock)
    looks.add("all", Again(5.0, is_routine=True, rests_s=50.0))      instead of queue.add_after
    looks.changed(old, new)                                          an object has changed

    looks      ·    ·    ·    ·    ·    ·    ·    ·    ·    ·    ·   every 5 s
    made       ●                   ▲    ●                        ●   after a change; when it is due

A look is made at a moment at which it would be made in any case: so what it sees, and when, is what
it would be if none were left out.
"""

import math
from typing import Final

from kvstack.agents.client.work_queue import WorkQueue
from kvstack.agents.reconcile.plan import Again
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock

REST_S_MAX: Final = 3600.0
"""After which a look is made whatever it says."""
_SAME_S: Final = 1e-6
"""Moments that are no further apart are one."""


class SkippedLooks:
    """The looks of one controller."""

    def __init__(self, queue: WorkQueue[str], clock: Clock) -> None:
        """queue: where they come back."""
        self._queue: Final = queue
        self._clock: Final = clock
        self._phases: Final[dict[str, tuple[float, float]]] = {}
        """By key: a moment of a look, and the period."""
        self._skipping: Final[set[str]] = set()

    def add(self, key: str, again: Again) -> None:
        """Have a look made again when it may do something."""
        now_s, period_s = self._clock.monotonic_s(), again.after_s
        known = self._phases.get(key)
        if known is None or known[1] != period_s:
            self._phases[key] = (now_s, period_s)
        self._add(key, now_s, min(again.rests_s, REST_S_MAX))
        self._skipping.add(key)

    def changed(self, _old: Object | None = None, _new: Object | None = None) -> None:
        """Have all looks made when they would be next, since an object has changed."""
        now_s = self._clock.monotonic_s()
        for key in self._skipping:
            self._add(key, now_s, 0.0)
        self._skipping.clear()

    def _add(self, key: str, now_s: float, rests_s: float) -> None:
        """Have a look made at its first moment that is later than now, and not before it rested."""
        begun_s, period_s = self._phases[key]
        passed = math.floor((now_s - begun_s + _SAME_S) / period_s)
        rested = math.ceil((now_s - begun_s + rests_s - _SAME_S) / period_s)
        self._queue.add_after(key, begun_s + max(passed + 1, rested) * period_s - now_s)
