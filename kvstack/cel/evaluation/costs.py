"""The run-time costs of calls.

    cost_of("matches", "matches_string")(("abc", "a+"), True)   → 1
    fixed_cost("size", "list_size")                             → 1

One unit is about what it costs to look up a field. Most calls cost one; what looks at each
character of a text costs a tenth of its length.
"""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final, TypeAlias

from kvstack.cel.values import ObjectValue, Optional

TEXT: Final = 0.1
"""The cost for each character of a text that is read."""
PATTERN: Final = 0.25
"""The cost for each character of a pattern."""
LIST: Final = 10
MAP: Final = 30
STRUCT: Final = 40
"""The cost of making a list, map or message."""
CHECK: Final = 350_000
"""The cost of an authorizer check, twice that of an expression."""

Cost: TypeAlias = Callable[[Sequence[Any], Any], int]
"""(arguments, result) → cost."""


_SIZED: Final = frozenset((str, bytes, dict, ObjectValue))


def size(value: Any) -> int:  # noqa: ANN401
    """Return how large a value is; 1 for what has no size."""
    kind = type(value)
    if kind in _SIZED or isinstance(value, list):
        return len(value)
    if kind is Optional:
        return size(value.value) if value.has_value else 1
    found: int = getattr(value, "size", 1)
    return found


def _text(factor: float, position: int = 0) -> Cost:
    return lambda arguments, _result: ceil(size(arguments[position]) * factor)


def _smaller(arguments: Sequence[Any], _result: object) -> int:
    return ceil(min(size(arguments[0]), size(arguments[1])) * TEXT)


def _pattern(arguments: Sequence[Any], _result: object) -> int:
    text = ceil((1.0 + size(arguments[0])) * TEXT)
    return text * ceil(size(arguments[1]) * PATTERN)


def _contains(arguments: Sequence[Any], _result: object) -> int:
    return ceil(size(arguments[0]) * TEXT) * ceil(size(arguments[1]) * TEXT)


def _both(arguments: Sequence[Any], _result: object) -> int:
    return ceil((size(arguments[0]) + size(arguments[1])) * TEXT)


def _join(_arguments: Sequence[Any], result: object) -> int:
    return ceil(size(result) * 2 * TEXT)


def _contains_ip(arguments: Sequence[Any], _result: object) -> int:
    own = size(arguments[0])
    cost = ceil((own + own) * TEXT)
    return cost + ceil(size(arguments[1]) * TEXT) if type(arguments[1]) is str else cost


def _contains_cidr(arguments: Sequence[Any], _result: object) -> int:
    return _contains_ip(arguments, _result) + ceil(size(arguments[0]) * TEXT) + 1


def _validate(arguments: Sequence[Any], _result: object) -> int:
    text = ceil((1.0 + size(arguments[1])) * TEXT)
    pattern: int = arguments[0].pattern_size
    return text * ceil(pattern * PATTERN)


def selector_cost(length: int) -> int:
    """Return what it costs to parse a selector of a length."""
    return LIST + ceil(length * TEXT) + ceil(ceil(length * 0.5) * (LIST + STRUCT))


def _selector(arguments: Sequence[Any], _result: object) -> int:
    return selector_cost(size(arguments[1]))


def _traversal(value: Any) -> int:  # noqa: ANN401
    kind = type(value)
    if kind is str:
        return int(len(value.encode("utf-8", "surrogatepass")) * TEXT)
    if kind is bytes:
        return int(len(value) * TEXT)
    if isinstance(value, list):
        return sum(map(_traversal, value))
    if kind is dict:
        return sum(_traversal(key) + _traversal(each) for key, each in value.items())
    if kind is ObjectValue:
        return sum(_traversal(key) + _traversal(value.get(key)) for key in value)
    return 1


def _traversed(arguments: Sequence[Any], _result: object) -> int:
    return _traversal(arguments[0])


def _output(_arguments: Sequence[Any], result: Any) -> int:  # noqa: ANN401
    return LIST + 1 + size(result)


def _compared(arguments: Sequence[Any], _result: object, position: int = 0) -> int:
    """Return the cost of comparing every item of a list with every other."""
    items = arguments[position]
    is_text = bool(items) and type(items[0]) in {str, bytes}
    return LIST + 1 + int(len(items) * len(items) * (2.0 + TEXT if is_text else 2.0))


def _compared_keys(arguments: Sequence[Any], _result: object) -> int:
    return _compared(arguments, None, 1)


def _flatten(arguments: Sequence[Any], _result: object) -> int:
    depth = arguments[1] if len(arguments) > 1 else 1
    return LIST + 1 + size(arguments[0]) * max(depth, 1)


def _product(arguments: Sequence[Any], _result: object) -> int:
    return 1 + size(arguments[0]) * size(arguments[1])


def _products(arguments: Sequence[Any], _result: object) -> int:
    return 1 + 2 * size(arguments[0]) * size(arguments[1])


_BY_FUNCTION: Final[dict[str, Cost | int]] = {
    "check": CHECK,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _traversed
    ),
    **dict.fromkeys(
        ("url", "lowerAscii", "upperAscii", "substring", "trim", "jsonpatch.escapeKey", "cidr",
         "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _text(TEXT),
    ),
    "replace": _text(2 * TEXT),
    "split": _text(2 * TEXT),
    "ip.isCanonical": _text(2 * TEXT),
    "join": _join,
    "find": _pattern,
    "findAll": _pattern,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
}  # fmt: skip
_BY_OVERLOAD: Final[dict[str, Cost | int]] = {
    "string_to_ip": _text(TEXT),
    "starts_with_string": _text(TEXT, 1),
    "ends_with_string": _text(TEXT, 1),
    "string_to_bytes": _text(TEXT),
    "bytes_to_string": _text(TEXT),
    "strings_quote": _text(TEXT),
    "string_format": _text(TEXT),
    "in_list": _text(1, 1),
    "equals": _smaller,
    "not_equals": _smaller,
    **{
        f"{word}_{kind}": _smaller
        for word in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    "add_string": _both,
    "add_bytes": _both,
    "matches": _pattern,
    "matches_string": _pattern,
    "contains_string": _contains,
    "list_slice": _output,
    "lists_range": _output,
    "list_reverse": _output,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_distinct": _compared,
    "list_sets_contains_list": _product,
    "list_sets_intersects_list": _product,
    "list_sets_equivalent_list": _products,
}


NEEDS_RESULT: Final = frozenset(("join", "slice", "lists.range", "reverse"))
"""Functions whose cost depends on what they return; that of others is known before."""


def cost_of(function: str, overload: str) -> Cost | int:
    """Return what a call costs: a number, or what finds it out."""
    cost = _BY_FUNCTION.get(function)
    if cost is None:
        if overload.endswith("_sort"):
            return _compared
        if overload.endswith("_sortByAssociatedKeys"):
            return _compared_keys
        cost = _BY_OVERLOAD.get(overload)
    return 1 if cost is None else cost
