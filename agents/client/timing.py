"""Times as objects have them."""

from functools import lru_cache

from kvstack.apimachinery.objects.times import Moment, format_micro_time, format_time


def time_text(now_s: float) -> str:
    """Return a moment as objects have it: in whole seconds."""
    return _second_text(int(now_s))


@lru_cache(maxsize=64)  # most times that are written in a second are of the same one
def _second_text(seconds: int) -> str:
    return format_time(seconds)


def micro_time_text(now_s: float) -> str:
    """Return a moment as leases and events have it: in microseconds."""
    seconds = int(now_s // 1)
    return format_micro_time(Moment(seconds, int((now_s - seconds) * 1e9)))
