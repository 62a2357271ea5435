"""Durations as Go writes them: `1h0m0s`, `1.5s`, `250ms`.

    parse("1h30m")   → 5_400_000_000_000       nanoseconds
    text(90 * 10**9) → "1m30s"

Not the ages that people read in tables: those are `times.human_duration`.
"""

from typing import Final

from kvstack.apimachinery.objects.text.go_text import quote_time

NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_LARGEST: Final = 1 << 63
_DIGITS: Final = frozenset("0123456789")
_SECOND: Final = 1_000_000_000


class DurationError(ValueError):
    """The text is not a duration; the message is Go's."""


def parse(text: str) -> int:
    """Return the nanoseconds of a duration; raises DurationError."""
    rest = text[1:] if text[:1] in {"+", "-"} else text
    if rest == "0":
        return 0
    if not rest:
        raise _error("invalid duration", text)
    total = 0
    while rest:
        nanoseconds, rest = _parse_term(rest, text)
        total += nanoseconds
        if total > _LARGEST:
            raise _error("invalid duration", text)
    if text[0] == "-":
        return -total
    if total == _LARGEST:
        raise _error("invalid duration", text)
    return total


def text(nanoseconds: int) -> str:
    """Return the canonical text of a duration."""
    if nanoseconds == 0:
        return "0s"
    sign = "-" if nanoseconds < 0 else ""
    length = abs(nanoseconds)
    for unit in ("ns", "\u00b5s", "ms"):
        if length < 1000 * NANOSECONDS[unit]:
            return f"{sign}{_decimal(length, NANOSECONDS[unit])}{unit}"
    minutes, rest = divmod(length, 60 * _SECOND)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest, _SECOND)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def canonical(duration: str) -> str:
    """Return the canonical text of a duration; raises DurationError."""
    return text(parse(duration))


def _parse_term(rest: str, whole: str) -> tuple[int, str]:
    """Return the nanoseconds of one number with its unit, and what follows it."""
    digits, rest = _leading(rest, _DIGITS)
    significant = digits.lstrip("0") or "0"
    if len(significant) > 19 or int(significant) > _LARGEST:
        raise _error("invalid duration", whole)
    fraction = ""
    if rest[:1] == ".":
        fraction, rest = _leading(rest[1:], _DIGITS)
    if not digits and not fraction:
        raise _error("invalid duration", whole)
    end = 0
    while end < len(rest) and rest[end] != "." and rest[end] not in _DIGITS:
        end += 1
    unit, rest = rest[:end], rest[end:]
    if not unit:
        raise _error("missing unit in duration", whole)
    if unit not in NANOSECONDS:
        raise _error(f"unknown unit {quote_time(unit)} in duration", whole)
    return _scaled(int(significant), fraction, NANOSECONDS[unit], whole), rest


def _scaled(number: int, fraction: str, unit: int, whole: str) -> int:
    if number > _LARGEST // unit:
        raise _error("invalid duration", whole)
    nanoseconds = number * unit
    # Go keeps as many digits of the fraction as fit into 63 bits, and computes it in floats.
    significant = fraction.lstrip("0")
    kept = 19 if int(significant[:18] or "0") <= (_LARGEST - 1) // 10 else 18
    if significant:
        digits = significant[:kept]
        scale = float(f"1e{len(fraction) - len(significant) + len(digits)}")
        nanoseconds += int(float(int(digits)) * (unit / scale))
    if nanoseconds > _LARGEST:
        raise _error("invalid duration", whole)
    return nanoseconds


def _leading(rest: str, characters: frozenset[str]) -> tuple[str, str]:
    end = 0
    while end < len(rest) and rest[end] in characters:
        end += 1
    return rest[:end], rest[end:]


def _decimal(number: int, unit: int) -> str:
    whole, rest = divmod(number, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{str(rest).rjust(len(str(unit)) - 1, '0').rstrip('0')}"


def _error(message: str, whole: str) -> DurationError:
    return DurationError(f"time: {message} {quote_time(whole)}")
