"""Numbers as Go's strconv reads them from text, with its error texts.

    parse_int("-7")      → -7
    parse_int("x")       → NumberError: strconv.ParseInt: parsing "x": invalid syntax
    atoi("9"*30)         → NumberError: strconv.Atoi: parsing "999…": value out of range

Python's own `int` takes blanks, underscores and digits of other scripts; these do not.
"""

from typing import Final

from kvstack.apimachinery.objects.text.go_text import quote

_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))


class NumberError(ValueError):
    """The text is not such a number; the message is Go's."""


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
    """Return the boolean of a text; raises NumberError."""
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
