"""JSON as text: read as strictly as Kubernetes reads it, written as Go writes it.

    parse(b'{"a":1,"a":2}')            → {"a": 2}, the last of equal members
    parse(b'{"a":tru}')                → JsonError: invalid character '}' in literal true (…)
    repeated_fields(parse_repeated(b'{"a":{"b":1,"b":2}}'))   → ['duplicate field "a.b"']

`parse` leaves good text to orjson. What orjson refuses is read a second time, to tell what is wrong
in Go's words, or to take what Go takes: bytes that are not UTF-8 become U+FFFD. Members that stand
twice are looked for only when a caller asks: `has_repeated` compares the text with the value
written anew, which is cheap, and reads members one by one only if they differ.

A document may nest DEPTH_MAX deep; upstream allows 10,000.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from kvstack.apiserver.objects.go_text import quote

Json = Any
"""Any value of JSON: dict, list, str, int, float, bool or None."""

DEPTH_MAX: Final = 200
_WRITTEN_DEPTH_MAX: Final = 254
FINDINGS_MAX: Final = 100
"""Repeated and unknown fields that are told of one document."""

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_UINT64_MAX: Final = 2**64 - 1
_HTML: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


class JsonError(ValueError):
    """A text that is no JSON; the message is Go's."""


class RepeatedMembers(dict[str, Any]):
    """An object of which a member stands twice: a dict of the last ones, and all in order."""

    __slots__ = ("members",)

    def __init__(self, members: list[tuple[str, Any]]) -> None:
        """Keep all members as they stand in the text."""
        super().__init__(members)
        self.members: Final = members


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
    """Tell whether any object of a text that `parse` has read has a member twice."""
    text, written = data.strip(), orjson.dumps(value)
    if written == text or _escaped(written) == text:
        return False
    if b"\\u0022" not in text and len(_NAME_END.findall(text)) == written.count(b'":'):
        # Colons in texts stand on both sides, so the members are as many.
        return False
    return any(isinstance(each, RepeatedMembers) for each in _objects(parse_repeated(data)))


def parse_repeated(data: bytes) -> Json:
    """Return the value of a text that `parse` has read; RepeatedMembers where a member repeats."""
    return _load(data, keep_repeated=True)


def repeated_fields(value: Json) -> list[str]:
    """Return what is said of members that stand twice, in order of the text, at most 100.

    For values without a type: of one that has a type, its decoder must look, because fields it does
    not know are not looked into.
    """
    found: dict[str, None] = {}
    _find_repeated(value, None, found)
    return list(found)


def duplicate_field(path: str) -> str:
    """Return what is said of a member that stands twice."""
    return f"duplicate field {quote(path)}"


def unknown_field(path: str) -> str:
    """Return what is said of a member that its type does not have."""
    return f"unknown field {quote(path)}"


def write(value: Json) -> bytes:
    """Return compact JSON as Go's encoder writes it, members in the given order."""
    return _escaped(orjson.dumps(value))


def write_indented(value: Json) -> bytes:
    """Return JSON indented by two blanks a level, as for people."""
    return _escaped(orjson.dumps(value, option=orjson.OPT_INDENT_2))


def write_sorted(value: Json) -> bytes:
    """Return compact JSON with members sorted by name, as Go writes maps."""
    return _escaped(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def is_too_deep(value: Json) -> bool:
    """Tell whether lists and objects nest deeper than DEPTH_MAX."""
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
    """Tell whether two values are the same in JSON: 1 is neither true nor 1.0."""
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
    """Return what Go's errors call a value of JSON: `number`, `object`, …"""
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


def _find_repeated(value: Json, path: str | None, found: dict[str, None]) -> None:
    if isinstance(value, list):
        for position, item in enumerate(value):
            if isinstance(item, (dict, list)):
                _find_repeated(item, f"{path or ''}[{position}]", found)
        return
    if not isinstance(value, dict):
        return
    seen: set[str] = set()
    members = value.members if isinstance(value, RepeatedMembers) else value.items()
    for name, member in members:
        where = name if path is None else f"{path}.{name}"
        if name in seen and len(found) < FINDINGS_MAX:
            found[duplicate_field(where)] = None
        seen.add(name)
        if isinstance(member, (dict, list)):
            _find_repeated(member, where, found)


def _parse_again(data: bytes) -> Json:
    """Return the value of a text that orjson refused and Go may take; raises JsonError."""
    check_syntax(data)
    return _load(data, keep_repeated=False)


def _load(data: bytes, *, keep_repeated: bool) -> Json:
    text = data.decode("utf-8", _REPLACE)
    value = json.loads(
        text,
        object_pairs_hook=_members if keep_repeated else None,
        parse_float=_float,
        parse_int=_int,
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


def _int(text: str) -> int | float:
    number = int(text) if len(text) <= 20 else None
    return _float(text) if number is None or not _INT64_MIN <= number <= _UINT64_MAX else number


def _float(text: str) -> float:
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise JsonError(f"json: cannot unmarshal number {text} into Go value of type float64")
    return number


def _replace_byte(error: UnicodeError) -> tuple[str, int]:
    """Decode each byte that is no part of a character as U+FFFD, as Go does."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\ufffd", error.start + 1


_REPLACE: Final = "kvstack.replace-byte"
codecs.register_error(_REPLACE, _replace_byte)

_HALF: Final = re.compile("[\ud800-\udfff]")
_HALF_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_NAME_END: Final = re.compile(rb'"\s*:')
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_STRING: Final = re.compile(
    rb'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"'
)
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BROKEN_NUMBER: Final = re.compile(
    rb"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?)?"
)
_LITERALS: Final = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_DIGITS: Final = frozenset(b"0123456789")

_VALUE: Final = "looking for beginning of value"
_KEY: Final = "looking for beginning of object key string"


def check_syntax(data: bytes) -> None:
    """Check that a text is JSON and not too deep; raises JsonError in Go's words."""
    _Scanner(data).scan()


class _Scanner:
    """Reads tokens one by one; its only result is the error."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def scan(self) -> None:
        # What each open list or object is, from outside in.
        open_: list[int] = []
        while True:
            opened = self._value(open_)
            if opened and self._skip() in b"]}" and self._close(open_):
                opened = False
            if not opened and self._after_value(open_):
                return
            if open_ and open_[-1] == ord("{"):
                self._key()

    def _value(self, open_: list[int]) -> bool:
        """Go past a value, or into a list or object; return whether it was one."""
        first = self._skip()
        if first in b"{[" and first:
            if len(open_) >= DEPTH_MAX:
                raise self._invalid("exceeded max depth")
            open_.append(first[0])
            self._position += 1
            return True
        if first == b'"':
            self._string()
        elif first and first in b"-0123456789":
            self._number()
        elif first and first[0] in _LITERALS:
            self._literal(_LITERALS[first[0]])
        else:
            raise self._invalid(_VALUE)
        return False

    def _after_value(self, open_: list[int]) -> bool:
        """Go past what follows a value; return whether the text has ended."""
        while True:
            mark = self._skip()
            if not open_:
                if mark:
                    raise self._invalid("after top-level value")
                return True
            if mark == b",":
                self._position += 1
                return False
            if not self._close(open_):
                is_object = open_[-1] == ord("{")
                raise self._invalid(
                    "after object key:value pair" if is_object else "after array element"
                )

    def _close(self, open_: list[int]) -> bool:
        """Go past the end of the innermost list or object if it stands here."""
        end = b"}" if open_[-1] == ord("{") else b"]"
        if self._data[self._position : self._position + 1] != end:
            return False
        open_.pop()
        self._position += 1
        return True

    def _key(self) -> None:
        if self._skip() != b'"':
            raise self._invalid(_KEY)
        self._string()
        if self._skip() != b":":
            raise self._invalid("after object key")
        self._position += 1

    def _skip(self) -> bytes:
        """Go past blanks and return the next character, nothing at the end."""
        match = _SPACE.match(self._data, self._position)
        if match is not None:
            self._position = match.end()
        return self._data[self._position : self._position + 1]

    def _string(self) -> None:
        match = _STRING.match(self._data, self._position)
        if match is not None:
            self._position = match.end()
            return
        self._position += 1
        while (byte := self._byte()) is not None and byte >= 0x20 and byte != ord('"'):
            self._position += 1
            if byte == ord("\\"):
                self._escape()
        if byte is None:
            raise _unexpected_end()
        raise self._invalid("in string literal")

    def _escape(self) -> None:
        byte = self._byte()
        if byte is None or byte not in b'"\\/bfnrtu':
            raise self._invalid("in string escape code", is_inside=True)
        self._position += 1
        if byte == ord("u"):
            for _ in range(4):
                if self._byte() not in _HEX:
                    raise self._invalid("in \\u hexadecimal character escape", is_inside=True)
                self._position += 1

    def _number(self) -> None:
        match = _NUMBER.match(self._data, self._position)
        broken = _BROKEN_NUMBER.match(self._data, self._position)
        if match is not None and broken is not None and match.end() == broken.end():
            self._position = match.end()
            return
        text = broken[0] if broken is not None else b""
        self._position += len(text)
        if b"e" in text or b"E" in text:
            raise self._invalid("in exponent of numeric literal", is_inside=True)
        if b"." in text:
            raise self._invalid("after decimal point in numeric literal", is_inside=True)
        raise self._invalid("in numeric literal", is_inside=True)

    def _literal(self, literal: bytes) -> None:
        for expected in literal:
            if self._byte() != expected:
                raise self._invalid(
                    f"in literal {literal.decode()} (expecting '{chr(expected)}')", is_inside=True
                )
            self._position += 1

    def _byte(self) -> int | None:
        return self._data[self._position] if self._position < len(self._data) else None

    def _invalid(self, context: str, *, is_inside: bool = False) -> JsonError:
        """Return the error about the next byte; inside a token, the end counts as a blank."""
        byte = self._byte()
        if byte is None:
            if not is_inside:
                return _unexpected_end()
            byte = ord(" ")
        character = {"'": "'\\''", '"': "'\"'"}.get(chr(byte), f"'{quote(chr(byte))[1:-1]}'")
        return JsonError(f"invalid character {character} {context}")


def _unexpected_end() -> JsonError:
    return JsonError("unexpected end of JSON input")
