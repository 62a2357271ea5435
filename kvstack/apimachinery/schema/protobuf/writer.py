"""From normalized objects to protobuf, byte by byte as Go's generated code writes them.

Fields ascend by number. Numbers, bools, strings and structs that are no pointers are written even
if they are zero; lists, maps, bytes and pointers only if they are there. Maps are sorted by key.
An embedded struct is a message of its own, made from the same dict.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, cast

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.protobuf.leaves import WRITERS
from kvstack.apimachinery.schema.protobuf.wire import (
    FIXED64,
    LENGTH,
    VARINT,
    delimited,
    tag,
    varint,
)
from kvstack.apimachinery.schema.types import Field, Shape, Type

Value = Any
"""A value of JSON that is not null."""
Content = Callable[[Value], bytes]
"""Returns the bytes between the length of a field and its end."""
Put = Callable[[Value, list[bytes]], None]
"""Appends a field, or all of a list or map, to the parts of a message."""

_COMPILED: Final = "protobuf writer"
_SMALL: Final = tuple(bytes((size,)) for size in range(128))
_FIRST: Final = tag(1, LENGTH)
_SECOND: Final = tag(2, LENGTH)
_NUMBERS: Final = frozenset({Shape.INT32, Shape.INT64, Shape.BOOL})


def writer(type_: Type) -> Content:
    """Return the writer of a value's content: a message, or a leaf with a length."""
    found = type_.compiled.get(_COMPILED)
    if found is None:
        # Messages refer to one another in circles: until it is made, look it up when called.
        type_.compiled[_COMPILED] = lambda value: writer(type_)(value)
        found = type_.compiled[_COMPILED] = _make(type_)
    return cast("Content", found)


def _make(type_: Type) -> Content:
    if type_.shape is Shape.STRUCT:
        return _message(type_)
    if type_.shape is Shape.LIST:
        return _wrapper(type_)
    holder = _HOLDERS.get(type_.go_kind.rpartition(".")[2])
    if holder is not None and type_.element is not None:
        return holder(writer(type_.element))
    return WRITERS[type_.shape]


def _message(type_: Type) -> Content:
    rows: list[tuple[int, str, bytes, bytes, Put | None]] = [
        _row(field) for field in type_.fields.values() if field.number
    ]
    for number, embedded in type_.embedded:
        rows.append((number, "", tag(number, LENGTH), b"", _embedded(number, embedded)))
    rows.sort(key=lambda row: row[0])
    plain = [row[1:] for row in rows]
    return _write_with_embedded(plain) if type_.embedded else _write(plain)


def _write(rows: list[tuple[str, bytes, bytes, Put | None]]) -> Content:
    def write(obj: Object) -> bytes:
        parts: list[bytes] = []
        find = obj.get
        for name, start, absent, put in rows:
            value = find(name)
            if value is None:
                parts.append(absent)
            elif put is None:
                text = value.encode("utf-8", "surrogatepass")
                size = len(text)
                parts += (start, _SMALL[size] if size < 128 else varint(size), text)
            else:
                put(value, parts)
        return b"".join(parts)

    return write


def _write_with_embedded(rows: list[tuple[str, bytes, bytes, Put | None]]) -> Content:
    def write(obj: Object) -> bytes:
        parts: list[bytes] = []
        for name, start, absent, put in rows:
            value: Value = obj.get(name) if name else obj
            if value is None:
                parts.append(absent)
            elif put is None:
                parts.append(delimited(start, value.encode("utf-8", "surrogatepass")))
            else:
                put(value, parts)
        return b"".join(parts)

    return write


def _embedded(number: int, type_: Type) -> Put:
    content = writer(type_)
    start = tag(number, LENGTH)

    def put(obj: Object, parts: list[bytes]) -> None:
        parts.append(delimited(start, content(obj)))

    return put


def _row(field: Field) -> tuple[int, str, bytes, bytes, Put | None]:
    """Return number, name, tag, what is written when it is absent, and what writes it.

    None instead of the last: a string.
    """
    type_ = field.type
    start = tag(field.number, _wire_type(type_))
    put = None if type_.shape is Shape.STRING else _put(type_, start)
    absent = b"" if field.is_pointer else _zero_field(type_, start)
    return field.number, field.name, start, absent, put


def _wire_type(type_: Type) -> int:
    if type_.shape in {Shape.LIST, Shape.MAP}:
        element = type_.element
        is_plain = type_.shape is Shape.LIST and not type_.message and element is not None
        return _wire_type(element) if is_plain and element is not None else LENGTH
    if type_.shape in _NUMBERS:
        return VARINT
    return FIXED64 if type_.shape is Shape.FLOAT64 else LENGTH


def _put(type_: Type, start: bytes) -> Put:
    if type_.shape is Shape.BOOL:
        return _put_bool(start)
    if type_.shape in {Shape.INT32, Shape.INT64}:
        return lambda value, parts: parts.extend((start, varint(value)))
    if type_.shape is Shape.FLOAT64:
        return lambda value, parts: parts.extend((start, struct.pack("<d", value)))
    if type_.shape is Shape.MAP:
        return _put_map(type_, start)
    if type_.shape is Shape.LIST and not type_.message:
        return _put_list(type_, start)
    return _put_content(start, writer(type_))


def _put_content(start: bytes, content: Content) -> Put:
    def put(value: Value, parts: list[bytes]) -> None:
        inner = content(value)
        size = len(inner)
        parts += (start, _SMALL[size] if size < 128 else varint(size), inner)

    return put


def _put_bool(start: bytes) -> Put:
    false, true = start + b"\0", start + b"\1"

    def put(value: Value, parts: list[bytes]) -> None:
        parts.append(true if value else false)

    return put


def _put_list(type_: Type, start: bytes) -> Put:
    element = _element(type_)
    one = _put(element, start)

    def put(value: Value, parts: list[bytes]) -> None:
        for each in value:
            one(each, parts)

    return put


def _put_map(type_: Type, start: bytes) -> Put:
    element = _element(type_)
    start_of_value = tag(2, _wire_type(element))
    one = _put(element, start_of_value)
    absent = delimited(_SECOND, b"") if element.message else _zero_field(element, start_of_value)

    def put(value: Value, parts: list[bytes]) -> None:
        for key in sorted(value):
            entry = [delimited(_FIRST, key.encode("utf-8", "surrogatepass"))]
            if value[key] is None:
                entry.append(absent)
            else:
                one(value[key], entry)
            parts.append(delimited(start, b"".join(entry)))

    return put


def _element(type_: Type) -> Type:
    if type_.element is None:
        raise ValueError(f"{type_!r} has no element")
    return type_.element


def _zero_field(type_: Type, start: bytes) -> bytes:
    """Return the bytes of an absent field that is not a pointer."""
    if type_.shape in {Shape.LIST, Shape.MAP, Shape.BYTES}:
        return b""
    if type_.shape in _NUMBERS:
        return start + b"\0"
    if type_.shape is Shape.FLOAT64:
        return start + bytes(8)
    return delimited(start, _zero_content(type_))


def _zero_content(type_: Type) -> bytes:
    if type_.shape is Shape.STRUCT:
        return b"".join(text for _, text in sorted(_zero_parts(type_)))
    value = _ZEROS.get(type_.shape)
    return b"" if value is None else WRITERS[type_.shape](value)


def _zero_parts(type_: Type) -> list[tuple[int, bytes]]:
    parts = [
        (field.number, _zero_field(field.type, tag(field.number, _wire_type(field.type))))
        for field in type_.fields.values()
        if field.number and not field.is_pointer
    ]
    for number, embedded in type_.embedded:
        parts.append((number, delimited(tag(number, LENGTH), _zero_content(embedded))))
    return parts


_ZEROS: Final[dict[Shape, Value]] = {
    Shape.QUANTITY: "0",
    Shape.INT_OR_STRING: 0,
    Shape.DURATION: "0s",
}  # of others the content is empty


def _wrapper(type_: Type) -> Content:
    """Return the writer of a list that is a message of its own."""
    put = _put_list(type_, tag(1, _wire_type(_element(type_))))

    def write(value: Value) -> bytes:
        parts: list[bytes] = []
        put(value, parts)
        return b"".join(parts)

    return write


def _schema_or_bool(content: Content) -> Content:
    def write(value: Value) -> bytes:
        if isinstance(value, bool):
            return b"\x08\1" if value else b"\x08\0"
        return delimited(b"\x08\1" + _SECOND, content(value))

    return write


def _schema_or_array(content: Content) -> Content:
    def write(value: Value) -> bytes:
        if isinstance(value, list):
            return b"".join(delimited(_SECOND, content(each)) for each in value)
        return delimited(_FIRST, content(value))

    return write


def _schema_or_strings(content: Content) -> Content:
    def write(value: Value) -> bytes:
        if isinstance(value, list):
            return b"".join(delimited(_SECOND, each.encode()) for each in value)
        return delimited(_FIRST, content(value))

    return write


_HOLDERS: Final = {
    "JSONSchemaPropsOrBool": _schema_or_bool,
    "JSONSchemaPropsOrArray": _schema_or_array,
    "JSONSchemaPropsOrStringArray": _schema_or_strings,
}
