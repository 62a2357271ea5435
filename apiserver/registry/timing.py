"""The clock interface."""

from functools import lru_cache
from typing import Protocol

from kvstack.apimachinery.objects.times import format_time


class Clock(Protocol):
    """A clock; all parts of a server share one."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds since some fixed moment; never goes back."""
        ...

    def unix_ms(self) -> int:
        """Return milliseconds since 1970 UTC; may jump either way."""
        ...


def now_text(clock: Clock) -> str:
    """Return the time as objects have it: RFC 3339 in seconds, UTC."""
    return _text(clock.unix_ms() // 1000)


_text = lru_cache(maxsize=16)(format_time)
