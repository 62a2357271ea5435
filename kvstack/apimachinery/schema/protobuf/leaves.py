"""The contents of fields whose JSON and protobuf forms differ more than in encoding.

    TIME           "2024-01-02T03:04:05Z"  ↔  {1: seconds, 2: nanoseconds}
    QUANTITY       "500m"                  ↔  {1: "500m"}
    INT_OR_STRING  80, "http"              ↔  {1: which, 2: number, 3: text}
    DURATION       "1h0m0s"                ↔  {1: nanoseconds}
    RAW            any JSON                ↔  {1: its text}

`writers` and `readers` have one function for each such shape: from a value of JSON to the bytes
between the field's length and its end, and back. None is the zero time, or absent JSON.
"""

import base64
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.quantity import QuantityError
from kvstack.apimachinery.objects.quantity import canonical as canonical_quantity
from kvstack.apimachinery.objects.times import (
    Moment,
    format_micro_time,
    format_time,
    parse_micro_time,
    parse_time,
)
from kvstack.apimachinery.schema.protobuf.wire import (
    LENGTH,
    VARINT,
    ProtobufError,
    delimited,
    read_varint,
    signed,
    signed32,
    skip,
    tag,
    varint,
)
from kvstack.apimachinery.schema.types import Shape

Value = Any
"""A value of JSON."""

_FIRST: Final = tag(1, LENGTH)
_FIRST_NUMBER: Final = tag(1, VARINT)
_SECOND_NUMBER: Final = tag(2, VARINT)
_THIRD: Final = tag(3, LENGTH)
_IS_STRING: Final = 1


def _write_text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _write_bytes(value: str) -> bytes:
    return base64.b64decode(value)


@lru_cache(maxsize=4096)
def _write_time(value: str | None) -> bytes:
    return b"" if value is None else _timestamp(parse_time(value).seconds, 0)


@lru_cache(maxsize=1024)
def _write_micro_time(value: str | None) -> bytes:
    return b"" if value is None else _timestamp(*parse_micro_time(value))


def _timestamp(seconds: int, nanoseconds: int) -> bytes:
    return b"".join((_FIRST_NUMBER, varint(seconds), _SECOND_NUMBER, varint(nanoseconds)))


def _write_duration(value: str) -> bytes:
    return _FIRST_NUMBER + varint(durations.parse(value))


@lru_cache(maxsize=4096)
def _write_quantity(value: str) -> bytes:
    return delimited(_FIRST, value.encode())


def _write_int_or_string(value: int | str) -> bytes:
    number, text = (0, value) if isinstance(value, str) else (value, "")
    which = _IS_STRING if isinstance(value, str) else 0
    numbers = (_FIRST_NUMBER, varint(which), _SECOND_NUMBER, varint(number))
    return delimited(b"".join((*numbers, _THIRD)), _write_text(text))


def _write_raw(value: Value) -> bytes:
    return b"" if value is None else delimited(_FIRST, _json_text(value))


def _json_text(value: Value) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # whole numbers of more than 64 bits
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int | bytes]]:
    """Return the numbers and values of the fields of a message: unsigned numbers, or bytes."""
    while position < end:
        key, position = read_varint(data, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == VARINT:
            value, position = read_varint(data, position)
            yield number, value
        elif wire_type == LENGTH:
            size, position = read_varint(data, position)
            if position + size > end:
                raise ProtobufError("unexpected EOF")
            yield number, data[position : position + size]
            position += size
        else:
            position = skip(data, position, wire_type, end)
    if position > end:
        raise ProtobufError("unexpected EOF")


def contents(data: bytes, position: int, end: int) -> list[tuple[int, bytes]]:
    """Return the numbers and contents of the fields with a length."""
    found = fields(data, position, end)
    return [(number, value) for number, value in found if isinstance(value, bytes)]


def _numbers(content: bytes) -> dict[int, int]:
    found = fields(content, 0, len(content))
    return {number: value for number, value in found if isinstance(value, int)}


def _read_text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _read_bytes(content: bytes) -> str:
    return base64.b64encode(content).decode()


@lru_cache(maxsize=4096)
def _read_time(content: bytes) -> str | None:
    if not content:
        return None
    return _formatted(Moment(signed(_numbers(content).get(1, 0)), 0), format_time_of)


@lru_cache(maxsize=1024)
def _read_micro_time(content: bytes) -> str | None:
    if not content:
        return None
    numbers = _numbers(content)
    nanoseconds = signed32(numbers.get(2, 0)) // 1000 * 1000
    return _formatted(Moment(signed(numbers.get(1, 0)), nanoseconds), format_micro_time)


def format_time_of(moment: Moment) -> str:
    """Return the text of a moment in seconds."""
    return format_time(moment.seconds)


def _formatted(moment: Moment, write: Callable[[Moment], str]) -> str | None:
    return None if moment.is_zero else write(moment)


def _read_duration(content: bytes) -> str:
    return durations.text(signed(_numbers(content).get(1, 0)))


@lru_cache(maxsize=4096)
def _read_quantity(content: bytes) -> str:
    found = dict(fields(content, 0, len(content))).get(1)
    if not isinstance(found, bytes):
        return "0"
    try:
        return canonical_quantity(_read_text(found))
    except QuantityError as error:
        raise ProtobufError(str(error)) from error


def _read_int_or_string(content: bytes) -> int | str:
    found = dict(fields(content, 0, len(content)))
    which = found.get(1, 0)
    value = found.get(3, b"") if which == _IS_STRING else found.get(2, 0)
    return signed32(value) if isinstance(value, int) else _read_text(value)


def _read_raw(content: bytes) -> Value:
    found = dict(fields(content, 0, len(content))).get(1)
    if not isinstance(found, bytes) or not found:
        return None
    try:
        return orjson.loads(found)
    except orjson.JSONDecodeError as error:
        raise ProtobufError(f"no JSON where some is due: {error}") from error


WRITERS: Final[dict[Shape, Callable[[Value], bytes]]] = {
    Shape.STRING: _write_text,
    Shape.BYTES: _write_bytes,
    Shape.TIME: _write_time,
    Shape.MICRO_TIME: _write_micro_time,
    Shape.DURATION: _write_duration,
    Shape.QUANTITY: _write_quantity,
    Shape.INT_OR_STRING: _write_int_or_string,
    Shape.FIELDS_V1: _write_raw,
    Shape.RAW: _write_raw,
}

READERS: Final[dict[Shape, Callable[[bytes], Value]]] = {
    Shape.STRING: _read_text,
    Shape.BYTES: _read_bytes,
    Shape.TIME: _read_time,
    Shape.MICRO_TIME: _read_micro_time,
    Shape.DURATION: _read_duration,
    Shape.QUANTITY: _read_quantity,
    Shape.INT_OR_STRING: _read_int_or_string,
    Shape.FIELDS_V1: _read_raw,
    Shape.RAW: _read_raw,
}
