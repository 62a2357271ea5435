"""Delays after failures: doubled each time, and limited by a token bucket for all keys.

back_off = FailureBackOff(clock, base_s=0.005, max_s=1000.0, bucket=TokenBucket(clock, 10, 100))
back_off.next_s(key)     0.005, 0.01, 0.02 …
back_off.forget(key)     from the beginning again
"""

from collections.abc import Callable, Hashable

from kvstack.agents.client.rate_limiter import TokenBucket
from kvstack.component.clock import Clock


class FailureBackOff:
    """Waits by key; client-go's default limiter of controllers."""

    def __init__(
        self,
        clock: Clock,
        base_s: float = 0.005,
        max_s: float = 1000.0,
        *,
        bucket: TokenBucket | None = None,
    ) -> None:
        """Wait base_s · 2ⁿ, at most max_s, and at least until the bucket (if any) has a token."""
        self._clock = clock
        self._base_s = base_s
        self._max_s = max_s
        self._bucket = bucket
        self._failures: dict[Hashable, int] = {}

    def next_s(self, key: Hashable) -> float:
        """Count a failure; return how long to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait_s: float = min(self._base_s * 2.0 ** min(failures, 64), self._max_s)
        return wait_s if self._bucket is None else max(wait_s, self._bucket.wait_s())

    def failures(self, key: Hashable) -> int:
        """Return how often a key failed since it was forgotten."""
        return self._failures.get(key, 0)

    def forget(self, key: Hashable) -> None:
        """Count from the beginning again."""
        self._failures.pop(key, None)


class RetryBackOff:
    """Waits of one loop that tries again: twice as long each time, with jitter, reset by health."""

    def __init__(
        self,
        clock: Clock,
        random: Callable[[], float],
        *,
        base_s: float,
        max_s: float,
        jitter: float,
        reset_s: float,
    ) -> None:
        """Wait base_s · 2ⁿ ≤ max_s, times 1 to 1 + jitter; from the beginning after reset_s."""
        self._clock = clock
        self._random = random
        self._base_s = base_s
        self._max_s = max_s
        self._jitter = jitter
        self._reset_s = reset_s
        self._next_s = base_s
        self._last_s = clock.monotonic_s()

    def next_s(self) -> float:
        """Return how long to wait now."""
        now = self._clock.monotonic_s()
        if now - self._last_s > self._reset_s:
            self._next_s = self._base_s
        self._last_s = now
        wait_s = self._next_s * (1 + self._jitter * self._random())
        self._next_s = min(self._next_s * 2, self._max_s)
        return wait_s
