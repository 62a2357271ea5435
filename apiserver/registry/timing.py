"""The time of a server as objects have it: RFC 3339, UTC."""

from kvstack.apimachinery.objects.times import Moment, format_micro_time, format_time
from kvstack.component.clock import Clock


def now_text(clock: Clock) -> str:
    """Return the time in whole seconds."""
    return format_time(clock.unix_ms() // 1000)


def now_micro_text(clock: Clock) -> str:
    """Return the time with six digits of fraction, as Leases and Events have it."""
    seconds, ms = divmod(clock.unix_ms(), 1000)
    return format_micro_time(Moment(seconds, ms * 1_000_000))
