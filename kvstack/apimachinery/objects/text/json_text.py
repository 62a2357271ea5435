"""JSON as text: read as strictly as Kubernetes reads it, written as Go writes it.

    parse(b'{"a":1,"a":2}')            → {"a": 2}, the last of equal members
    parse(b'{"a":tru}')                → JsonError: invalid character '}' in literal true (…)
    repeated_fields(parse_repeated(b'{"a":{"b":1,"b":2}}'))   → ['duplicate field "a.b"']

`parse` leaves valid text to orjson. What orjson refuses is parsed again, to report the error with
Go's text, or to accept what Go accepts: bytes that are not UTF-8 become U+FFFD. Members that stand
twice are looked for only when a caller asks: `has_repeated` compares the text with the value
written anew, which is cheap, and reads members one by one only if they differ.

A document may nest DEPTH_MAX deep; upstream allows 10,000.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson
from typing_extensions import override

from kvstack.apimachinery.objects.text.go_floats import format_json_float
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.objects.text.json_syntax import DEPTH_MAX, JsonError, check_syntax

Json = Any
"""Any value of JSON: dict, list, str, int, float, bool or None."""

_WRITTEN_DEPTH_MAX: Final = 254
FINDINGS_MAX: Final = 100
"""Limit on the repeated and unknown fields reported for one document."""

_INFINITE: Final = frozenset((float("inf"), float("-inf")))
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_UINT64_MAX: Final = 2**64 - 1
_EXPONENT: Final = re.compile(rb"e[+-][0-9]+(?:[,}\]\n]|$)")
"""Behind a number; a text may look the same."""
_HTML: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


class RepeatedMembers(dict[str, Any]):
    """An object with a repeated member: a dict of the last values, and all members in order."""

    __slots__ = ("members",)

    def __init__(self, members: list[tuple[str, Any]]) -> None:
        """Keep all members in the order of the text."""
        super().__init__(members)
        self.members: Final = members


class HugeNumber(float):
    """A number that no float holds: infinite, and shown as it was written."""

    __slots__ = ("_text",)

    _text: str

    @classmethod
    def of(cls, text: str) -> "HugeNumber":
        """Return the JSON value of a text."""
        number = cls(text)
        number._text = text
        return number

    @override
    def __repr__(self) -> str:
        """Return the text."""
        return self._text


class HugeNumberError(JsonError):
    """A JSON text with a number that no float holds."""

    def __init__(self, text: str) -> None:
        super().__init__(f"json: cannot unmarshal number {text} into Go value of type float64")


def parse_with_huge(data: bytes) -> Json:
    """Return the value of a JSON text that raised HugeNumberError, with `HugeNumber`s."""
    return _load(data, keep_repeated=False, huge=HugeNumber.of)


def has_huge(value: Json) -> bool:
    """Return whether there is such a number in a value."""
    if isinstance(value, HugeNumber):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return isinstance(value, (dict, list)) and any(map(has_huge, inner))


def parse(data: bytes) -> Json:
    """Return the value of a JSON text; raises JsonError."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return _parse_again(data)
    if data.count(b"{") + data.count(b"[") > DEPTH_MAX and is_too_deep(value):
        check_syntax(data)
    return value


def has_repeated(data: bytes, value: Json) -> bool:
    """Return whether any object of a text that `parse` has read has a member twice."""
    text, written = data.strip(), orjson.dumps(value)
    if written == text or _escaped(written) == text:
        return False
    if b"\\u0022" not in text and len(_NAME_END.findall(text)) == written.count(b'":'):
        # Colons within strings are on both sides, so the members are as many.
        return False
    return any(isinstance(each, RepeatedMembers) for each in _objects(parse_repeated(data)))


def parse_repeated(data: bytes) -> Json:
    """Return the value of a text that `parse` has read; RepeatedMembers where a member repeats."""
    return _load(data, keep_repeated=True)


def repeated_fields(value: Json) -> list[str]:
    """Return the errors for repeated members, in the order of the text, at most 100.

    For values without a type: of one that has a type, its decoder must look, because fields it does
    not know are not looked into.
    """
    found: dict[str, None] = {}
    _find_repeated(value, None, found)
    return list(found)


def duplicate_field(path: str) -> str:
    """Return the error for a repeated member."""
    return f"duplicate field {quote(path)}"


def unknown_field(path: str) -> str:
    """Return the error for a member that its type does not have."""
    return f"unknown field {quote(path)}"


def write(value: Json) -> bytes:
    """Return compact JSON as Go's encoder writes it, members in the given order."""
    return _dumped(value, 0)


def write_indented(value: Json) -> bytes:
    """Return JSON indented by two blanks a level, as for people."""
    return _dumped(value, orjson.OPT_INDENT_2)


def write_sorted(value: Json) -> bytes:
    """Return compact JSON with members sorted by name, as Go writes maps."""
    return _dumped(value, orjson.OPT_SORT_KEYS)


def exact(text: bytes) -> bytes:
    """Return a text in a block of its own length, for callers that keep it long.

    orjson returns what it wrote in the block it wrote to: 4 KiB or more for half a KiB of text.
    """
    return bytes(memoryview(text))


def is_too_deep(value: Json) -> bool:
    """Return whether lists and objects nest deeper than DEPTH_MAX."""
    # orjson writes values up to a depth of its own: the difference goes around the value.
    for _ in range(_WRITTEN_DEPTH_MAX - DEPTH_MAX):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False


def copied(value: Json) -> Json:
    """Return the value with lists and objects of its own."""
    return orjson.loads(orjson.dumps(value)) if isinstance(value, (dict, list)) else value


def equal(left: Json, right: Json) -> bool:
    """Return whether two values are the same in JSON: 1 is neither true nor 1.0."""
    if type(left) is not type(right):
        return False
    if not isinstance(left, (dict, list)):
        return bool(left == right)
    option = orjson.OPT_SORT_KEYS
    return orjson.dumps(left, option=option) == orjson.dumps(right, option=option)


def sort_members(value: dict[str, Any]) -> None:
    """Put the members of an object into the order of their names, as Go writes a map."""
    members = sorted(value.items())
    value.clear()
    value.update(members)


def canonical_number(number: float) -> int | float:
    """Return a number of untyped content as it comes back from Go's maps.

    Whole numbers beyond 64 bits are floats; floats that are whole and small enough are written
    without a point.
    """
    if isinstance(number, int):
        return number if _INT64_MIN <= number <= _INT64_MAX else float(number)
    if number.is_integer() and -(2.0**63) <= number < 2.0**63:
        return int(number)
    return number


def type_word(value: Json) -> str:
    """Return what Go's errors call a value of JSON: `number`, `object` …."""
    return "null" if value is None else _TYPE_WORDS[type(value)]


_TYPE_WORDS: Final = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
    RepeatedMembers: "object",
}


def _dumped(value: Json, option: int) -> bytes:
    text = orjson.dumps(value, option=option)
    # Go writes floats between 1e-6 and 1e21 without an exponent, orjson not all of them.
    if (b"e-" in text or b"e+" in text) and _EXPONENT.search(text):
        text = orjson.dumps(_with_go_floats(value), option=option)
    return _escaped(text)


def _with_go_floats(value: Json) -> Json:
    if isinstance(value, float):
        return orjson.Fragment(format_json_float(value))
    if isinstance(value, dict):
        return {name: _with_go_floats(each) for name, each in value.items()}
    return [_with_go_floats(each) for each in value] if isinstance(value, list) else value


def _escaped(text: bytes) -> bytes:
    for character, escape in _HTML:
        if character in text:
            text = text.replace(character, escape)
    return text


def _objects(value: Json) -> Iterator[dict[str, Any]]:
    waiting: list[Any] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)


def _find_repeated(value: Json, path: str | None, errors: dict[str, None]) -> None:
    if isinstance(value, list):
        for position, item in enumerate(value):
            if isinstance(item, (dict, list)):
                _find_repeated(item, f"{path or ''}[{position}]", errors)
        return
    if not isinstance(value, dict):
        return
    seen: set[str] = set()
    members = value.members if isinstance(value, RepeatedMembers) else value.items()
    for name, member in members:
        where = name if path is None else f"{path}.{name}"
        if name in seen and len(errors) < FINDINGS_MAX:
            errors[duplicate_field(where)] = None
        seen.add(name)
        if isinstance(member, (dict, list)):
            _find_repeated(member, where, errors)


def _parse_again(data: bytes) -> Json:
    """Return the value of a text that orjson refused and Go may take; raises JsonError."""
    check_syntax(data)
    return _load(data, keep_repeated=False)


def _load(data: bytes, *, keep_repeated: bool, huge: Callable[[str], float] | None = None) -> Json:
    of_huge = huge or _refuse
    text = data.decode("utf-8", _REPLACE)
    value = json.loads(
        text,
        object_pairs_hook=_members if keep_repeated else None,
        parse_float=lambda digits: _float(digits, of_huge),
        parse_int=lambda digits: _int(digits, of_huge),
    )
    # Halves of surrogate pairs, written as escapes, that no other half follows.
    return _without_halves(value) if _HALF_ESCAPE.search(text) else value


def _members(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    return value if len(value) == len(members) else RepeatedMembers(members)


def _without_halves(value: Json) -> Json:
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_halves(each) for each in value]
    if isinstance(value, RepeatedMembers):
        return RepeatedMembers(
            [(_without_halves(name), _without_halves(each)) for name, each in value.members]
        )
    if isinstance(value, dict):
        return {_without_halves(name): _without_halves(each) for name, each in value.items()}
    return value


def _int(text: str, huge: Callable[[str], float]) -> int | float:
    number = int(text) if len(text) <= 20 else None
    if number is None or not _INT64_MIN <= number <= _UINT64_MAX:
        return _float(text, huge)
    return number


def _float(text: str, huge: Callable[[str], float]) -> float:
    number = float(text)
    return huge(text) if number in _INFINITE else number


def _refuse(text: str) -> float:
    raise HugeNumberError(text)


def _replace_byte(error: UnicodeError) -> tuple[str, int]:
    """Decode each byte that is not part of a character as U+FFFD, as Go does."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\ufffd", error.start + 1


_REPLACE: Final = "kvstack.replace-byte"
codecs.register_error(_REPLACE, _replace_byte)

_HALF: Final = re.compile("[\ud800-\udfff]")
_HALF_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_NAME_END: Final = re.compile(rb'"\s*:')
