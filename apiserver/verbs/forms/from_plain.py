"""Decodes the result of a strategic merge patch or an apply, as Go's converter does.

    read({"spec": {"replicas": 3.0}}, deployment)   → replicas: 3
    read({"spec": {"replicas": "x"}}, deployment)   DecodeError: unrecognized type: int32
    read({"spec": {"replicas": 1.5}}, deployment)   DecodeError: cannot convert float64 to int32

Upstream converts maps to typed objects there, without JSON between: numbers are accepted more
leniently, and errors have texts of their own. Types with their own decoders, such as times and
quantities, have the texts of decoding.
"""

from typing import Any, Final

import orjson

from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.schema.decode import (
    DecodedWithEmpty,
    DecodeError,
    decode,
    decode_as_given,
)
from kvstack.apimachinery.schema.types import Shape, Type

_GO_KINDS: Final = {str: "string", bool: "bool", int: "int64", float: "float64", dict: "map"}
_SCALARS: Final = {
    Shape.STRING: "string",
    Shape.BOOL: "bool",
    Shape.INT32: "int32",
    Shape.INT64: "int64",
    Shape.FLOAT64: "float64",
}
_BITS: Final = {Shape.INT32: 32, Shape.INT64: 64}
_RAW_EXTENSION: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_REACHES_RAW: Final = "reaches raw content"
_NUMBERS: Final = frozenset((Shape.INT32, Shape.INT64, Shape.FLOAT64))


def read(value: Any, type_: Type) -> DecodedWithEmpty:  # noqa: ANN401 — a map, or it is refused
    """Return a plain value decoded by its type; raises DecodeError."""
    try:
        return decode_as_given(_written_anew(value, type_), type_)
    except DecodeError:
        text = _mismatch(value, type_)
        if text:
            raise DecodeError(text) from None
    return decode_as_given(_fit_numbers(value, type_), type_)


def _fit_numbers(value: Any, type_: Type) -> Any:  # noqa: ANN401
    """Return a value that fits its type, with its numbers as Go converts them.

    Whole floats become integers, and integers that are too large lose their upper bits.
    """
    shape, element = type_.shape, type_.element
    if shape in _BITS and isinstance(value, (int, float)) and not isinstance(value, bool):
        bits = _BITS[shape]
        low = int(value) & ((1 << bits) - 1)
        return low - (1 << bits) if low >> (bits - 1) else low
    if shape is Shape.STRUCT and isinstance(value, dict):
        fields = type_.fields
        return {
            name: _fit_numbers(each, fields[name].type) if name in fields else each
            for name, each in value.items()
        }
    if shape is Shape.LIST and element is not None and isinstance(value, list):
        return [_fit_numbers(each, element) for each in value]
    if shape is Shape.MAP and element is not None and isinstance(value, dict):
        return {name: _fit_numbers(each, element) for name, each in value.items()}
    return value


def _written_anew(value: Any, type_: Type) -> Any:  # noqa: ANN401
    """Return a value whose raw content is in the form that conversion gives it.

    Upstream writes raw content from a map, so its members are sorted; for immutable content, that
    is a change.
    """
    if value is None or not _reaches_raw(type_):
        return value
    shape, element = type_.shape, type_.element
    if shape is Shape.RAW:
        return orjson.loads(json_text.write_sorted(value)) if isinstance(value, dict) else value
    if shape is Shape.STRUCT and isinstance(value, dict):
        fields = type_.fields
        return {
            name: _written_anew(each, fields[name].type) if name in fields else each
            for name, each in value.items()
        }
    if shape is Shape.LIST and element is not None and isinstance(value, list):
        return [_written_anew(each, element) for each in value]
    if shape is Shape.MAP and element is not None and isinstance(value, dict):
        return {name: _written_anew(each, element) for name, each in value.items()}
    return value


def _reaches_raw(type_: Type) -> bool:
    """Return whether a value of a type may hold a RawExtension."""
    found = type_.compiled.get(_REACHES_RAW)
    if found is None:
        found = _finds_raw(type_, set())
        type_.compiled[_REACHES_RAW] = found
    return bool(found)


def _finds_raw(type_: Type, seen: set[Type]) -> bool:
    if type_ in seen:
        return False
    seen.add(type_)
    if type_.shape is Shape.RAW:
        return type_.name == _RAW_EXTENSION
    below = [field.type for field in type_.fields.values()]
    return any(_finds_raw(each, seen) for each in (*below, *filter(None, [type_.element])))


def _mismatch(value: Any, type_: Type) -> str:  # noqa: ANN401 — of the type, or not
    """Return the first mismatch of a value and its type; empty if it fits."""
    if value is None:
        return ""
    if type_.shape in _SCALARS:
        return _of_scalar(value, type_)
    if type_.shape is Shape.STRUCT:
        if not isinstance(value, dict):
            return f"cannot restore struct from: {_go_kind(value)}"
        found = (_mismatch(value.get(name), field.type) for name, field in type_.fields.items())
        return next(filter(None, found), "")
    element = type_.element
    if type_.shape is Shape.LIST and element is not None:
        if not isinstance(value, list):
            return f"cannot restore slice from {_go_kind(value)}"
        return next(filter(None, (_mismatch(each, element) for each in value)), "")
    if type_.shape is Shape.MAP and element is not None:
        if not isinstance(value, dict):
            return f"cannot restore map from {_go_kind(value)}"
        return next(filter(None, (_mismatch(each, element) for each in value.values())), "")
    if type_.shape is Shape.BYTES and not isinstance(value, str):
        return f"cannot restore slice from {_go_kind(value)}"
    return _of_reader(value, type_)


def _of_scalar(value: Any, type_: Type) -> str:  # noqa: ANN401
    shape = type_.shape
    expected = _SCALARS[shape]
    kind = _go_kind(value)
    if kind == expected or (shape in _NUMBERS and kind == "int64"):
        return ""
    if shape in _NUMBERS and kind == "float64":
        fits = shape is Shape.FLOAT64 or float(value).is_integer()
        return "" if fits else f"cannot convert float64 to {type_.go_kind or expected}"
    if shape is Shape.STRING and kind == "int64":
        return f"cannot convert int64 to {type_.go_kind or expected}"
    return f"unrecognized type: {expected}"


def _of_reader(value: Any, type_: Type) -> str:  # noqa: ANN401
    """Return the error of a type with its own decoder."""
    holder = Type(Shape.LIST)
    holder.element = type_
    try:
        decode([value], holder)
    except DecodeError as error:
        text = str(error)
        return f"error decoding from json: {text}" if type_.shape is Shape.BYTES else text
    return ""


def _go_kind(value: object) -> str:
    return "slice" if isinstance(value, list) else _GO_KINDS[type(value)]
