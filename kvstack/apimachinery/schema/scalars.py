"""Decoding of values that are neither structs, lists nor maps, each as Go reads and writes it.

A reader takes a value that is not null and returns it in its canonical form, or OMITTED after it
has added a finding; readers of types that decode themselves in Go stop at the first error.
"""

import base64
import binascii
from collections.abc import Callable
from math import isinf
from typing import Any, Final

from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.durations import DurationError
from kvstack.apimachinery.objects.quantity import QuantityError
from kvstack.apimachinery.objects.quantity import canonical as canonical_quantity
from kvstack.apimachinery.objects.times import TimeError, canonical_micro_time, canonical_time
from kvstack.apimachinery.schema.findings import (
    ERROR,
    TYPE_ERROR,
    Finding,
    StopDecodingError,
    kind_of,
    literal,
)
from kvstack.apimachinery.schema.types import Shape, Type

Value = Any
"""A value of JSON."""
Read = Callable[[Value, list[Finding]], Value]


class _Omitted:
    __slots__ = ()

    def __bool__(self) -> bool:
        return False


OMITTED: Final = _Omitted()
"""The result for a value that could not be decoded, or must be left out."""


def mismatch(value: object, go_type: str, findings: list[Finding]) -> _Omitted:
    """Add the finding of a value of another type."""
    findings.append(Finding(TYPE_ERROR, kind_of(value), go_type))
    return OMITTED


def reader(type_: Type) -> Read:
    """Return the reader of a type that is not a struct, list or map."""
    return _READERS[type_.shape](type_)


def _string(type_: Type) -> Read:
    def read(value: Value, findings: list[Finding]) -> object:
        if isinstance(value, str):
            return value
        return mismatch(value, type_.go_kind, findings)

    return read


def _bool(type_: Type) -> Read:
    def read(value: Value, findings: list[Finding]) -> object:
        if isinstance(value, bool):
            return value
        return mismatch(value, type_.go_kind, findings)

    return read


def _integer(bits: int) -> Callable[[Type], Read]:
    maximum = (1 << (bits - 1)) - 1

    def make(type_: Type) -> Read:
        def read(value: Value, findings: list[Finding]) -> object:
            if value.__class__ is int and -maximum - 1 <= value <= maximum:
                return value
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                found = f"number {literal(value)}"
                findings.append(Finding(TYPE_ERROR, found, type_.go_kind))
                return OMITTED
            return mismatch(value, type_.go_kind, findings)

        return read

    return make


def _float(type_: Type) -> Read:
    def read(value: Value, findings: list[Finding]) -> object:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return mismatch(value, type_.go_kind, findings)
        number = float(value)
        if isinf(number):
            findings.append(Finding(TYPE_ERROR, f"number {literal(value)}", type_.go_kind))
            return OMITTED
        return int(number) if number.is_integer() and abs(number) < 1e21 else number

    return read


def _bytes(type_: Type) -> Read:
    def read(value: Value, findings: list[Finding]) -> object:
        if isinstance(value, list):
            return _bytes_of_numbers(value, findings)
        if not isinstance(value, str):
            return mismatch(value, type_.go_kind, findings)
        try:
            return base64.b64encode(decode_base64(value)).decode()
        except ValueError as error:
            findings.append(Finding(ERROR, str(error)))
            return OMITTED

    return read


def decode_base64(text: str) -> bytes:
    """Return the bytes of a text as Go's decoder reads it; ValueError has its message."""
    stripped = text.replace("\r", "").replace("\n", "")
    if len(stripped) % 4 == 0 and stripped.isascii() and not stripped.endswith("==="):
        try:
            return binascii.a2b_base64(stripped, strict_mode=True)
        except binascii.Error:  # or bits left over in the last character, which Go does not mind
            pass
    position = _bad_base64(text)
    if position < 0:
        return base64.b64decode(stripped)
    raise ValueError(f"illegal base64 data at input byte {position}")


def _bad_base64(text: str) -> int:
    """Return the offset at which Go gives up on a text; negative: it does not."""
    data = text.encode()
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    offset = quantum = 0
    while offset < len(data):
        byte = data[offset]
        offset += 1
        if byte in b"\r\n":
            continue
        if byte in plain:
            quantum = (quantum + 1) % 4
            continue
        if byte != ord("=") or quantum < 2:
            return offset - 1
        return _bad_padding(data, offset, quantum)
    return offset - quantum if quantum else -1


def _bad_padding(data: bytes, offset: int, quantum: int) -> int:
    """Return the offset at which Go gives up after the first `=`; negative: it does not."""
    while quantum == 2 and offset < len(data) and data[offset] in b"\r\n":
        offset += 1
    if quantum == 2:
        if offset == len(data):
            return len(data)
        if data[offset] != ord("="):
            return offset - 1
        offset += 1
    while offset < len(data) and data[offset] in b"\r\n":
        offset += 1
    return offset if offset < len(data) else -1


def _bytes_of_numbers(value: list[Any], findings: list[Finding]) -> object:
    data = bytearray()
    for position, item in enumerate(value):
        if item is None:
            data.append(0)
            continue
        if item.__class__ is int and 0 <= item < 256:
            data.append(item)
            continue
        is_number = isinstance(item, (int, float)) and not isinstance(item, bool)
        found = f"number {literal(item)}" if is_number else kind_of(item)
        finding = Finding(TYPE_ERROR, found, "uint8")
        finding.enter_index(position)
        findings.append(finding)
        return OMITTED
    return base64.b64encode(data).decode()


def _text_form(canonical: Callable[[str], object], error: type[ValueError]) -> Read:
    """Return the reader of a type that Go reads from a string."""

    def read(value: Value, _findings: list[Finding]) -> object:
        if not isinstance(value, str):
            raise StopDecodingError(Finding(TYPE_ERROR, kind_of(value), "string"))
        try:
            return canonical(value)
        except error as problem:
            raise StopDecodingError(Finding(ERROR, str(problem))) from problem

    return read


def _quantity(_type: Type) -> Read:
    def read(value: Value, _findings: list[Finding]) -> object:
        text = value if isinstance(value, (str, int, float)) else ""
        try:
            # Go looks at the text of the value: true, [ and { are no quantities, nor is "".
            return canonical_quantity("" if isinstance(value, bool) else text)
        except QuantityError as problem:
            raise StopDecodingError(Finding(ERROR, str(problem))) from problem

    return read


def _int_or_string(_type: Type) -> Read:
    def read(value: Value, _findings: list[Finding]) -> object:
        if value.__class__ is int and -(2**31) <= value < 2**31:
            return value
        if isinstance(value, str):
            return value
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        found = f"number {literal(value)}" if is_number else kind_of(value)
        raise StopDecodingError(Finding(TYPE_ERROR, found, "int32"))

    return read


def _as_it_is(_type: Type) -> Read:
    def read(value: Value, _findings: list[Finding]) -> object:
        return value

    return read


_READERS: Final[dict[Shape, Callable[[Type], Read]]] = {
    Shape.STRING: _string,
    Shape.BOOL: _bool,
    Shape.INT32: _integer(32),
    Shape.INT64: _integer(64),
    Shape.FLOAT64: _float,
    Shape.BYTES: _bytes,
    Shape.TIME: lambda _type: _text_form(canonical_time, TimeError),
    Shape.MICRO_TIME: lambda _type: _text_form(canonical_micro_time, TimeError),
    Shape.DURATION: lambda _type: _text_form(durations.canonical, DurationError),
    Shape.QUANTITY: _quantity,
    Shape.INT_OR_STRING: _int_or_string,
    Shape.FIELDS_V1: _as_it_is,
    Shape.RAW: _as_it_is,
}
