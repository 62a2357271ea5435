"""Decoding what a strategic merge patch made: not text of JSON, but maps, which upstream converts.

    convert({"spec": {"replicas": 3.0}}, deployment)   → replicas: 3
    convert({"spec": {"replicas": "3"}}, deployment)   → DecodeError: unrecognized type: int32

The conversion is more lenient than decoding where it comes to numbers (whole floats are integers,
integers that are too large lose their upper bits), has texts of its own, and tells unknown fields
sorted, without the keys of maps on the way. What decodes without a finding converts to the same, so
only the rest is walked through here.
"""

from typing import Any, Final

from kvstack.apiserver.schema.decode import Decoded, DecodeError, decode
from kvstack.apiserver.schema.findings import Finding, StopDecodingError
from kvstack.apiserver.schema.scalars import Value, decode_base64, reader
from kvstack.apiserver.schema.types import Shape, Type

_KINDS: Final = {
    dict: "map",
    list: "slice",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
}
_BITS: Final = {Shape.INT32: 32, Shape.INT64: 64}
_SELF_DECODING: Final = frozenset(
    (
        Shape.TIME,
        Shape.MICRO_TIME,
        Shape.DURATION,
        Shape.QUANTITY,
        Shape.INT_OR_STRING,
        Shape.FIELDS_V1,
        Shape.RAW,
    )
)
"""Shapes whose Go types read their JSON themselves."""


def convert(value: dict[str, Any], type_: Type) -> Decoded:
    """Return maps as an object of a type of shape STRUCT; raises DecodeError."""
    try:
        decoded = decode(value, type_)
    except DecodeError:
        pass
    else:
        if not decoded.unknown:
            return decoded
    unknown: list[str] = []
    obj = _convert(value, type_, "", unknown)
    return Decoded(decode(obj, type_).obj, sorted(unknown))


def _convert(value: Value, type_: Type, path: str, unknown: list[str]) -> Value:
    """Return a value that decodes without a finding."""
    shape = type_.shape
    if value is None:
        return None
    if shape is Shape.STRUCT:
        return _struct(value, type_, path, unknown)
    if shape is Shape.LIST and type_.element is not None:
        if not isinstance(value, list):
            raise DecodeError(f"cannot restore slice from {_KINDS[type(value)]}")
        element = type_.element
        return [
            _convert(item, element, f"{path}[{position}]", unknown)
            for position, item in enumerate(value)
        ]
    if shape is Shape.MAP and type_.element is not None:
        if not isinstance(value, dict):
            raise DecodeError(f"cannot restore map from {_KINDS[type(value)]}")
        element = type_.element
        return {key: _convert(item, element, path, unknown) for key, item in value.items()}
    if shape in _SELF_DECODING:
        return _self_decoding(value, type_)
    return _scalar(value, type_)


def _struct(value: Value, type_: Type, path: str, unknown: list[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DecodeError(f"cannot restore struct from: {_KINDS[type(value)]}")
    fields = type_.fields
    converted = {
        name: _convert(value[name], field.type, f"{path}.{name}" if path else name, unknown)
        for name, field in fields.items()
        if name in value
    }
    for name in value.keys() - fields.keys():
        where = f"{path}.{name}" if path else name
        unknown.append(f'unknown field "{where}"')
    return converted


def _self_decoding(value: Value, type_: Type) -> Value:
    findings: list[Finding] = []
    try:
        decoded = reader(type_)(value, findings)
    except StopDecodingError as stop:
        raise DecodeError(stop.finding.message) from None
    if findings:
        raise DecodeError(findings[0].message)
    return decoded


def _scalar(value: Value, type_: Type) -> Value:
    shape = type_.shape
    if shape is Shape.BYTES:
        return _bytes(value)
    if shape is Shape.STRING and isinstance(value, str):
        return value
    if shape is Shape.BOOL and isinstance(value, bool):
        return value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if shape is Shape.FLOAT64 and is_number:
        return value
    if shape in _BITS and is_number:
        if value != int(value):
            raise DecodeError(f"cannot convert float64 to {type_.go_kind}")
        half = 1 << (_BITS[shape] - 1)
        return (int(value) + half) % (2 * half) - half
    if shape is Shape.STRING and is_number and isinstance(value, int):
        raise DecodeError(f"cannot convert int64 to {type_.go_kind}")
    raise DecodeError(f"unrecognized type: {_GO_KINDS[shape]}")


_GO_KINDS: Final = {
    Shape.STRING: "string",
    Shape.BOOL: "bool",
    Shape.INT32: "int32",
    Shape.INT64: "int64",
    Shape.FLOAT64: "float64",
}


def _bytes(value: Value) -> str:
    if not isinstance(value, str):
        raise DecodeError(f"cannot restore slice from {_KINDS[type(value)]}")
    try:
        decode_base64(value)
    except ValueError as error:
        raise DecodeError(f"error decoding from json: {error}") from None
    return value
