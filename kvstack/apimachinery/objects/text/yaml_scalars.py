"""Scalars of YAML as upstream understands them: YAML 1.1, with exceptions of its own.

    resolve("", "yes")    → (BOOL, True)        resolve(STR, "yes")  → (STR, "yes")
    resolve("", "0o17")   → (INT, 15)           resolve("", "1_000") → (INT, 1000)
    resolve("", "12:30")  → (STR, "12:30")      numbers to the base of 60 are texts

A tag is written in full, `tag:yaml.org,2002:int`; the empty one stands for a scalar without quotes
whose form decides. A time resolves to its text.
"""

import base64
import math
import re
from typing import Final

from kvstack.apimachinery.objects.text.go_floats import format_float
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.objects.text.json_text import Json

Scalar = str | int | float | bool | None

_TAG_PREFIX: Final = "tag:yaml.org,2002:"
STR: Final = _TAG_PREFIX + "str"
INT: Final = _TAG_PREFIX + "int"
FLOAT: Final = _TAG_PREFIX + "float"
BOOL: Final = _TAG_PREFIX + "bool"
NULL: Final = _TAG_PREFIX + "null"
MERGE: Final = _TAG_PREFIX + "merge"
BINARY: Final = _TAG_PREFIX + "binary"
TIMESTAMP: Final = _TAG_PREFIX + "timestamp"
_RESOLVABLE: Final = frozenset((STR, BOOL, INT, FLOAT, NULL, TIMESTAMP))

_WORDS: Final[dict[str, tuple[str, Scalar]]] = {
    **{
        word: (BOOL, value)
        for value, names in ((True, "y yes true on"), (False, "n no false off"))
        for name in names.split()
        for word in (name, name.capitalize(), name.upper())
    },
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), (NULL, None)),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), (FLOAT, float("nan"))),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), (FLOAT, float("inf"))),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), (FLOAT, float("-inf"))),
}
_SPECIAL_FIRST: Final = frozenset("yYnNtTfFoO~.+-0123456789")
"""First characters of plain scalars that may be no strings."""
_NUMBER_FIRST: Final = frozenset("+-0123456789")
_INTEGER: Final = re.compile(
    r"[-+]?(?:0[bB][01]+|0[oO][0-7]+|0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)"
)
_NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASE_60: Final = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_INTEGER_DIGITS_MAX: Final = 100
_BASES: Final = {"0b": 2, "0o": 8, "0x": 16}
_DATE: Final = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"(?:(?:(?P<t>[Tt])| +)(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2}):(?P<second>[0-9]{1,2})"
    r"(?:[.,][0-9]+)?(?(t)(?:Z|[+-](?P<zone_hour>[0-9]{2}):(?P<zone_minute>[0-9]{2}))))?"
)
_BASE64: Final = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII
)
_NO_BREAKS: Final = str.maketrans("", "", "\r\n")
_BYTE: Final = re.compile("[\udc80-\udcff]")
_DATE_MAXIMA: Final = {
    "month": 12, "hour": 23, "minute": 59, "second": 59, "zone_hour": 24, "zone_minute": 60,
}  # fmt: skip
_MONTH_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FLOAT_NAMES: Final = {"+Inf": ".inf", "-Inf": "-.inf", "NaN": ".nan"}


class YamlError(ValueError):
    """The text is not YAML, or cannot be an object; the message is upstream's."""


def resolve(tag: str, text: str) -> tuple[str, Scalar]:
    """Return the tag and the value of a scalar; raises YamlError."""
    if tag == "":
        return _resolve_plain(text)
    if tag == STR:
        return STR, text
    if tag == BINARY:
        return STR, _decoded(text)
    if tag not in _RESOLVABLE:
        return tag, text
    found, value = _resolve_plain(text)
    if found == INT and tag == FLOAT and isinstance(value, int):
        return FLOAT, float(value)
    if found != tag and not (tag == TIMESTAMP and _is_date(text)):
        raise YamlError(f"yaml: cannot decode {_short(found)} `{text}` as a {_short(tag)}")
    return tag, value


def _resolve_plain(text: str) -> tuple[str, Scalar]:
    """Return the tag and the value of a scalar without quotes or tag."""
    if text and text[0] not in _SPECIAL_FIRST:
        return STR, text
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        number = _float(text) if _NUMBER.fullmatch(text) else None
        return (STR, text) if number is None else (FLOAT, number)
    if text[0] in _NUMBER_FIRST:
        plain = text.replace("_", "")
        if len(plain) <= _INTEGER_DIGITS_MAX and _INTEGER.fullmatch(plain):
            integer = _int(plain)
            if integer is not None:
                return INT, integer
        if _NUMBER.fullmatch(plain) and (number := _float(plain)) is not None:
            return FLOAT, number
    return STR, text


def _int(text: str) -> int | None:
    """Return the integer of a text with or without the prefix of a base; None beyond 64 bits."""
    digits = text.lstrip("+-").lower()
    if digits[:2] in _BASES:
        number = int(digits[2:], _BASES[digits[:2]])
    else:
        number = int(digits, 8 if digits[0] == "0" else 10)
    if text[0] == "-":
        return -number if number <= 2**63 else None
    return number if number < (2**63 if text[0] == "+" else 2**64) else None


def _float(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _decoded(text: str) -> str:
    """Return the text in base64; bytes that are not UTF-8 are replaced one by one."""
    digits = text.translate(_NO_BREAKS)
    if _BASE64.fullmatch(digits) is None:
        raise YamlError("yaml: !!binary value contains invalid base64 data")
    return _BYTE.sub("\ufffd", base64.b64decode(digits).decode(errors="surrogateescape"))


def _short(tag: str) -> str:
    return "!!" + tag.removeprefix(_TAG_PREFIX) if tag.startswith(_TAG_PREFIX) else tag


def needs_quotes(text: str) -> bool:
    """Return whether a text would be something else without quotes."""
    if _resolve_plain(text)[0] != STR or _is_date(text):
        return True
    return ":" in text and _BASE_60.fullmatch(text) is not None


def _is_date(text: str) -> bool:
    """Return whether a plain scalar would be a time, which is written in quotes."""
    match = _DATE.fullmatch(text) if text[4:5] == "-" else None
    if match is None:
        return False
    numbers = {name: int(each) for name, each in match.groupdict("0").items() if each.isdigit()}
    if any(numbers[name] > maximum for name, maximum in _DATE_MAXIMA.items()):
        return False
    year, month = numbers["year"], numbers["month"]
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    longest = 29 if month == 2 and is_leap else _MONTH_DAYS[month - 1]
    return month >= 1 and 1 <= numbers["day"] <= longest


def member_name(key: Scalar, value: Json) -> str:
    """Return the member's name that a key of a mapping becomes."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, float):
        name = format_float(key, 32)
        return _FLOAT_NAMES.get(name, name)
    if isinstance(key, int) and key < 2**63:
        return str(key)
    raise unsupported_key(key, value)


def unsupported_key(key: int | None, value: Json) -> YamlError:
    """Return the error for a key that cannot be a member's name, and for its value."""
    kind, shown = ("%!s(<nil>)", "<nil>") if key is None else ("uint64", hex(key))
    return YamlError(
        f"unsupported map key of type: {kind}, key: {shown}, value: {go_syntax(value)}"
    )


def go_key(key: Scalar) -> str:
    """Return a duplicate key as upstream prints it."""
    return hex(key) if isinstance(key, int) and key >= 2**63 else go_syntax(key)


def go_syntax(value: Json) -> str:
    """Return a value as Go's %#v prints it."""
    if isinstance(value, dict):
        members = ", ".join(f"{go_syntax(name)}:{_go_item(each)}" for name, each in value.items())
        return f"map[interface {{}}]interface {{}}{{{members}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_item, value))}}}"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_float(value)
    return "<nil>" if value is None else str(value)


def _go_item(value: Json) -> str:
    return "interface {}(nil)" if value is None else go_syntax(value)
