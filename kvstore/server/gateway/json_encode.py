"""Encodes a protobuf message as JSON, as Go's protojson with proto names and no empty fields.

    encode(RangeResponse(count=1)) == '{"count":"1"}'

64-bit numbers are strings, bytes are base64, enums are names (a number where there is none).
Builds of etcd differ in whether a space follows each comma (protojson decides that by a hash of the
program, so that no client relies on it); here none follows, as in etcd's streams.
"""

import base64
import json
from typing import Any, Final

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

_F = FieldDescriptor
_QUOTED_NUMBERS: Final = frozenset({_F.TYPE_INT64, _F.TYPE_UINT64})
_NUMBERS: Final = frozenset({_F.TYPE_INT32, _F.TYPE_UINT32})

# As encoding/json escapes characters that could end a script element; in stream chunks only.
_HTML: Final = (
    ("&", "\\u0026"),
    ("<", "\\u003c"),
    (">", "\\u003e"),
    ("\u2028", "\\u2028"),
    ("\u2029", "\\u2029"),
)


def encode(message: Message) -> str:
    """Return the message as one JSON object without white space."""
    return "{" + ",".join([_member(field, value) for field, value in message.ListFields()]) + "}"


def encode_chunk(kind: str, message: str) -> bytes:
    """Return one line of a stream: {"result": message} or {"error": message}."""
    for char, escape in _HTML:
        if char in message:
            message = message.replace(char, escape)
    return f'{{"{kind}":{message}}}\n'.encode()


def encode_status(code: int, text: str) -> str:
    """Return a gRPC status as JSON; empty parts are left out."""
    parts = [f'"code":{code}'] if code else []
    if text:
        parts.append(f'"message":{encode_text(text)}')
    return "{" + ",".join(parts) + "}"


def encode_text(text: str) -> str:
    """Return a string as JSON, with only the escapes that JSON requires."""
    return json.dumps(text, ensure_ascii=False)


def _member(field: FieldDescriptor, value: Any) -> str:  # noqa: ANN401 — of the field's type
    if field.is_repeated:
        return f'"{field.name}":[{",".join([_value(field, each) for each in value])}]'
    return f'"{field.name}":{_value(field, value)}'


def _value(field: FieldDescriptor, value: Any) -> str:  # noqa: ANN401 — of the field's type
    kind = field.type
    if kind == _F.TYPE_MESSAGE:
        return encode(value)
    if kind in _QUOTED_NUMBERS:
        return f'"{value}"'
    if kind == _F.TYPE_BYTES:
        return f'"{base64.b64encode(value).decode()}"'
    if kind == _F.TYPE_STRING:
        return encode_text(value)
    if kind == _F.TYPE_BOOL:
        return "true" if value else "false"
    if kind in _NUMBERS:
        return str(value)
    if kind == _F.TYPE_ENUM:
        return _enum(field.enum_type, value)
    raise AssertionError(f"{field.full_name}: no JSON mapping for this type of field")


def _enum(enum: EnumDescriptor | None, number: int) -> str:
    found = None if enum is None else enum.values_by_number.get(number)
    return str(number) if found is None else f'"{found.name}"'
