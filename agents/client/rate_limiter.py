"""A token bucket that limits requests: a rate per second, and a burst.

limiter = TokenBucket(clock, per_second=20, burst=30)
await limiter.acquire()
"""

import asyncio
from typing import Final, Protocol

from kvstack.component.clock import Clock


class RateLimiter(Protocol):
    """Limits the rate of requests."""

    async def acquire(self) -> None:
        """Wait until one may."""
        ...


class _NoLimit:
    """Limits nothing."""

    async def acquire(self) -> None:
        """Go at once."""


NO_LIMIT: Final[RateLimiter] = _NoLimit()


class TokenBucket:
    """Lets `burst` requests go at once, and then `per_second`."""

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        """Start with a full bucket."""
        if per_second <= 0 or burst < 1:
            raise ValueError(f"a rate of {per_second}/s with a burst of {burst} allows no requests")
        self._clock = clock
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_s = clock.monotonic_s()

    def wait_s(self) -> float:
        """Take a token; return the seconds until it is available."""
        now = self._clock.monotonic_s()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_s) * self._per_second)
        self._filled_s = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._per_second)

    async def acquire(self) -> None:
        """Wait for a token."""
        if wait_s := self.wait_s():
            await asyncio.sleep(wait_s)
