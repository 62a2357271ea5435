"""Schedules of CronJobs: five fields of cron, or a word.

    parse("*/15 8-18 * * mon-fri").minutes   → {0, 15, 30, 45}
    parse("@every 1h30m").every              → 5_400_000_000_000
    parse("* * *")   → ScheduleError: expected exactly 5 fields, found 3: [* * *]

minute 0-59, hour 0-23, day of month 1-31, month 1-12 or jan-dec, day of week 0-6 or sun-sat. A
field is a list of `*`, `?`, numbers and ranges, each with a step or without. If neither of the two
fields of days has a star, a day that suits one of them is enough, else it must suit both. A time
zone may come first: `TZ=Europe/Paris …` or `CRON_TZ=…`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.durations import DurationError
from kvstack.apimachinery.objects.text.go_numbers import NumberError, atoi
from kvstack.apimachinery.objects.time_zones import is_known

LOCAL: Final = "Local"


class ScheduleError(ValueError):
    """The text is not a schedule; the message is upstream's."""


class Schedule(NamedTuple):
    """The times of a schedule: `every`, or the minutes that all the sets contain."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    """Days of the month, from 1."""
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    """From Sunday, 0."""
    every_day: bool = True
    """Whether the days of the month were written with a star."""
    every_weekday: bool = True
    zone: str = LOCAL
    every: int = 0
    """Nanoseconds between two times, whole seconds and at least one; 0: the sets count."""


class _Field(NamedTuple):
    """The allowed values of a field."""

    low: int
    high: int
    names: Mapping[str, int] = {}


def _numbered(words: str, first: int) -> Mapping[str, int]:
    return {word: number for number, word in enumerate(words.split(), first)}


_MINUTE: Final = _Field(0, 59)
_HOUR: Final = _Field(0, 23)
_DAY: Final = _Field(1, 31)
_MONTH: Final = _Field(1, 12, _numbered("jan feb mar apr may jun jul aug sep oct nov dec", 1))
_WEEKDAY: Final = _Field(0, 6, _numbered("sun mon tue wed thu fri sat", 0))
_FIELDS: Final = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)
_STARS: Final = frozenset({"*", "?"})
_ZONE_PREFIXES: Final = ("TZ=", "CRON_TZ=")
_EVERY: Final = "@every "
_SECOND: Final = 1_000_000_000
_WORDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def parse(text: str) -> Schedule:
    """Return the schedule of a text; raises ScheduleError."""
    if not text:
        raise ScheduleError("empty spec string")
    zone = LOCAL
    if text.startswith(_ZONE_PREFIXES):
        zone, text = _split_zone(text)
    if text.startswith("@"):
        return _described(text, zone)
    return _listed(text, zone)


def _split_zone(text: str) -> tuple[str, str]:
    front, blank, rest = text.partition(" ")
    if not blank:
        # Upstream panics here, with this message.
        raise ScheduleError(
            "invalid schedule format: runtime error: slice bounds out of range [:-1]"
        )
    zone = front.partition("=")[2]
    if zone and zone not in {"UTC", LOCAL}:
        is_path = zone.startswith(("/", "\\")) or ".." in zone
        if is_path or not is_known(zone):
            problem = "time: invalid location name" if is_path else f"unknown time zone {zone}"
            raise ScheduleError(f"provided bad location {zone}: {problem}")
    return zone or "UTC", rest.strip()


def _described(text: str, zone: str) -> Schedule:
    if text in _WORDS:
        return _listed(_WORDS[text], zone)
    if not text.startswith(_EVERY):
        raise ScheduleError(f"unrecognized descriptor: {text}")
    try:
        duration = durations.parse(text.removeprefix(_EVERY))
    except DurationError as error:
        raise ScheduleError(f"failed to parse duration {text}: {error}") from None
    return Schedule(zone=zone, every=max(_SECOND, duration - duration % _SECOND))


def _listed(text: str, zone: str) -> Schedule:
    fields = text.split()
    if len(fields) != len(_FIELDS):
        found = " ".join(fields)
        raise ScheduleError(
            f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{found}]"
        )
    read = [_read(field, kind) for field, kind in zip(fields, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = (values for values, _ in read)
    return Schedule(minutes, hours, days, months, weekdays, read[2][1], read[4][1], zone)


def _read(field: str, kind: _Field) -> tuple[frozenset[int], bool]:
    """Return the values of a field and whether a star was among them."""
    values: set[int] = set()
    has_star = False
    for part in field.split(","):
        if part:
            numbers, is_star = _read_range(part, kind)
            values.update(numbers)
            has_star = has_star or is_star
    return frozenset(values), has_star


def _read_range(text: str, kind: _Field) -> tuple[range, bool]:
    span, *steps = text.split("/")
    low, *rest = span.split("-")
    is_star = low in _STARS
    if is_star:
        start, end = kind.low, kind.high
    else:
        start = end = _number(low, kind.names)
        if len(rest) > 1:
            raise ScheduleError(f"too many hyphens: {text}")
        if rest:
            end = _number(rest[0], kind.names)
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    step = 1
    if steps:
        step = _number(steps[0], {})
        if not rest:
            end = kind.high
    _check_range(text, start, end, step, kind)
    return range(start, end + 1, step), is_star and step <= 1


def _check_range(text: str, start: int, end: int, step: int, kind: _Field) -> None:
    if start < kind.low:
        raise ScheduleError(f"beginning of range ({start}) below minimum ({kind.low}): {text}")
    if end > kind.high:
        raise ScheduleError(f"end of range ({end}) above maximum ({kind.high}): {text}")
    if start > end:
        raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")


def _number(text: str, names: Mapping[str, int]) -> int:
    named = names.get(text.lower())
    if named is not None:
        return named
    try:
        number = atoi(text)
    except NumberError as error:
        raise ScheduleError(f"failed to parse int from {text}: {error}") from None
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number
