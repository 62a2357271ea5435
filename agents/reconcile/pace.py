"""How long a key rests after a plan that took long to make.

    pace.took("default/web", 0.005)
    pace.rest_s("default/web")       → 0.045: at most a tenth of the time goes into one key

Plans look at all objects of their key: a ReplicaSet of 5,000 pods, at each change of one of them,
would look at 5,000 each time. While its key rests, changes gather and lead to one plan. Keys whose
plans are quick, which is nearly all, never rest.
"""

from typing import Final

from kvstack.agents.client.timing import Clock

_QUICK_S: Final = 0.001
_RESTS_MOST_S: Final = 1.0
_SHARE: Final = 9.0
"""A key rests so many times as long as its plan took."""


class Pace:
    """Remembers which keys rest."""

    def __init__(self, clock: Clock) -> None:
        """Begin with all keys rested."""
        self._clock = clock
        self._until: dict[str, float] = {}  # key → monotonic seconds

    def took(self, key: str, spent_s: float) -> None:
        """Note how long the plan of a key took to make, its waiting for answers not counted."""
        if spent_s < _QUICK_S:
            self._until.pop(key, None)
        else:
            rest_s = min(spent_s * _SHARE, _RESTS_MOST_S)
            self._until[key] = self._clock.monotonic_s() + rest_s

    def rest_s(self, key: str) -> float:
        """Return how many seconds a key rests still; 0: it may be worked on."""
        until = self._until.get(key)
        if until is None:
            return 0.0
        left_s = until - self._clock.monotonic_s()
        if left_s <= 0:
            del self._until[key]
            return 0.0
        return left_s
