"""From protobuf to objects as `decode` makes them: what Go would write in JSON after reading it.

One pass over the bytes: each message has a table from the tag of a field to what takes its value.
Unknown fields are skipped; zero values that Go leaves out are left out, and those it always writes
are there. Text that is not UTF-8 is read with replacement characters, as Go prints it.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.protobuf.leaves import READERS, contents, fields
from kvstack.apimachinery.schema.protobuf.wire import (
    FIXED64,
    LENGTH,
    VARINT,
    ProtobufError,
    read_varint,
    signed,
    signed32,
    skip,
)
from kvstack.apimachinery.schema.types import Field, Shape, Type
from kvstack.apimachinery.schema.zeros import always_written, zero

Value = Any
"""A value of JSON."""
Parse = Callable[[bytes, int, int, Object], None]
"""(data, start, end, members): add the members of a message."""
Read = Callable[[bytes, int, int], Value]
"""(data, start, end): decode the bytes between and return the value."""

_COMPILED: Final = "protobuf reader"
_TEXT: Final = 0
_ONE: Final = 1
_LIST: Final = 2
_MAP: Final = 3
_EMBEDDED: Final = 4

_CUT_OFF: Final = "unexpected EOF"


class _Taker(NamedTuple):
    """How a field of one tag is decoded."""

    action: int
    name: str
    keeps_zero: bool
    read: Value
    """A Parse for _EMBEDDED, a Read for fields with a length, else a function of the number."""


def reader(type_: Type) -> Read:
    """Return the reader of the content of a field with a length."""
    found = type_.compiled.get(_COMPILED)
    if found is None:
        # Messages refer to one another in circles: until it is made, look it up when called.
        type_.compiled[_COMPILED] = lambda data, start, end: reader(type_)(data, start, end)
        found = type_.compiled[_COMPILED] = _make(type_)
    return cast("Read", found)


def _make(type_: Type) -> Read:
    if type_.shape is Shape.STRUCT:
        return _message(type_, _parser(type_))
    if type_.shape is Shape.LIST:
        return _wrapper(type_)
    holder = _HOLDERS.get(type_.go_kind.rpartition(".")[2])
    if holder is not None and type_.element is not None:
        return holder(reader(type_.element))
    read = READERS[type_.shape]
    return lambda data, start, end: read(data[start:end])


def _message(type_: Type, parse: Parse) -> Read:
    always = always_written(type_)
    order = tuple(type_.fields)
    numbers = [field.number for field in type_.fields.values() if not _is_meta(field)]
    is_in_order = not always and numbers == sorted(numbers) and not type_.embedded

    def read(data: bytes, start: int, end: int) -> Object:
        got: Object = {}
        parse(data, start, end, got)
        if is_in_order:
            return got
        for name, make in always:
            if name not in got:
                got[name] = make()
        return {name: got[name] for name in order if name in got}

    return read


def _is_meta(field: Field) -> bool:
    """Return whether a field is one of TypeMeta, which messages do not have."""
    return field.number == 0 and field.inline


def _parser(type_: Type) -> Parse:  # noqa: PLR0915 - closures of one parser
    takers: dict[int, _Taker] = {}
    for field in type_.fields.values():
        if field.number:
            takers.update(_takers(field))
    for number, embedded in type_.embedded:
        parse_embedded = _parser(embedded)
        takers[number << 3 | LENGTH] = _Taker(_EMBEDDED, "", False, parse_embedded)
    find = takers.get

    def parse(data: bytes, position: int, end: int, got: Object) -> None:  # noqa: PLR0912 - hot path
        while position < end:
            key = data[position]
            position += 1
            if key > 127:
                key, position = read_varint(data, position - 1)
            taker = find(key)
            if taker is None:
                position = _skipped(data, position, key, end)
                continue
            action, name, keeps_zero, read = taker
            if key & 7 == LENGTH:
                size = data[position]
                position += 1
                if size > 127:
                    size, position = read_varint(data, position - 1)
                stop = position + size
                if stop > end:
                    raise ProtobufError(_CUT_OFF)
                if action == _TEXT:
                    if size or keeps_zero:
                        got[name] = str(data[position:stop], "utf-8", "replace")
                elif action == _ONE:
                    value = read(data, position, stop)
                    if value or keeps_zero:
                        got[name] = value
                elif action == _LIST:
                    items = got.get(name)
                    if items is None:
                        items = got[name] = []
                    items.append(read(data, position, stop))
                elif action == _MAP:
                    entries = got.get(name)
                    if entries is None:
                        entries = got[name] = {}
                    entry_key, entries[entry_key] = read(data, position, stop)
                else:
                    read(data, position, stop, got)
                position = stop
            else:
                number, position = _number(data, position, key)
                value = read(number)
                if action == _LIST:
                    got.setdefault(name, []).append(value)
                elif value or keeps_zero:
                    got[name] = value
        if position != end:
            raise ProtobufError(_CUT_OFF)

    return parse


def _skipped(data: bytes, position: int, key: int, end: int) -> int:
    if key >> 3 == 0:
        raise ProtobufError(f"proto: illegal tag {key >> 3} (wire type {key & 7})")
    return skip(data, position, key & 7, end)


def _number(data: bytes, position: int, key: int) -> tuple[int, int]:
    if key & 7 == VARINT:
        byte = data[position]
        return (byte, position + 1) if byte < 128 else read_varint(data, position)
    if position + 8 > len(data):
        raise ProtobufError(_CUT_OFF)
    return int.from_bytes(data[position : position + 8], "little"), position + 8


def _takers(field: Field) -> dict[int, _Taker]:
    """Return what takes a field, by tag; lists of numbers may also come packed."""
    type_ = field.type
    number = field.number << 3
    keeps_zero = field.is_pointer or not field.omit_empty
    if type_.shape is Shape.LIST and not type_.message:
        element = _element(type_)
        if element.shape in _NUMBERS:
            wire_type, read = _NUMBERS[element.shape]
            packed = _packed(wire_type, read)
            return {
                number | wire_type: _Taker(_LIST, field.name, True, read),
                number | LENGTH: _Taker(_ONE, field.name, True, packed),
            }
        return {number | LENGTH: _Taker(_LIST, field.name, True, reader(element))}
    if type_.shape in _NUMBERS:
        wire_type, read = _NUMBERS[type_.shape]
        return {number | wire_type: _Taker(_ONE, field.name, keeps_zero, read)}
    if type_.shape is Shape.MAP:
        entry = _entry(_element(type_))
        return {number | LENGTH: _Taker(_MAP, field.name, keeps_zero, entry)}
    if type_.shape is Shape.STRING:
        return {number | LENGTH: _Taker(_TEXT, field.name, keeps_zero, None)}
    return {number | LENGTH: _Taker(_ONE, field.name, keeps_zero, reader(type_))}


def _packed(wire_type: int, read: Callable[[int], Value]) -> Read:
    def read_packed(data: bytes, position: int, end: int) -> Value:
        numbers = []
        while position < end:
            number, position = _number(data, position, wire_type)
            numbers.append(read(number))
        if position != end:
            raise ProtobufError(_CUT_OFF)
        return numbers

    return read_packed


def _entry(element: Type) -> Read:
    """Return what reads an entry of a map: its key and value."""
    make_zero = zero(element)
    if element.shape in _NUMBERS:
        wire_type, of_number = _NUMBERS[element.shape]
        read: Value = of_number
    else:
        wire_type, read = LENGTH, reader(element)

    def read_entry(data: bytes, start: int, end: int) -> tuple[str, Value]:
        key, value = "", None
        for number, found in fields(data, start, end):
            if number == 1 and isinstance(found, bytes):
                key = str(found, "utf-8", "replace")
            elif number == 2 and isinstance(found, bytes) is (wire_type == LENGTH):
                value = read(found, 0, len(found)) if isinstance(found, bytes) else read(found)
        return key, make_zero() if value is None else value

    return read_entry


def _element(type_: Type) -> Type:
    if type_.element is None:
        raise ValueError(f"{type_!r} has no element")
    return type_.element


def _wrapper(type_: Type) -> Read:
    """Return the reader of a list that is a message of its own."""
    read = reader(_element(type_))

    def read_list(data: bytes, start: int, end: int) -> Value:
        found = contents(data, start, end)
        return [read(value, 0, len(value)) for number, value in found if number == 1]

    return read_list


def _float(number: int) -> float:
    value: float = struct.unpack("<d", number.to_bytes(8, "little"))[0]
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


_NUMBERS: Final[dict[Shape, tuple[int, Callable[[int], Value]]]] = {
    Shape.BOOL: (VARINT, bool),
    Shape.INT32: (VARINT, signed32),
    Shape.INT64: (VARINT, signed),
    Shape.FLOAT64: (FIXED64, _float),
}


def _schema_or_bool(content: Read) -> Read:
    def read(data: bytes, start: int, end: int) -> Value:
        found = dict(fields(data, start, end))
        schema = found.get(2)
        if isinstance(schema, bytes):
            return content(schema, 0, len(schema))
        return bool(found.get(1))

    return read


def _schema_or_array(content: Read) -> Read:
    def read(data: bytes, start: int, end: int) -> Value:
        found = contents(data, start, end)
        several = [content(value, 0, len(value)) for number, value in found if number == 2]
        one = [content(value, 0, len(value)) for number, value in found if number == 1]
        return several or (one[-1] if one else None)

    return read


def _schema_or_strings(content: Read) -> Read:
    def read(data: bytes, start: int, end: int) -> Value:
        found = contents(data, start, end)
        several = [str(value, "utf-8", "replace") for number, value in found if number == 2]
        one = [content(value, 0, len(value)) for number, value in found if number == 1]
        return several or (one[-1] if one else None)

    return read


_HOLDERS: Final = {
    "JSONSchemaPropsOrBool": _schema_or_bool,
    "JSONSchemaPropsOrArray": _schema_or_array,
    "JSONSchemaPropsOrStringArray": _schema_or_strings,
}
