"""Times in microseconds, as Leases and Events have them."""

from kvstack.apimachinery.objects.times import Moment, format_micro_time
from kvstack.component.clock import Clock


def micro_time(clock: Clock) -> str:
    """Return the current time in UTC, RFC 3339 with six digits."""
    seconds, ms = divmod(clock.unix_ms(), 1000)
    return format_micro_time(Moment(seconds, ms * 1_000_000))
