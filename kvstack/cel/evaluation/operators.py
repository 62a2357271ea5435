"""The operators on values: equality, order, sums, products, members.

Numbers of different types are compared by what they are worth; sums and products need one type.
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from kvstack.cel.errors import CelError, CostError, NoSuchOverloadError
from kvstack.cel.values import (
    INT_MAX,
    INT_MIN,
    NONE,
    UINT_MAX,
    Duration,
    KeyedList,
    ObjectValue,
    Optional,
    SetList,
    StructValue,
    Timestamp,
    TypeValue,
    Uint,
)

_SIMPLE: Final = frozenset((str, int, bool, float, bytes, Uint, Duration, Timestamp, TypeValue))
_NUMBERS: Final = frozenset((int, float, Uint))
_ORDERED: Final = frozenset((str, bytes, bool))
_ITEMS_MAX: Final = 2_000_000
"""Limit on a concatenated list; upstream makes no new list, so costs do not bound it."""
_SECOND: Final = 1_000_000_000
_TIME_MIN: Final = -62135596800 * _SECOND
_TIME_MAX: Final = 253402300800 * _SECOND - 1
_TYPE_NAMES: Final[dict[type, TypeValue]] = {
    each: TypeValue(name)
    for each, name in (
        (type(None), "null_type"),
        (bool, "bool"),
        (int, "int"),
        (Uint, "uint"),
        (float, "double"),
        (str, "string"),
        (bytes, "bytes"),
        (list, "list"),
        (SetList, "list"),
        (KeyedList, "list"),
        (dict, "map"),
        (ObjectValue, "map"),
        (Timestamp, "google.protobuf.Timestamp"),
        (Duration, "google.protobuf.Duration"),
        (Optional, "optional_type"),
        (TypeValue, "type"),
    )
}


def type_value(value: Any) -> TypeValue:  # noqa: ANN401
    """Return the type of a value."""
    found = _TYPE_NAMES.get(type(value))
    return TypeValue(getattr(value, "type_name", _QUANTITY)) if found is None else found


_QUANTITY: Final = "kubernetes.Quantity"


def equal(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Return whether two values are equal; values of types that have nothing in common are not."""
    kind, other_kind = type(one), type(other)
    if kind is other_kind and kind in _SIMPLE:
        return bool(one == other)
    if one is None or other is None:
        return one is other
    if kind in _NUMBERS:
        return other_kind in _NUMBERS and bool(one == other)
    if isinstance(one, list):
        return isinstance(other, list) and _equal_lists(one, other)
    if kind is ObjectValue or kind is dict:
        return (other_kind is ObjectValue or other_kind is dict) and _equal_maps(one, other)
    if kind is StructValue:
        return (
            other_kind is StructValue
            and one.type_name == other.type_name
            and _equal_maps(one, other)
        )
    if kind is Optional:
        if other_kind is not Optional or one.has_value != other.has_value:
            return False
        return not one.has_value or equal(one.value, other.value)
    return kind is other_kind and bool(one == other)


def _equal_lists(one: list[Any], other: list[Any]) -> bool:
    if len(one) != len(other):
        return False
    if isinstance(one, SetList) or isinstance(other, SetList):
        return all(any(equal(each, item) for item in other) for each in one)
    if isinstance(one, KeyedList) and isinstance(other, KeyedList):
        found = {key_of(each, other.keys): each for each in other}
        return all(
            (key := key_of(each, one.keys)) in found and equal(each, found[key]) for each in one
        )
    return all(map(equal, one, other))


def _equal_maps(one: Any, other: Any) -> bool:  # noqa: ANN401
    if len(one) != len(other):
        return False
    return all(key in other and equal(_member(one, key), _member(other, key)) for key in one)


def _member(value: Any, key: Any) -> Any:  # noqa: ANN401
    return value.get(key) if type(value) is ObjectValue else value[key]


def key_of(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...]:  # noqa: ANN401
    """Return the key that identifies an item of a list."""
    return tuple(_member(item, each) if each in item else None for each in keys)


def compare(one: Any, other: Any) -> int:  # noqa: ANN401
    """Return -1, 0 or 1; raises CelError."""
    kind, other_kind = type(one), type(other)
    if kind in _NUMBERS and other_kind in _NUMBERS:
        if (kind is float and math.isnan(one)) or (other_kind is float and math.isnan(other)):
            raise CelError("NaN values cannot be ordered")
        return _order(one, other)
    if kind is not other_kind:
        raise NoSuchOverloadError
    if kind in _ORDERED:
        return _order(one, other)
    if kind is Timestamp or kind is Duration:
        return _order(one.nanoseconds, other.nanoseconds)
    raise NoSuchOverloadError


def _order(one: Any, other: Any) -> int:  # noqa: ANN401
    return 1 if one > other else -1 if one < other else 0


def _int(number: int) -> int:
    if INT_MIN <= number <= INT_MAX:
        return number
    raise CelError("integer overflow")


def _uint(number: int) -> Uint:
    if 0 <= number <= UINT_MAX:
        return Uint(number)
    raise CelError("unsigned integer overflow")


def _duration(nanoseconds: int) -> Duration:
    if INT_MIN <= nanoseconds <= INT_MAX:
        return Duration(nanoseconds)
    raise CelError("duration overflow")


def _timestamp(nanoseconds: int, offset: int) -> Timestamp:
    if _TIME_MIN <= nanoseconds <= _TIME_MAX:
        return Timestamp(nanoseconds, offset)
    raise CelError("timestamp overflow")


def add(one: Any, other: Any) -> Any:  # noqa: ANN401
    """Return a sum, or what two texts or lists are together; raises CelError."""
    kind, other_kind = type(one), type(other)
    if kind is other_kind:
        if kind is int:
            number = one + other
            return number if INT_MIN <= number <= INT_MAX else _int(number)
        if kind is str or kind is float or kind is bytes:
            return one + other
        if kind is Uint:
            return _uint(int(one) + int(other))
        if kind is Duration:
            return _duration(one.nanoseconds + other.nanoseconds)
    if isinstance(one, list) and isinstance(other, list):
        return _joined(one, other)
    if kind is Timestamp and other_kind is Duration:
        return _timestamp(one.nanoseconds + other.nanoseconds, one.offset)
    if kind is Duration and other_kind is Timestamp:
        return _timestamp(one.nanoseconds + other.nanoseconds, other.offset)
    raise NoSuchOverloadError


def _joined(one: list[Any], other: list[Any]) -> list[Any]:
    if len(one) + len(other) > _ITEMS_MAX:
        raise CostError
    if isinstance(one, SetList):
        found = SetList(one)
        found.extend(each for each in other if not any(equal(each, item) for item in one))
        return found
    if isinstance(one, KeyedList):
        # The item of the other list with the same key replaces an item.
        changed = {key_of(each, one.keys): each for each in other}
        items = [changed.pop(key_of(each, one.keys), each) for each in one]
        return KeyedList([*items, *changed.values()], one.keys)
    return [*one, *other]


def subtract(one: Any, other: Any) -> Any:  # noqa: ANN401
    """Return a difference; raises CelError."""
    kind, other_kind = type(one), type(other)
    if kind is other_kind:
        if kind is int:
            return _int(one - other)
        if kind is float:
            return one - other
        if kind is Uint:
            return _uint(int(one) - int(other))
        if kind is Duration or kind is Timestamp:
            return _duration(one.nanoseconds - other.nanoseconds)
    if kind is Timestamp and other_kind is Duration:
        return _timestamp(one.nanoseconds - other.nanoseconds, one.offset)
    raise NoSuchOverloadError


def multiply(one: Any, other: Any) -> Any:  # noqa: ANN401
    """Return a product; raises CelError."""
    kind = type(one)
    if kind is not type(other):
        raise NoSuchOverloadError
    if kind is int:
        return _int(one * other)
    if kind is float:
        return one * other
    if kind is Uint:
        return _uint(int(one) * int(other))
    raise NoSuchOverloadError


def divide(one: Any, other: Any) -> Any:  # noqa: ANN401
    """Return a quotient, of whole numbers towards zero; raises CelError."""
    kind = type(one)
    if kind is not type(other):
        raise NoSuchOverloadError
    if kind is float:
        return _float_quotient(one, other)
    if kind is not int and kind is not Uint:
        raise NoSuchOverloadError
    if other == 0:
        raise CelError("division by zero")
    quotient = abs(one) // abs(other)
    if kind is Uint:
        return Uint(quotient)
    return _int(quotient if (one < 0) == (other < 0) else -quotient)


def _float_quotient(one: float, other: float) -> float:
    if other != 0:
        return one / other
    if one == 0 or math.isnan(one):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1.0, other)


def remainder(one: Any, other: Any) -> Any:  # noqa: ANN401
    """Return what is left by a division, with the sign of what is divided; raises CelError."""
    kind = type(one)
    if kind is not type(other) or (kind is not int and kind is not Uint):
        raise NoSuchOverloadError
    if other == 0:
        raise CelError("modulus by zero")
    if kind is int and one == INT_MIN and other == -1:
        raise CelError("integer overflow")
    rest = abs(one) % abs(other)
    if kind is Uint:
        return Uint(rest)
    return -rest if one < 0 else rest


def negate(value: Any) -> Any:  # noqa: ANN401
    """Return the negative of a number; raises CelError."""
    if type(value) is int:
        return _int(-value)
    if type(value) is float:
        return -value
    raise NoSuchOverloadError


def contains(item: Any, whole: Any) -> bool:  # noqa: ANN401
    """Return whether a list has an item, or a map a key; raises CelError."""
    if isinstance(whole, list):
        return any(equal(item, each) for each in whole)
    if type(whole) is dict:
        return _is_key(item) and item in whole
    if type(whole) is ObjectValue:
        return item in whole
    raise NoSuchOverloadError


def _is_key(value: Any) -> bool:  # noqa: ANN401
    return type(value) in _KEYS


_KEYS: Final = frozenset((str, int, bool, Uint, float))


def _missing(key: Any) -> CelError:  # noqa: ANN401
    text = str(key).lower() if isinstance(key, bool) else str(key)
    return CelError(f"no such key: {text}")


def select(value: Any, name: str) -> Any:  # noqa: ANN401
    """Return a member of an object or map; raises CelError."""
    kind = type(value)
    try:
        if kind is dict:
            return value[name]
        if kind is ObjectValue:
            return value.get(name)
    except KeyError:
        raise _missing(name) from None
    if kind is Optional:
        return _optional(value, name)
    if kind is StructValue and name in value:
        return value[name]
    raise _missing(name)


def has(value: Any, name: str) -> bool:  # noqa: ANN401
    """Return whether there is a member."""
    if type(value) is Optional:
        return value.has_value and has(value.value, name)
    return type(value) in _MAPS and name in value


def index(value: Any, key: Any) -> Any:  # noqa: ANN401
    """Return an item of a list, or what a map has for a key; raises CelError."""
    kind = type(value)
    if kind is dict:
        if _is_key(key) and key in value:
            return value[key]
        raise _missing(key)
    if isinstance(value, list):
        position = _position(key)
        if not 0 <= position < len(value):
            raise CelError(f"index out of bounds: {position}")
        return value[position]
    if kind is ObjectValue:
        return select(value, key) if isinstance(key, str) else _raise(_missing(key))
    if kind is Optional:
        return _optional(value, key)
    raise _missing(key)


_MAPS: Final = frozenset((dict, ObjectValue, StructValue))


def _raise(error: CelError) -> Any:  # noqa: ANN401
    raise error


def _position(key: Any) -> int:  # noqa: ANN401
    kind = type(key)
    if kind is int or kind is Uint:
        return int(key)
    if kind is float:
        if key.is_integer():
            return int(key)
        raise CelError(f"unsupported index value {key} in list")
    raise CelError(f"unsupported index type '{type_value(key).name}' in list")


def optional_index(value: Any, key: Any) -> Optional:  # noqa: ANN401
    """Return a member, an item, or the value of a key of a map, if it exists."""
    if type(value) is Optional:
        return _optional(value, key)
    if type(value) in {dict, ObjectValue}:
        return Optional(_member(value, key)) if contains(key, value) else NONE
    if isinstance(value, list):
        position = _position(key)
        return Optional(value[position]) if 0 <= position < len(value) else NONE
    return NONE


def _optional(value: Optional, key: Any) -> Optional:  # noqa: ANN401
    return optional_index(value.value, key) if value.has_value else NONE


def inserted(target: dict[Any, Any], entries: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a map with more entries, which it may not have yet; raises CelError."""
    found = dict(target)
    for key, value in entries.items():
        if key in found:
            raise CelError(f"insert failed: key {key} already exists")
        found[key] = value
    return found


def is_zero(value: Any) -> bool:  # noqa: ANN401
    """Return whether a value is the empty one of its type."""
    if value is None:
        return True
    if isinstance(value, Duration):
        return value.nanoseconds == 0
    if isinstance(value, Optional):
        return not value.has_value or is_zero(value.value)
    if isinstance(value, (bool, int, float, str, bytes, list, dict, ObjectValue)):
        return not value if not isinstance(value, ObjectValue) else len(value) == 0
    return False


def _insert(target: dict[Any, Any], *entry: Any) -> dict[Any, Any]:  # noqa: ANN401
    return inserted(target, entry[0] if len(entry) == 1 else {entry[0]: entry[1]})


def _ordering(holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return a comparison of two values by their order."""

    def ordered(one: Any, other: Any) -> bool:  # noqa: ANN401
        if type(one) is int and type(other) is int:  # as it nearly always is
            return holds(one, other)
        return holds(compare(one, other), 0)

    return ordered


BINARY: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "_==_": equal,
    "_!=_": lambda one, other: not equal(one, other),
    "_<_": _ordering(operator.lt),
    "_<=_": _ordering(operator.le),
    "_>_": _ordering(operator.gt),
    "_>=_": _ordering(operator.ge),
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": remainder,
    "@in": contains,
    "_[_]": index,
    "_[?_]": optional_index,
    "_?._": optional_index,
}
"""The binary operators by name."""
OTHERS: Final[Mapping[str, Callable[..., Any]]] = {
    "-_": negate,
    "dyn": lambda value: value,
    "type": type_value,
    "cel.@mapInsert": _insert,
}
