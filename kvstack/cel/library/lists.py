"""Lists and sets: sums, sorting, slices, what is in one and not in another; optional values."""

from collections.abc import Callable, Mapping
from functools import cmp_to_key
from typing import Any, Final

from kvstack.cel.checker.functions import Functions, declared, merged
from kvstack.cel.errors import CelError
from kvstack.cel.evaluation.operators import add, compare, equal, is_zero, type_value
from kvstack.cel.values import NONE, Duration, Optional, Uint

RANGE_MAX: Final = 1_000_000
"""The longest list that `lists.range` makes."""

_SUMMABLE: Final = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}
_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_PROTO: Final = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}

FUNCTIONS: Final[Functions] = merged(
    declared(
        "\n".join(f"sum: list({each}).() -> {each} @ list_{each}_sum_{each}" for each in _SUMMABLE)
    ),
    declared(
        "\n".join(
            line
            for each in _COMPARABLE
            for line in (
                f"isSorted: list({each}).() -> bool @ list_{each}_is_sorted_bool",
                f"max: list({each}).() -> {each} @ list_{each}_max_{each}",
                f"min: list({each}).() -> {each} @ list_{each}_min_{each}",
                f"sort: list({each}).() -> list({each}) @ list_{_PROTO.get(each, each)}_sort",
                f"@sortByAssociatedKeys: list(T).(list({each})) -> list(T)"
                f" @ list_{_PROTO.get(each, each)}_sortByAssociatedKeys",
            )
        )
    ),
    declared("""
        indexOf: list(A).(A) -> int @ list_a_index_of_int
        lastIndexOf: list(A).(A) -> int @ list_a_last_index_of_int
        slice: list(T).(int, int) -> list(T) @ list_slice
        flatten: list(list(T)).() -> list(T) @ list_flatten
        flatten: list(dyn).(int) -> list(dyn) @ list_flatten_int
        lists.range: (int) -> list(int) @ lists_range
        reverse: list(T).() -> list(T) @ list_reverse
        distinct: list(T).() -> list(T) @ list_distinct
        first: list(V).() -> optional(V) @ list_first
        last: list(V).() -> optional(V) @ list_last
        sets.contains: (list(T), list(T)) -> bool @ list_sets_contains_list
        sets.equivalent: (list(T), list(T)) -> bool @ list_sets_equivalent_list
        sets.intersects: (list(T), list(T)) -> bool @ list_sets_intersects_list
    """),
)
INCLUDES: Final[Functions] = declared("""
    includes: dyn.(dyn) -> bool @ list_includes_dyn_dyn
""")
"""Functions of the newest version."""
OPTIONALS: Final[Functions] = declared("""
    optional.of: (V) -> optional(V) @ optional_of
    optional.ofNonZeroValue: (V) -> optional(V) @ optional_ofNonZeroValue
    optional.none: () -> optional(V) @ optional_none
    value: optional(V).() -> V @ optional_value
    hasValue: optional(V).() -> bool @ optional_hasValue
    optional.unwrap: (list(optional(V))) -> list(V) @ optional_unwrap
    unwrapOpt: list(optional(V)).() -> list(V) @ optional_unwrapOpt
""")


def _is_sorted(items: list[Any]) -> bool:
    return all(compare(items[at], items[at + 1]) <= 0 for at in range(len(items) - 1))


def _sum(start: Any) -> Callable[[list[Any]], Any]:  # noqa: ANN401
    def total(items: list[Any]) -> Any:  # noqa: ANN401
        found = start
        for each in items:
            found = add(found, each)
        return found

    return total


def _extreme(name: str, sign: int) -> Callable[[list[Any]], Any]:
    def pick(items: list[Any]) -> Any:  # noqa: ANN401
        if not items:
            raise CelError(f"{name} called on empty list")
        found = items[0]
        for each in items[1:]:
            if compare(found, each) == sign:
                found = each
        return found

    return pick


def _index_of(items: list[Any], item: Any) -> int:  # noqa: ANN401
    return next((at for at, each in enumerate(items) if equal(each, item)), -1)


def _last_index_of(items: list[Any], item: Any) -> int:  # noqa: ANN401
    return next((at for at in range(len(items) - 1, -1, -1) if equal(items[at], item)), -1)


def _includes(items: Any, item: Any) -> bool:  # noqa: ANN401
    if isinstance(items, list):
        return any(equal(each, item) for each in items)
    return equal(items, item)


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    prefix = f"cannot slice({start}, {end})"
    if start < 0 or end < 0:
        raise CelError(f"{prefix}, negative indexes not supported")
    if start > end:
        raise CelError(f"{prefix}, start index must be less than or equal to end index")
    if len(items) < end:
        raise CelError(f"{prefix}, list is length {len(items)}")
    return list(items[start:end])


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    found: list[Any] = []
    for each in items:
        if isinstance(each, list) and depth:
            found += _flatten(each, depth - 1)
        else:
            found.append(each)
    return found


def _sorted(items: list[Any]) -> list[Any]:
    return _sorted_by(items, items)


def _sorted_by(items: list[Any], keys: list[Any]) -> list[Any]:
    if len(items) != len(keys):
        text = (
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list,"
            f" but got {len(items)} and {len(keys)} elements respectively"
        )
        raise CelError(text)
    first = type_value(keys[0]) if keys else None
    if first is not None and first.name not in _SORTABLE:
        raise CelError("list elements must be comparable")
    if any(type_value(each) != first for each in keys):
        raise CelError("list elements must have the same type")

    def by_key(one: int, other: int) -> int:
        return compare(keys[one], keys[other])

    order = sorted(range(len(keys)), key=cmp_to_key(by_key))
    return [items[each] for each in order]


_SORTABLE: Final = frozenset(_PROTO.get(each, each) for each in _COMPARABLE)


def _range(count: int) -> list[int]:
    if count < 0:
        raise CelError(f"lists.range: size must be non-negative, got {count}")
    if count > RANGE_MAX:
        raise CelError(f"lists.range: size {count} exceeds maximum allowed ({RANGE_MAX})")
    return list(range(count))


def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for each in items:
        if not any(equal(each, other) for other in found):
            found.append(each)
    return found


def _contains(items: list[Any], others: list[Any]) -> bool:
    return all(any(equal(each, other) for each in items) for other in others)


def _intersects(items: list[Any], others: list[Any]) -> bool:
    return any(equal(each, other) for each in items for other in others)


def _value(optional: Optional) -> Any:  # noqa: ANN401
    if not optional.has_value:
        raise CelError("optional.none() dereference")
    return optional.value


def _unwrapped(items: list[Any]) -> list[Any]:
    for each in items:
        if not isinstance(each, Optional):
            raise CelError(f"value {each} is not optional")
    return [each.value for each in items if each.has_value]


IMPLEMENTATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **{f"list_{each}_sum_{each}": _sum(start) for each, start in _SUMMABLE.items()},
    **{f"list_{each}_is_sorted_bool": _is_sorted for each in _COMPARABLE},
    **{f"list_{each}_max_{each}": _extreme("max", -1) for each in _COMPARABLE},
    **{f"list_{each}_min_{each}": _extreme("min", 1) for each in _COMPARABLE},
    **{f"list_{each}_sort": _sorted for each in _SORTABLE},
    **{f"list_{each}_sortByAssociatedKeys": _sorted_by for each in _SORTABLE},
    "list_a_index_of_int": _index_of,
    "list_a_last_index_of_int": _last_index_of,
    "list_includes_dyn_dyn": _includes,
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _range,
    "list_reverse": lambda items: items[::-1],
    "list_distinct": _distinct,
    "list_first": lambda items: Optional(items[0]) if items else NONE,
    "list_last": lambda items: Optional(items[-1]) if items else NONE,
    "list_sets_contains_list": _contains,
    "list_sets_equivalent_list": lambda one, two: _contains(one, two) and _contains(two, one),
    "list_sets_intersects_list": _intersects,
    "optional_of": Optional,
    "optional_ofNonZeroValue": lambda value: NONE if is_zero(value) else Optional(value),
    "optional_none": lambda: NONE,
    "optional_value": _value,
    "optional_hasValue": lambda found: found.has_value,
    "optional_unwrap": _unwrapped,
    "optional_unwrapOpt": _unwrapped,
}
