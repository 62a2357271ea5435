"""Declarations of operators; `evaluation/operators.py` implements them."""

from collections.abc import Iterator
from typing import Final

from kvstack.cel.checker.functions import Functions, declared, merged

_NUMBERS: Final = (("int", "int64"), ("uint", "uint64"), ("double", "double"))
_OTHERS: Final = ("bool", "string", "bytes", "timestamp", "duration")
_RELATIONS: Final = {
    "_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals",
}  # fmt: skip


def _relations() -> Iterator[str]:
    for name, word in _RELATIONS.items():
        yield f"{name}: (bool, bool) -> bool @ {word}_bool"
        for left, left_name in _NUMBERS:
            for right, right_name in _NUMBERS:
                pair = left_name if left == right else f"{left_name}_{right_name}"
                yield f"{name}: ({left}, {right}) -> bool @ {word}_{pair}"
        for each in _OTHERS[1:]:
            yield f"{name}: ({each}, {each}) -> bool @ {word}_{each}"


FUNCTIONS: Final[Functions] = merged(
    declared("\n".join(_relations())),
    declared("""
        _?_:_: (bool, A, A) -> A @ conditional
        _&&_: (bool, bool) -> bool @ logical_and
        _||_: (bool, bool) -> bool @ logical_or
        !_: (bool) -> bool @ logical_not
        @not_strictly_false: (bool) -> bool @ not_strictly_false
        _==_: (A, A) -> bool @ equals
        _!=_: (A, A) -> bool @ not_equals
        _+_: (bytes, bytes) -> bytes @ add_bytes
        _+_: (double, double) -> double @ add_double
        _+_: (duration, duration) -> duration @ add_duration_duration
        _+_: (duration, timestamp) -> timestamp @ add_duration_timestamp
        _+_: (timestamp, duration) -> timestamp @ add_timestamp_duration
        _+_: (int, int) -> int @ add_int64
        _+_: (list(A), list(A)) -> list(A) @ add_list
        _+_: (string, string) -> string @ add_string
        _+_: (uint, uint) -> uint @ add_uint64
        _/_: (double, double) -> double @ divide_double
        _/_: (int, int) -> int @ divide_int64
        _/_: (uint, uint) -> uint @ divide_uint64
        _%_: (int, int) -> int @ modulo_int64
        _%_: (uint, uint) -> uint @ modulo_uint64
        _*_: (double, double) -> double @ multiply_double
        _*_: (int, int) -> int @ multiply_int64
        _*_: (uint, uint) -> uint @ multiply_uint64
        -_: (double) -> double @ negate_double
        -_: (int) -> int @ negate_int64
        _-_: (double, double) -> double @ subtract_double
        _-_: (duration, duration) -> duration @ subtract_duration_duration
        _-_: (int, int) -> int @ subtract_int64
        _-_: (timestamp, duration) -> timestamp @ subtract_timestamp_duration
        _-_: (timestamp, timestamp) -> duration @ subtract_timestamp_timestamp
        _-_: (uint, uint) -> uint @ subtract_uint64
        _[_]: (list(A), int) -> A @ index_list
        _[_]: (map(A, B), A) -> B @ index_map
        _[_]: (optional(list(V)), int) -> optional(V) @ optional_list_index_int
        _[_]: (optional(map(K, V)), K) -> optional(V) @ optional_map_index_value
        @in: (A, list(A)) -> bool @ in_list
        @in: (A, map(A, B)) -> bool @ in_map
        _[?_]: (list(V), int) -> optional(V) @ list_optindex_optional_int
        _[?_]: (optional(list(V)), int) -> optional(V) @ optional_list_optindex_optional_int
        _[?_]: (map(K, V), K) -> optional(V) @ map_optindex_optional_value
        _[?_]: (optional(map(K, V)), K) -> optional(V) @ optional_map_optindex_optional_value
        or: optional(V).(optional(V)) -> optional(V) @ optional_or_optional
        orValue: optional(V).(V) -> V @ optional_orValue_value
        cel.@mapInsert: (map(K, V), K, V) -> map(K, V) @ @mapInsert_map_key_value
        cel.@mapInsert: (map(K, V), map(K, V)) -> map(K, V) @ @mapInsert_map_map
        dyn: (A) -> dyn @ to_dyn
        type: (A) -> type(A) @ type
    """),
)
