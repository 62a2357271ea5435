"""Times of objects: RFC 3339 in seconds or microseconds, Go's zero, ages as people read them.

    canonical_time("2024-05-01T12:00:00.9+02:00")  → "2024-05-01T10:00:00Z"
    canonical_time("0001-01-01T00:00:00Z")         → None: Go's zero time is written as null
    human_duration(200)                            → "3m20s"

A moment is a pair of seconds since 1970 and nanoseconds. The accepted texts and the errors are
those of Go's time.Parse. The current time is an argument.
"""

from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.text.go_text import quote_time

ZERO_SECONDS: Final = -62_135_596_800
"""Go's zero time, 0001-01-01T00:00:00Z, in seconds since 1970."""

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400
_YEAR_DAYS: Final = 365
_MONTH_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_CACHED_TEXT_MAX: Final = 64

_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"
_FIELDS: Final = (
    # What stands before a number, its name in Go's layout, its highest value, its name in errors.
    ("-", "01", 12, "month"),
    ("-", "02", 99, ""),
    ("T", "15", 23, "hour"),
    (":", "04", 59, "minute"),
    (":", "05", 59, "second"),
)


class TimeError(ValueError):
    """The text is not a time; the message is Go's."""


class Moment(NamedTuple):
    """A point in time."""

    seconds: int
    """Since 1970, UTC."""
    nanoseconds: int

    @property
    def is_zero(self) -> bool:
        """Whether it is Go's zero time, which stands for none."""
        return self == (ZERO_SECONDS, 0)


def parse_time(text: str) -> Moment:
    """Return the moment of an RFC 3339 text, its fraction included; raises TimeError."""
    if len(text) == 20 and text[19] == "Z" and text.isascii():
        moment = _parse_plain(text)
        if moment is not None:
            return moment
    return _Scanner(text, _LAYOUT).parse()


def parse_micro_time(text: str) -> Moment:
    """Return the moment of an RFC 3339 text with exactly six digits of fraction."""
    return _Scanner(text, _MICRO_LAYOUT).parse()


def canonical_time(text: str) -> str | None:
    """Return a time as metav1.Time is written: UTC, seconds; None for Go's zero time."""
    return _canonical_time(text) if len(text) <= _CACHED_TEXT_MAX else _write_time(text)


def canonical_micro_time(text: str) -> str | None:
    """Return a time as metav1.MicroTime is written: UTC, six digits; None for Go's zero time."""
    if _is_plain_micro(text):
        return text
    moment = parse_micro_time(text)
    return None if moment.is_zero else format_micro_time(moment)


def format_time(seconds: float) -> str:
    """Return the time so many seconds after 1970, without its fraction."""
    return _format_time(int(seconds // 1))


@lru_cache(maxsize=256)
def _format_time(seconds: int) -> str:
    day, rest = divmod(seconds, _DAY)
    year, month, of_month = _civil(day)
    hour, rest = divmod(rest, _HOUR)
    minute, second = divmod(rest, _MINUTE)
    sign = "-" if year < 0 else ""
    date = f"{sign}{abs(year):04d}-{month:02d}-{of_month:02d}"
    return f"{date}T{hour:02d}:{minute:02d}:{second:02d}Z"


def format_micro_time(moment: Moment) -> str:
    """Return the moment with six digits of fraction."""
    return f"{format_time(moment.seconds)[:-1]}.{moment.nanoseconds // 1000:06d}Z"


def micro_time_text(now_s: float) -> str:
    """Return the time so many seconds after 1970 with six digits of fraction."""
    seconds = int(now_s // 1)
    return format_micro_time(Moment(seconds, int((now_s - seconds) * 1e9)))


def human_duration(seconds: float) -> str:
    """Return a length of time in two or three figures, as the AGE column of kubectl has it."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole == -1 else "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    minutes, hours, days = whole // _MINUTE, whole // _HOUR, whole // _DAY
    if minutes < 10:
        return _two(minutes, "m", whole % _MINUTE, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * _YEAR_DAYS:
        return f"{days}d"
    years = days // _YEAR_DAYS
    return _two(years, "y", days % _YEAR_DAYS, "d") if years < 8 else f"{years}y"


def age(created: str | None, now: float) -> str:
    """Return how long ago an object was made, `<unknown>` without a time; now: Unix seconds."""
    if not created:
        return "<unknown>"
    moment = parse_time(created)
    if moment.is_zero:
        return "<unknown>"
    return human_duration(now - moment.seconds)


def _two(first: int, unit: str, second: int, smaller: str) -> str:
    return f"{first}{unit}{second}{smaller}" if second else f"{first}{unit}"


@lru_cache(maxsize=1024)
def _canonical_time(text: str) -> str | None:
    return _write_time(text)


def _write_time(text: str) -> str | None:
    moment = parse_time(text)
    return None if moment.is_zero else format_time(moment.seconds)


def _is_plain_micro(text: str) -> bool:
    """Return whether a text is a time with six digits as it would be written."""
    if not (len(text) == 27 and text[19] == "." and text[26] == "Z" and _is_digits(text[20:26])):
        return False
    whole = f"{text[:19]}Z"
    try:
        return canonical_time(whole) == whole
    except TimeError:
        return False  # what is wrong is told of the whole text


def _parse_plain(text: str) -> Moment | None:
    """Return the moment of a text in the usual form, None if it is not in that form."""
    if not (text[4] == text[7] == "-" and text[10] == "T" and text[13] == text[16] == ":"):
        return None
    if text[11:13] == "24":
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    days = moment.toordinal() - 719_163
    return Moment(days * _DAY + moment.hour * _HOUR + moment.minute * _MINUTE + moment.second, 0)


class _Scanner:
    """Reads a text from left to right as Go's time.Parse does with one of two layouts."""

    def __init__(self, text: str, layout: str) -> None:
        self._text = text
        self._rest = text
        self._layout = layout

    def parse(self) -> Moment:
        year = self._year()
        month, day, hour, minute, second = (self._number(*each) for each in _FIELDS)
        nanoseconds = self._fraction()
        offset = self._zone()
        if self._rest:
            raise TimeError(
                f"parsing time {quote_time(self._text)}: extra text: {quote_time(self._rest)}"
            )
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        longest = 29 if month == 2 and is_leap else _MONTH_DAYS[month - 1]
        if not 1 <= day <= longest:
            raise self._out_of_range("day")
        seconds = _days(year, month, day) * _DAY + hour * _HOUR + minute * _MINUTE + second
        return Moment(seconds - offset, nanoseconds)

    def _year(self) -> int:
        digits = self._rest[:4]
        if len(digits) < 4 or not _is_digits(digits):
            raise self._bad("2006")
        self._rest = self._rest[4:]
        return int(digits)

    def _number(self, before: str, element: str, maximum: int, name: str) -> int:
        if not self._rest.startswith(before):
            raise self._bad(before)
        self._rest = self._rest[1:]
        digits = self._rest[:2]
        # Go takes an hour of one digit.
        if element == "15" and not _is_digits(digits):
            digits = digits[:1]
        if not _is_digits(digits) or (len(digits) < 2 and element != "15"):
            raise self._bad(element)
        self._rest = self._rest[len(digits) :]
        number = int(digits)
        if number > maximum or (number == 0 and name == "month"):
            raise self._out_of_range(name)
        return number

    def _fraction(self) -> int:
        """Return the nanoseconds after the seconds."""
        digits = 0
        if self._rest[:1] in {".", ","}:
            while _is_digits(self._rest[digits + 1 : digits + 2]):
                digits += 1
        if self._layout is _MICRO_LAYOUT:
            if digits < 6:
                raise self._bad(".000000")
            digits = 6
        if digits == 0:
            return 0
        fraction = self._rest[1 : digits + 1]
        self._rest = self._rest[digits + 1 :]
        return int(fraction[:9].ljust(9, "0"))

    def _zone(self) -> int:
        """Return the seconds that the text is ahead of UTC."""
        rest = self._rest
        if rest.startswith("Z"):
            self._rest = rest[1:]
            return 0
        if len(rest) < 6 or rest[3] != ":":
            raise self._bad("Z07:00")
        hour, minute = rest[1:3], rest[4:6]
        if _is_digits(hour):
            if _is_digits(minute) and int(minute) > 60:
                raise self._out_of_range("time zone offset minute")
            if int(hour) > 24:
                raise self._out_of_range("time zone offset hour")
        if rest[0] not in "+-" or not _is_digits(hour + minute):
            raise self._bad("Z07:00")
        self._rest = rest[6:]
        offset = int(hour) * _HOUR + int(minute) * _MINUTE
        return -offset if rest[0] == "-" else offset

    def _bad(self, element: str) -> TimeError:
        return TimeError(
            f"parsing time {quote_time(self._text)} as {quote_time(self._layout)}:"
            f" cannot parse {quote_time(self._rest)} as {quote_time(element)}"
        )

    def _out_of_range(self, name: str) -> TimeError:
        return TimeError(f"parsing time {quote_time(self._text)}: {name} out of range")


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _days(year: int, month: int, day: int) -> int:
    """Return the days from 1970 to a date of the Gregorian calendar, of any year."""
    # Years that begin in March have their leap day last; eras of 400 years are all alike.
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _civil(days: int) -> tuple[int, int, int]:
    """Return the year, month and day that begins so many days after 1970."""
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (month <= 2), month, day
