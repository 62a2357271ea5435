"""Splits a stream of bytes, which arrive in pieces, into JSON values.

    scanner.feed(b'{"a":1} {"b"');  take() == b'{"a":1}';  take() is None
    scanner.feed(b':2}');           take() == b'{"b":2}'

It accepts and refuses exactly what Go's encoding/json does, with its texts, and scans each byte
once however it is split. It does not decode values; `json_decode` does.
"""

import re
from typing import Final

from kvstore.http.go_text import quote_byte

DEPTH_MAX: Final = 10_000  # of nested objects and arrays, as in Go


class JsonError(ValueError):
    """The bytes are not JSON, or do not fit the message; the text is for the client."""


_PLAIN: Final = re.compile(
    rb'[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*'
)
_DIGIT_RUN: Final = re.compile(rb"[0-9]*")
_SPACE: Final = re.compile(rb"[ \t\r\n]*")

# States. In those up to _END white space is skipped.
(
    _VALUE,
    _VALUE_OR_CLOSE,
    _KEY,
    _KEY_OR_CLOSE,
    _END,
    _STRING,
    _ESCAPE,
    _HEX1,
    _HEX2,
    _HEX3,
    _HEX4,
    _MINUS,
    _ZERO,
    _INTEGER,
    _DOT,
    _FRACTION,
    _E,
    _E_SIGN,
    _EXPONENT,
    _LITERAL,
) = range(20)

_DIGITS: Final = b"0123456789"
_HEX: Final = b"0123456789abcdefABCDEF"


def _to(state: int, chars: bytes) -> dict[int, int]:
    return dict.fromkeys(chars, state)


_E_NEXT: Final = _to(_E, b"eE")
_STEPS: Final[dict[int, dict[int, int]]] = {
    _ESCAPE: {**_to(_STRING, b'bfnrt\\/"'), **_to(_HEX1, b"u")},
    _HEX1: _to(_HEX2, _HEX),
    _HEX2: _to(_HEX3, _HEX),
    _HEX3: _to(_HEX4, _HEX),
    _HEX4: _to(_STRING, _HEX),
    _MINUS: {**_to(_INTEGER, _DIGITS), **_to(_ZERO, b"0")},
    _ZERO: {**_to(_DOT, b"."), **_E_NEXT},
    _INTEGER: {**_to(_INTEGER, _DIGITS), **_to(_DOT, b"."), **_E_NEXT},
    _DOT: _to(_FRACTION, _DIGITS),
    _FRACTION: {**_to(_FRACTION, _DIGITS), **_E_NEXT},
    _E: {**_to(_EXPONENT, _DIGITS), **_to(_E_SIGN, b"+-")},
    _E_SIGN: _to(_EXPONENT, _DIGITS),
    _EXPONENT: _to(_EXPONENT, _DIGITS),
}
_IN_DIGITS: Final = frozenset({_INTEGER, _FRACTION, _EXPONENT})
_ENDABLE: Final = frozenset({_ZERO, _INTEGER, _FRACTION, _EXPONENT})
_IN_HEX: Final = "in \\u hexadecimal character escape"
_IN_EXPONENT: Final = "in exponent of numeric literal"
_CONTEXT: Final = {
    _ESCAPE: "in string escape code",
    _HEX1: _IN_HEX,
    _HEX2: _IN_HEX,
    _HEX3: _IN_HEX,
    _HEX4: _IN_HEX,
    _MINUS: "in numeric literal",
    _DOT: "after decimal point in numeric literal",
    _E: _IN_EXPONENT,
    _E_SIGN: _IN_EXPONENT,
}
_STARTS: Final = {
    **_to(_STRING, b'"'),
    **_to(_MINUS, b"-"),
    **_to(_ZERO, b"0"),
    **_to(_INTEGER, b"123456789"),
    **_to(_LITERAL, b"tfn"),
}
_LITERALS: Final = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}

# What is expected next at a level of nesting.
_AT_KEY, _AT_MEMBER, _AT_ELEMENT = range(3)


class ValueScanner:
    """Splits a stream of bytes into JSON values."""

    def __init__(self, value_bytes_max: int) -> None:
        """Refuse values longer than value_bytes_max."""
        self._max = value_bytes_max
        self._bytes = bytearray()
        self._at = 0  # everything before it has been scanned
        self._start = 0  # of the value being scanned
        self._state = _VALUE
        self._levels = bytearray()
        self._literal = b""
        self._matched = 0  # bytes of the literal
        self._error: JsonError | None = None

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._bytes += data

    def take(self) -> bytes | None:
        """Return the next value, or None if it is not complete; JsonError if it is invalid."""
        if self._error is not None:
            raise self._error
        try:
            end = self._scan()
        except JsonError as error:
            self._error = error
            raise
        if end is None and self._start:  # white space between values is dropped
            del self._bytes[: self._start]
            self._at -= self._start
            self._start = 0
        if end is None and len(self._bytes) > self._max:
            raise JsonError(f"a JSON value is longer than the limit of {self._max} bytes")
        return None if end is None else self._cut(end)

    def finish(self) -> bytes | None:
        """Return the value that the end of the bytes completes; None if there is none."""
        if self._state in _ENDABLE and not self._levels:
            return self._cut(self._at)
        if bytes(self._bytes[self._start :]).strip(b" \t\r\n"):
            raise JsonError("unexpected EOF")
        return None

    def _cut(self, end: int) -> bytes:
        value = bytes(self._bytes[self._start : end])
        del self._bytes[:end]
        self._at = self._start = 0
        self._state = _VALUE
        self._levels.clear()
        return value

    def _scan(self) -> int | None:
        """Scan to the end of the value and return that position, or to the end of the bytes."""
        data, at, state = self._bytes, self._at, self._state
        size = len(data)
        while at < size:
            if state <= _END:
                at = _past(_SPACE, data, at)
                if state == _VALUE and not self._levels:
                    self._start = at
            elif state == _STRING:
                at = _past(_PLAIN, data, at)
            elif state in _IN_DIGITS:
                at = _past(_DIGIT_RUN, data, at)
            if at == size:
                break
            byte = data[at]
            if state in _ENDABLE and byte not in _STEPS[state]:
                state = _END
                if not self._levels:
                    return at
                continue
            state = self._step(state, byte)
            at += 1
            if state == _END and not self._levels:
                return at
        self._at, self._state = at, state
        return None

    def _step(self, state: int, byte: int) -> int:
        """Return the state after byte."""
        if state == _STRING:
            if byte == 0x22:
                return _END
            if byte == 0x5C:
                return _ESCAPE
            raise _invalid(byte, "in string literal")
        if state == _END:
            return self._after_value(byte)
        if state == _LITERAL:
            return self._in_literal(byte)
        if state <= _KEY_OR_CLOSE:
            return self._begin(state, byte)
        following = _STEPS[state].get(byte)
        if following is None:
            raise _invalid(byte, _CONTEXT[state])
        return following

    def _begin(self, state: int, byte: int) -> int:
        if state in {_KEY, _KEY_OR_CLOSE}:
            if byte == 0x22:
                return _STRING
            if byte == 0x7D and state == _KEY_OR_CLOSE:
                self._levels.pop()
                return _END
            raise _invalid(byte, "looking for beginning of object key string")
        if byte == 0x7B:
            return self._nest(byte, _AT_KEY, _KEY_OR_CLOSE)
        if byte == 0x5B:
            return self._nest(byte, _AT_ELEMENT, _VALUE_OR_CLOSE)
        if byte == 0x5D and state == _VALUE_OR_CLOSE:
            self._levels.pop()
            return _END
        following = _STARTS.get(byte)
        if following is None:
            raise _invalid(byte, "looking for beginning of value")
        if following == _LITERAL:
            self._literal = _LITERALS[byte]
            self._matched = 1
        return following

    def _nest(self, byte: int, level: int, state: int) -> int:
        self._levels.append(level)
        if len(self._levels) > DEPTH_MAX:
            raise _invalid(byte, "exceeded max depth")
        return state

    def _in_literal(self, byte: int) -> int:
        expected = self._literal[self._matched]
        if byte != expected:
            raise _invalid(
                byte, f"in literal {self._literal.decode()} (expecting '{chr(expected)}')"
            )
        self._matched += 1
        return _END if self._matched == len(self._literal) else _LITERAL

    def _after_value(self, byte: int) -> int:
        level = self._levels[-1]
        if level == _AT_KEY:
            if byte != 0x3A:
                raise _invalid(byte, "after object key")
            self._levels[-1] = _AT_MEMBER
            return _VALUE
        if byte == 0x2C:
            if level == _AT_ELEMENT:
                return _VALUE
            self._levels[-1] = _AT_KEY
            return _KEY
        if byte == (0x7D if level == _AT_MEMBER else 0x5D):
            self._levels.pop()
            return _END
        raise _invalid(
            byte, "after array element" if level == _AT_ELEMENT else "after object key:value pair"
        )


def _past(run: re.Pattern[bytes], data: bytearray, at: int) -> int:
    found = run.match(data, at)
    assert found is not None, "a run may be empty"
    return found.end()


def _invalid(byte: int, context: str) -> JsonError:
    return JsonError(f"invalid character {quote_byte(byte)} {context}")
