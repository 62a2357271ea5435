"""Conversions between the plain types, sizes, and what moments and spans of time are made of."""

import datetime as dt
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.text.go_floats import format_float
from kvstack.apimachinery.objects.text.go_numbers import NumberError, atoi, parse_bool, parse_int
from kvstack.apimachinery.objects.text.go_numbers import parse_uint as parse_unsigned
from kvstack.apimachinery.objects.time_zones import is_known
from kvstack.apimachinery.objects.times import TimeError, parse_time
from kvstack.cel.checker.functions import Functions, declared, merged
from kvstack.cel.errors import CelError
from kvstack.cel.values import (
    INT_MAX,
    Duration,
    Timestamp,
    Uint,
)

_SECOND: Final = 1_000_000_000
SECONDS_MIN: Final = -62135596800
SECONDS_MAX: Final = 253402300799
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PARTS: Final = {
    "getFullYear": ("year", lambda time: time.year),
    "getMonth": ("month", lambda time: time.month - 1),
    "getDayOfYear": ("day_of_year", lambda time: time.timetuple().tm_yday - 1),
    "getDayOfMonth": ("day_of_month", lambda time: time.day - 1),
    "getDate": ("day_of_month_1_based", lambda time: time.day),
    "getDayOfWeek": ("day_of_week", lambda time: (time.weekday() + 1) % 7),
    "getHours": ("hours", lambda time: time.hour),
    "getMinutes": ("minutes", lambda time: time.minute),
    "getSeconds": ("seconds", lambda time: time.second),
    "getMilliseconds": ("milliseconds", lambda time: time.microsecond // 1000),
}  # fmt: skip
_SPANS: Final = {
    "getHours": ("hours", 3600 * _SECOND),
    "getMinutes": ("minutes", 60 * _SECOND),
    "getSeconds": ("seconds", _SECOND),
    "getMilliseconds": ("milliseconds", 1_000_000),
}

FUNCTIONS: Final[Functions] = merged(
    declared("""
        size: (bytes) -> int @ size_bytes
        size: bytes.() -> int @ bytes_size
        size: (list(A)) -> int @ size_list
        size: list(A).() -> int @ list_size
        size: (map(A, B)) -> int @ size_map
        size: map(A, B).() -> int @ map_size
        size: (string) -> int @ size_string
        size: string.() -> int @ string_size
        bool: (bool) -> bool @ bool_to_bool
        bool: (string) -> bool @ string_to_bool
        bytes: (bytes) -> bytes @ bytes_to_bytes
        bytes: (string) -> bytes @ string_to_bytes
        double: (double) -> double @ double_to_double
        double: (int) -> double @ int64_to_double
        double: (string) -> double @ string_to_double
        double: (uint) -> double @ uint64_to_double
        duration: (duration) -> duration @ duration_to_duration
        duration: (string) -> duration @ string_to_duration
        int: (int) -> int @ int64_to_int64
        int: (double) -> int @ double_to_int64
        int: (duration) -> int @ duration_to_int64
        int: (string) -> int @ string_to_int64
        int: (timestamp) -> int @ timestamp_to_int64
        int: (uint) -> int @ uint64_to_int64
        string: (string) -> string @ string_to_string
        string: (bool) -> string @ bool_to_string
        string: (bytes) -> string @ bytes_to_string
        string: (double) -> string @ double_to_string
        string: (duration) -> string @ duration_to_string
        string: (int) -> string @ int64_to_string
        string: (timestamp) -> string @ timestamp_to_string
        string: (uint) -> string @ uint64_to_string
        timestamp: (timestamp) -> timestamp @ timestamp_to_timestamp
        timestamp: (int) -> timestamp @ int64_to_timestamp
        timestamp: (string) -> timestamp @ string_to_timestamp
        uint: (uint) -> uint @ uint64_to_uint64
        uint: (double) -> uint @ double_to_uint64
        uint: (int) -> uint @ int64_to_uint64
        uint: (string) -> uint @ string_to_uint64
    """),
    declared(
        "\n".join(
            f"{name}: timestamp.({zone}) -> int @ timestamp_to_{word}{suffix}"
            for name, (word, _) in _PARTS.items()
            for zone, suffix in (("", ""), ("string", "_with_tz"))
        )
    ),
    declared(
        "\n".join(
            f"{name}: duration.() -> int @ duration_to_{word}" for name, (word, _) in _SPANS.items()
        )
    ),
)


def _failed(to_name: str, from_name: str = "string") -> CelError:
    return CelError(f"type conversion error from '{from_name}' to '{to_name}'")


def _checked(convert: Callable[[str], Any], to_name: str) -> Callable[[str], Any]:
    def converted(text: str) -> Any:  # noqa: ANN401
        try:
            return convert(text)
        except (NumberError, ValueError):
            raise _failed(to_name) from None

    return converted


def _float(text: str) -> float:
    if text != text.strip() or ("_" in text and not text.lower().startswith("0x")):
        raise ValueError(text)
    if text.lower().lstrip("+-").startswith("0x"):
        if "p" not in text.lower():
            raise ValueError(text)
        return float.fromhex(text)
    number = float(text)
    if math.isinf(number) and "inf" not in text.lower():
        raise ValueError(text)
    return number


def _float_to_int(number: float) -> int:
    if not -(2.0**63) < number < 2.0**63:
        raise CelError("integer overflow")
    return int(number)


def _float_to_uint(number: float) -> Uint:
    if not 0 <= number < 2.0**64:
        raise CelError("unsigned integer overflow")
    return Uint(int(number))


def _int_to_uint(number: int) -> Uint:
    if number < 0:
        raise CelError("unsigned integer overflow")
    return Uint(number)


def _uint_to_int(number: Uint) -> int:
    if number > INT_MAX:
        raise CelError("integer overflow")
    return int(number)


def _text_of_bytes(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def duration_text(span: Duration) -> str:
    """Return a span of time in seconds: `5400s`."""
    seconds, rest = divmod(abs(span.nanoseconds), _SECOND)
    number = seconds + rest / _SECOND
    text = format_float(number)
    if "e" in text:
        text = f"{number:.20f}".rstrip("0").rstrip(".")
    return f"{'-' if span.nanoseconds < 0 else ''}{text}s"


def timestamp_text(time: Timestamp) -> str:
    """Return a moment as RFC 3339 has it, with as many digits of a second as it needs."""
    seconds, rest = divmod(time.nanoseconds, _SECOND)
    zone = time.offset
    text = (_EPOCH + dt.timedelta(seconds=seconds + zone * 60)).strftime("%m-%dT%H:%M:%S")
    year = (_EPOCH + dt.timedelta(seconds=seconds + zone * 60)).year
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{year:04d}-{text}{fraction}{_zone_text(zone)}"


def _zone_text(minutes: int) -> str:
    if minutes == 0:
        return "Z"
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}"


def parse_timestamp(text: str) -> Timestamp:
    """Return the moment of a text; raises CelError."""
    try:
        moment = parse_time(text)
    except TimeError:
        raise _failed("google.protobuf.Timestamp") from None
    if not SECONDS_MIN <= moment.seconds <= SECONDS_MAX:
        raise CelError("timestamp overflow")
    return Timestamp(moment.seconds * _SECOND + moment.nanoseconds, _offset(text))


def _offset(text: str) -> int:
    """Return the minutes east of UTC of a text that is a time."""
    if text[-1] in "Zz":
        return 0
    minutes = int(text[-5:-3]) * 60 + int(text[-2:])
    return -minutes if text[-6] == "-" else minutes


def _seconds_to_timestamp(seconds: int) -> Timestamp:
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise CelError("timestamp overflow")
    return Timestamp(seconds * _SECOND)


def parse_duration(text: str) -> Duration:
    """Return the span of a text; raises CelError."""
    try:
        return Duration(durations.parse(text))
    except durations.DurationError:
        raise _failed("google.protobuf.Duration") from None


def _zone(name: str) -> dt.tzinfo | int:
    """Return a time zone, or how many minutes east of UTC it is."""
    hours_text, colon, minutes_text = name.partition(":")
    if not colon:
        if name in {"", "UTC"}:
            return dt.UTC
        if not is_known(name):
            raise CelError(f"unknown time zone {name}")
        return ZoneInfo(name)
    try:
        hours, minutes = atoi(hours_text), atoi(minutes_text)
    except NumberError as error:
        raise CelError(str(error)) from None
    if not 0 <= minutes <= 59:
        raise CelError(f"timezone offset minutes out of range [0, 59]: {name}")
    return hours * 60 - minutes if name[0] == "-" else hours * 60 + minutes


def _civil(time: Timestamp, zone: str | None = None) -> dt.datetime:
    seconds, rest = divmod(time.nanoseconds, _SECOND)
    moment = _EPOCH + dt.timedelta(seconds=seconds, microseconds=rest // 1000)
    if zone is None:
        return moment.replace(tzinfo=None) + dt.timedelta(minutes=time.offset)
    found = _zone(zone)
    if isinstance(found, int):
        return moment.replace(tzinfo=None) + dt.timedelta(minutes=found)
    return moment.astimezone(found)


def _part(pick: Callable[[dt.datetime], int], time: Timestamp, *zone: str) -> int:
    try:
        return pick(_civil(time, *zone))
    except OverflowError:
        raise CelError("timestamp overflow") from None


def _whole(unit: int, span: Duration) -> int:
    count = abs(span.nanoseconds) // unit
    return -count if span.nanoseconds < 0 else count


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


IMPLEMENTATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "size_bytes": len,
    "bytes_size": len,
    "size_list": len,
    "list_size": len,
    "size_map": len,
    "map_size": len,
    "size_string": len,
    "string_size": len,
    "bool_to_bool": _same,
    "string_to_bool": _checked(parse_bool, "bool"),
    "bytes_to_bytes": _same,
    "string_to_bytes": lambda text: text.encode("utf-8", "surrogatepass"),
    "double_to_double": _same,
    "int64_to_double": float,
    "string_to_double": _checked(_float, "double"),
    "uint64_to_double": float,
    "duration_to_duration": _same,
    "string_to_duration": parse_duration,
    "int64_to_int64": _same,
    "double_to_int64": _float_to_int,
    "duration_to_int64": lambda span: span.nanoseconds,
    "string_to_int64": _checked(parse_int, "int"),
    "timestamp_to_int64": lambda time: time.nanoseconds // _SECOND,
    "uint64_to_int64": _uint_to_int,
    "string_to_string": _same,
    "bool_to_string": lambda value: "true" if value else "false",
    "bytes_to_string": _text_of_bytes,
    "double_to_string": format_float,
    "duration_to_string": duration_text,
    "int64_to_string": str,
    "timestamp_to_string": timestamp_text,
    "uint64_to_string": lambda number: str(int(number)),
    "timestamp_to_timestamp": _same,
    "int64_to_timestamp": _seconds_to_timestamp,
    "string_to_timestamp": parse_timestamp,
    "uint64_to_uint64": _same,
    "double_to_uint64": _float_to_uint,
    "int64_to_uint64": _int_to_uint,
    "string_to_uint64": _checked(lambda text: Uint(parse_unsigned(text)), "uint"),
    **{
        f"timestamp_to_{word}{suffix}": partial(_part, pick)
        for word, pick in _PARTS.values()
        for suffix in ("", "_with_tz")
    },
    **{f"duration_to_{word}": partial(_whole, unit) for word, unit in _SPANS.values()},
}
