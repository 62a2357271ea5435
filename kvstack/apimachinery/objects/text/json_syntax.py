"""The errors of invalid JSON, with Go's texts.

    check_syntax(b'{"a":tru}')   → JsonError: invalid character '}' in literal true (expecting 'e')
    check_syntax(b'{"a":1')      → JsonError: unexpected end of JSON input

Values are not made here: `json_text.parse` asks only about texts that its parser refused.

A document may nest DEPTH_MAX deep; upstream allows 10,000.
"""

import re
from typing import Final

from kvstack.apimachinery.objects.text.go_text import quote

DEPTH_MAX: Final = 240


class JsonError(ValueError):
    """The text is not JSON; the message is Go's."""


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
        """Skip the end of the innermost list or object, if it is here."""
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
