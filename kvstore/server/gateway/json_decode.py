"""Decodes a JSON value into a protobuf message, as Go's protojson with unknown fields discarded.

    decode(b'{"key":"Zm9v","limit":"5"}', RangeRequest()) → key=b"foo", limit=5

Fields have their proto or their JSON name; 64-bit numbers may be strings, bytes are base64 of
either alphabet, enums are names or numbers, null leaves a field unset. The error texts are
protojson's, with line and column counted from the beginning of the value.

The value comes from `json_scan`, so its syntax is valid; only what encoding/json accepts and
protojson does not (invalid UTF-8, lone surrogates) is checked here.
"""

import base64
import binascii
import json
import re
from typing import Any, Final, NamedTuple, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from kvstore.http.go_text import quote
from kvstore.server.gateway.json_scan import JsonError

DEPTH_MAX: Final = 100  # messages in messages; protobuf parsers refuse more

_TOKEN: Final = re.compile(
    rb"[ \t\r\n,:]*("
    rb'"[^"\\]*(?:\\.[^"\\]*)*"'
    rb"|[{}\[\]]"
    rb"|[-+.0-9A-Za-z]+)?",
    re.DOTALL,
)
_NUMBER: Final = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_NO_DELIMITER: Final = re.compile(r"[-+._a-zA-Z0-9]")
_DIGITS_MAX: Final = 20  # of the largest uint64
_EXPONENT_MAX: Final = 2**31 - 1
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")

_F = FieldDescriptor
_INT_RANGES: Final = {
    _F.TYPE_INT32: ("int32", -(1 << 31), (1 << 31) - 1),
    _F.TYPE_INT64: ("int64", -(1 << 63), (1 << 63) - 1),
    _F.TYPE_UINT32: ("uint32", 0, (1 << 32) - 1),
    _F.TYPE_UINT64: ("uint64", 0, (1 << 64) - 1),
}
_KIND_NAMES: Final = {
    **{kind: name for kind, (name, _, _) in _INT_RANGES.items()},
    _F.TYPE_BOOL: "bool",
    _F.TYPE_STRING: "string",
    _F.TYPE_BYTES: "bytes",
    _F.TYPE_ENUM: "enum",
}


class _Token(NamedTuple):
    raw: bytes
    at: int

    @property
    def kind(self) -> str:
        """One of { } [ ] " 0 (a number), t, f and n (null)."""
        first = chr(self.raw[0])
        return first if first in '{}[]"tfn' else "0"


def decode(value: bytes, message: Message) -> None:
    """Fill an empty message; JsonError with protojson's text if the value does not fit it."""
    _Decoder(value).message(message, DEPTH_MAX)


class _Decoder:
    """Decodes one value."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._at = 0

    def message(self, message: Message, depth: int) -> None:
        if depth == 0:
            raise JsonError("proto: exceeded max recursion depth")
        opening = self._read()
        if opening.kind != "{":
            raise self._unexpected(opening)
        fields = _fields(message)
        seen: set[int] = set()
        oneofs: set[str] = set()
        while (name := self._read()).kind != "}":
            field = fields.get(self._text(name))
            if field is None:
                self._skip()
                continue
            if field.number in seen:
                raise self._error(name, f"duplicate field {name.raw.decode()}")
            seen.add(field.number)
            if self._take_null():
                continue
            oneof = field.containing_oneof
            if oneof is not None:
                if oneof.name in oneofs:
                    raise self._error(
                        name,
                        f"error parsing {name.raw.decode()}, "
                        f"oneof {oneof.containing_type.full_name}.{oneof.name} is already set",
                    )
                oneofs.add(oneof.name)
            self._field(message, field, depth)

    def _field(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        if field.is_repeated:
            self._list(getattr(message, field.name), field, depth)
        elif field.message_type is not None:
            inner: Message = getattr(message, field.name)
            inner.SetInParent()
            self.message(inner, depth - 1)
        else:
            value = self._scalar(self._read(), field)
            if value is not None:
                setattr(message, field.name, value)

    def _list(
        self,
        items: Any,  # noqa: ANN401 — a repeated field of any kind
        field: FieldDescriptor,
        depth: int,
    ) -> None:
        opening = self._read()
        if opening.kind != "[":
            raise self._unexpected(opening)
        while True:
            at = self._at
            token = self._read()
            if token.kind == "]":
                return
            if field.message_type is not None:
                self._at = at
                self.message(items.add(), depth - 1)
            else:
                value = self._scalar(token, field)
                if value is not None:
                    items.append(value)

    def _scalar(self, token: _Token, field: FieldDescriptor) -> bool | int | str | bytes | None:
        """Return the value; None for the name of an enum value that is not known."""
        kind = token.kind
        text = self._text(token) if kind == '"' else None
        value: bool | int | str | bytes | None = None
        if field.type in _INT_RANGES:
            value = _integer(token.raw.decode() if kind == "0" else text, field.type)
        elif field.type == _F.TYPE_BOOL:
            value = {"t": True, "f": False}.get(kind)
        elif field.type == _F.TYPE_STRING:
            value = text
        elif field.type == _F.TYPE_BYTES:
            value = None if text is None else _decode_base64(text)
        elif field.type == _F.TYPE_ENUM:
            if text is not None and field.enum_type is not None:
                found = field.enum_type.values_by_name.get(text)
                return None if found is None else found.number
            value = _integer(token.raw.decode() if kind == "0" else None, _F.TYPE_INT32)
        else:
            raise AssertionError(f"{field.full_name}: no JSON mapping for this type of field")
        if value is None:
            raise self._error(
                token,
                f"invalid value for {_KIND_NAMES[field.type]} field {field.json_name}: "
                f"{token.raw.decode(errors='replace')}",
            )
        return value

    # Tokens.

    def _read(self) -> _Token:
        matched = _TOKEN.match(self._value, self._at)
        assert matched is not None, "every part of the expression may be empty"
        self._at = matched.end()
        raw = matched.group(1)
        if raw is None:  # impossible: the scanner found a complete value
            raise JsonError("proto: unexpected EOF")
        return _Token(raw, matched.start(1))

    def _take_null(self) -> bool:
        at = self._at
        if self._read().kind == "n":
            return True
        self._at = at
        return False

    def _skip(self) -> None:
        """Skip one value of any depth."""
        depth = 0
        while True:
            token = self._read()
            kind = token.kind
            if kind in "{[":
                depth += 1
            elif kind in "}]":
                depth -= 1
            elif kind == '"':
                self._text(token)
            if depth == 0:
                return

    def _text(self, token: _Token) -> str:
        """Return the text of a string token."""
        raw = token.raw
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise self._syntax_error(token, "invalid UTF-8 in string") from None
        if "\\" not in text:
            return text[1:-1]
        decoded: str = json.loads(text)
        if not decoded.isascii() and any("\ud800" <= char <= "\udfff" for char in decoded):
            raise self._lone_surrogate(token)
        return decoded

    # Errors.

    def _lone_surrogate(self, token: _Token) -> JsonError:
        """Return the error for the escape that should be the second half of a surrogate pair."""
        whole = token.raw
        at = 1
        while at < len(whole):
            if whole[at] != 0x5C:
                at += 1
                continue
            if whole[at + 1] != 0x75:
                at += 2
                continue
            code = int(whole[at + 2 : at + 6], 16)
            at += 6
            if 0xD800 <= code < 0xE000:
                rest = self._value[token.at + at :][:6]
                if len(rest) < 6:
                    return JsonError("proto: unexpected EOF")
                low = re.fullmatch(rb"\\u([dD][c-fC-F][0-9a-fA-F]{2})", rest)
                if low is None or code >= 0xDC00:
                    return self._syntax_error(token, f"invalid escape code {quote(rest)} in string")
                at += 6
        raise AssertionError("called for strings with a lone surrogate only")

    def _unexpected(self, token: _Token) -> JsonError:
        if token.kind == '"':
            self._text(token)
        return self._syntax_error(token, f"unexpected token {token.raw.decode()}")

    def _syntax_error(self, token: _Token, text: str) -> JsonError:
        return JsonError(f"proto: syntax error ({self._position(token.at)}): {text}")

    def _error(self, token: _Token, text: str) -> JsonError:
        return JsonError(f"proto: ({self._position(token.at)}): {text}")

    def _position(self, at: int) -> str:
        before = self._value[:at]
        column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
        return f"line {before.count(10) + 1}:{column}"


_FIELDS: dict[str, dict[str, FieldDescriptor]] = {}


def _fields(message: Message) -> dict[str, FieldDescriptor]:
    """Return a message's fields by either of their names."""
    descriptor = message.DESCRIPTOR
    fields = _FIELDS.get(descriptor.full_name)
    if fields is None:
        listed = cast("list[FieldDescriptor]", list(descriptor.fields))
        fields = {field.name: field for field in listed}
        fields.update({field.json_name: field for field in listed})
        _FIELDS[descriptor.full_name] = fields
    return fields


def _integer(text: str | None, kind: int) -> int | None:
    """Return the integer that text begins with; None if there is none or it is out of range."""
    if text is None or text.strip() != text:
        return None
    found = _NUMBER.match(text)
    if found is None or _NO_DELIMITER.match(text, found.end()):
        return None
    sign, whole, fraction, exponent_text = found.groups()
    whole = "" if whole == "0" else whole
    fraction = (fraction or "").rstrip("0")
    if not whole and not fraction:
        return 0
    if len(exponent_text or "") > _DIGITS_MAX:
        return None
    exponent = int(exponent_text or 0)
    if abs(exponent) > _EXPONENT_MAX or len(fraction) > max(exponent, 0):
        return None
    if len(whole) + exponent > _DIGITS_MAX:
        return None
    if exponent >= 0:
        digits = whole + fraction + "0" * (exponent - len(fraction))
    else:
        digits, rest = whole[:exponent], whole[exponent:]
        if len(whole) + exponent <= 0 or rest.strip("0"):
            return None
    number = int(sign + digits)
    _, lowest, highest = _INT_RANGES[kind]
    return number if lowest <= number <= highest else None


def _decode_base64(text: str) -> bytes | None:
    """Decode either alphabet, padded or not; None if it is not base64."""
    if "-" in text or "_" in text:
        if "+" in text or "/" in text:
            return None
        text = text.replace("-", "+").replace("_", "/")
    is_padded = len(text) % 4 == 0
    if "\n" in text or "\r" in text:  # Go skips line ends
        text = text.replace("\n", "").replace("\r", "")
    if not is_padded:
        if "=" in text:
            return None
        text += "=" * (-len(text) % 4)
    if len(text) % 4 or _BASE64.fullmatch(text) is None:
        return None
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return None
