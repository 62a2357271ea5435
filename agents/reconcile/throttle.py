"""The delay of a key after a plan that took long to make.

    throttle.took("default/web", 0.005)
    throttle.rest_s("default/web")       → 0.045: at most a tenth of the time goes into one key

Plans look at all objects of their key: a ReplicaSet of 5,000 pods, at each change of one of them,
would look at 5,000 each time. While its key waits, changes gather and lead to one plan. Keys whose
plans are quick, which is nearly all, never wait.

Keys that are not requested again are forgotten: their waits are over after a second.
"""

from typing import Final

from kvstack.component.clock import Clock

_QUICK_S: Final = 0.001
_REST_S_MAX: Final = 1.0
_SHARE: Final = 9.0
"""A key waits so many times as long as its plan took."""
_KEYS_MIN: Final = 1000
"""The number of waits above which expired ones are removed; twice those in force."""


class Throttle:
    """Remembers which keys wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}  # key → monotonic seconds
        self._sweep_above = _KEYS_MIN

    def __len__(self) -> int:
        """Return how many keys are remembered."""
        return len(self._until)

    def took(self, key: str, spent_s: float) -> None:
        """Note how long the plan of a key took to make, its waiting for answers not counted."""
        if spent_s < _QUICK_S:
            self._until.pop(key, None)
            return
        now_s = self._clock.monotonic_s()
        self._until[key] = now_s + min(spent_s * _SHARE, _REST_S_MAX)
        if len(self._until) > self._sweep_above:
            self._until = {key: until for key, until in self._until.items() if until > now_s}
            self._sweep_above = max(_KEYS_MIN, 2 * len(self._until))

    def rest_s(self, key: str) -> float:
        """Return how many seconds a key waits still; 0: it may be worked on."""
        until = self._until.get(key)
        if until is None:
            return 0.0
        left_s = until - self._clock.monotonic_s()
        if left_s <= 0:
            del self._until[key]
            return 0.0
        return left_s
