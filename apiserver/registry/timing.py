"""The time of a server as objects have it."""

from functools import lru_cache

from kvstack.apimachinery.objects.times import format_time
from kvstack.component.clock import Clock


def now_text(clock: Clock) -> str:
    """Return the time as objects have it: RFC 3339 in seconds, UTC."""
    return _text(clock.unix_ms() // 1000)


_text = lru_cache(maxsize=16)(format_time)
