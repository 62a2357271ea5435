"""Numbers as Go's strconv reads them from text, with its error texts.

    parse_int("-7")      → -7
    parse_int("x")       → NumberError: strconv.ParseInt: parsing "x": invalid syntax
    atoi("9"*30)         → NumberError: strconv.Atoi: parsing "999…": value out of range

Python's own `int` takes blanks, underscores and digits of other scripts; these do not.
"""

import math
import struct
from typing import Final

from kvstack.apiserver.objects.go_text import quote

_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))


class NumberError(ValueError):
    """A text that is no such number; the message is Go's."""


def parse_int(text: str, bits: int = 64, function: str = "ParseInt") -> int:
    """Return the signed integer of a decimal text; raises NumberError."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    magnitude = _magnitude(digits, text, function)
    number = -magnitude if text[0] == "-" else magnitude
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise _out_of_range(text, function)
    return number


def parse_uint(text: str, bits: int = 64) -> int:
    """Return the integer of decimal digits without a sign; raises NumberError."""
    number = _magnitude(text, text, "ParseUint")
    if number >= 1 << bits:
        raise _out_of_range(text, "ParseUint")
    return number


def atoi(text: str) -> int:
    """Return the integer of a decimal text as Go's Atoi does; raises NumberError."""
    return parse_int(text, 64, "Atoi")


def parse_bool(text: str) -> bool:
    """Return the truth a text stands for; raises NumberError."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise NumberError(f"strconv.ParseBool: parsing {quote(text)}: invalid syntax")


def _magnitude(digits: str, text: str, function: str) -> int:
    if not (digits.isascii() and digits.isdigit()):
        raise NumberError(f"strconv.{function}: parsing {quote(text)}: invalid syntax")
    significant = digits.lstrip("0")
    if len(significant) > 20:
        raise _out_of_range(text, function)
    return int(significant or "0")


def _out_of_range(text: str, function: str) -> NumberError:
    return NumberError(f"strconv.{function}: parsing {quote(text)}: value out of range")


def format_float(number: float, bits: int = 64) -> str:
    """Return the shortest text of a float as Go's 'g' format has it; bits: 32 or 64."""
    if not math.isfinite(number):
        return {float("inf"): "+Inf", float("-inf"): "-Inf"}.get(number, "NaN")
    sign, digits, exponent = _shortest(number, bits)
    if -4 <= exponent < 6:
        return sign + _positional(digits, exponent)
    return sign + _exponential(digits, exponent)


def format_json_float(number: float) -> str:
    """Return the text of a float as Go's JSON encoder writes it; raises ValueError as it does."""
    if not math.isfinite(number):
        raise ValueError(f"json: unsupported value: {format_float(number)}")
    sign, digits, exponent = _shortest(number, 64)
    if number == 0 or -6 <= exponent < 21:
        return sign + _positional(digits, exponent)
    return sign + _exponential(digits, exponent).replace("e-0", "e-")


def _shortest(number: float, bits: int) -> tuple[str, str, int]:
    """Return the sign, the fewest digits that tell the number, and the exponent of the first."""
    text = repr(number) if bits == 64 else _shortest_single(number)
    mantissa, _, power = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(power or "0") + len(whole) - 1 - (len(whole + fraction) - len(digits))
    sign = "-" if text.startswith("-") else ""
    return (sign, digits.rstrip("0"), exponent) if digits else (sign, "0", 0)


def _shortest_single(number: float) -> str:
    """Return the fewest digits that a float of 32 bits comes back from."""
    try:
        wanted = struct.pack("f", number)
    except OverflowError:
        return "1e39"
    for precision in range(1, 10):
        text = f"{number:.{precision}g}"
        if struct.pack("f", float(text)) == wanted:
            return text
    return repr(number)


def _positional(digits: str, exponent: int) -> str:
    if exponent < 0:
        return f"0.{'0' * (-exponent - 1)}{digits}"
    if len(digits) <= exponent + 1:
        return digits.ljust(exponent + 1, "0")
    return f"{digits[: exponent + 1]}.{digits[exponent + 1 :]}"


def _exponential(digits: str, exponent: int) -> str:
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
