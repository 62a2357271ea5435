"""When a schedule is due.

    next_s(parse("30 2 * * *"), now_s, zone)   → the next half past two, seconds since 1970
    due(schedule, zone, earliest_s, now_s)     → Due(most_recent_s=…, missed=3)

Times of day that a change of clocks leaves out are not due; those that come twice are due twice.
"""

from datetime import datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.cron_schedules import Schedule

_YEARS_MAX: Final = 5
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_NANOSECONDS: Final = 1_000_000_000
_WEEK: Final = 7


class NeverDueError(ValueError):
    """A schedule that has no next time; the message is upstream's."""

    def __init__(self) -> None:
        super().__init__("time difference between two schedules is less than 1 second")


class Due(NamedTuple):
    """The schedule times that are due."""

    most_recent_s: int | None
    missed: int
    """The approximate number of missed times."""


def next_s(schedule: Schedule, after_s: float, zone: tzinfo) -> int | None:
    """Return the first time after another that is due; None: there is none within five years."""
    moment = int(after_s // 1)
    if schedule.every:
        return moment + schedule.every // _NANOSECONDS
    moment = -(-(moment + 1) // _MINUTE_S) * _MINUTE_S
    last_year = datetime.fromtimestamp(moment, zone).year + _YEARS_MAX
    while True:
        local = datetime.fromtimestamp(moment, zone)
        if local.year > last_year:
            return None
        if local.month not in schedule.months:
            year, month = divmod(local.year * 12 + local.month, 12)
            later = datetime(year, month + 1, 1, tzinfo=zone)
        elif not _is_day(schedule, local):
            later = (local + timedelta(days=1)).replace(hour=0, minute=0, second=0, fold=0)
        elif local.hour not in schedule.hours:
            moment += _HOUR_S - local.minute * _MINUTE_S
            continue
        elif local.minute not in schedule.minutes:
            moment += _MINUTE_S
            continue
        else:
            return moment
        moment = max(int(later.timestamp()), moment + _MINUTE_S)


def _is_day(schedule: Schedule, local: datetime) -> bool:
    is_day = local.day in schedule.days
    is_weekday = local.isoweekday() % _WEEK in schedule.weekdays
    if schedule.every_day or schedule.every_weekday:
        return is_day and is_weekday
    return is_day or is_weekday


def due(schedule: Schedule, zone: tzinfo, earliest_s: float, now_s: float) -> Due:
    """Return the last time since another that is due now; raises NeverDueError."""
    first = next_s(schedule, earliest_s, zone)
    if first is None:
        raise NeverDueError
    if now_s < first:
        return Due(None, 0)
    second = next_s(schedule, first, zone)
    if second is None:
        raise NeverDueError
    if now_s < second:
        return Due(first, 0)
    step = second - first
    if step < 1:
        raise NeverDueError
    missed = int(now_s - first) // step + 1
    # Start close to now: schedules that are due often have missed very many times.
    recent: int | None = None
    moment = next_s(schedule, first + (missed - 2) * step, zone)
    while moment is not None and moment <= now_s:
        recent = moment
        moment = next_s(schedule, moment, zone)
    return Due(recent, missed)
