"""Cost estimates of calls, by function and overload, from the sizes of their arguments.

call_estimate("join", "list_join_string", target, [separator])   → Estimated(cost, size)
"""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Final, NamedTuple, TypeAlias

from kvstack.cel.checker.ranges import ANY, NOTHING, ONE, UNLIMITED, Range, exactly
from kvstack.cel.checker.types import Type
from kvstack.cel.evaluation.costs import CHECK, PATTERN, TEXT
from kvstack.cel.evaluation.costs import LIST as LIST_COST
from kvstack.cel.evaluation.costs import STRUCT as STRUCT_COST
from kvstack.cel.library.formats import FORMAT_SIZE_MAX, NAME_PATTERN_SIZE
from kvstack.cel.syntax.nodes import Literal, Node

Path: TypeAlias = tuple[str, ...]
Sizes: TypeAlias = Callable[[Path, Type], Range | None]
"""(path, type) → how large a value is; None: not known."""


class Operand(NamedTuple):
    """An argument of a call, as the tables of costs see it."""

    size: Range
    type: Type
    path: Path
    node: Node | None
    sizes: Sizes

    def item_size(self) -> Range | None:
        """Return the sizes of the items of a list; None if it is not a list."""
        if not self.type.parameters:
            return None
        path = (*self.path, "@items") if self.path else ()
        found = self.sizes(path, self.type.parameters[0])
        return ANY if found is None else found


class Estimated(NamedTuple):
    """The cost of a call besides its arguments, and the size of its result."""

    cost: Range
    size: Range | None = None
    covers_arguments: bool = False
    """Whether the cost includes that of the arguments."""


_Function: TypeAlias = Callable[[Operand | None, Sequence[Operand]], Estimated | None]


def _target_scan(factor: float, *, keeps_size: bool = True) -> _Function:
    def estimate(target: Operand | None, _operands: Sequence[Operand]) -> Estimated | None:
        if target is None:
            return None
        return Estimated(target.size.scaled(factor), target.size if keeps_size else None)

    return estimate


def _argument_scan(factor: float, *, keeps_size: bool = False) -> _Function:
    def estimate(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
        if not operands:
            return None
        size = operands[0].size
        return Estimated(size.scaled(factor), size if keeps_size else None)

    return estimate


def _traversal(target: Operand | None, _operands: Sequence[Operand]) -> Estimated | None:
    if target is None:
        return None
    item = target.item_size()
    if item is None:
        return Estimated(target.size.scaled(TEXT))  # a text
    cost = ONE
    if target.type.parameters[0].name in {"string", "bytes"}:
        cost = cost.plus(item.scaled(TEXT))
    return Estimated(target.size.times(cost))


def _includes(target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    if target is not None and target.item_size() is None:
        return Estimated(target.size)
    return _traversal(target, operands)


def _replace(target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    if target is None or len(operands) < 2:
        return None
    whole, old, new = target.size, operands[0].size, operands[1].size
    most_count = most_kept = least_count = least_kept = 0
    if old.min == 0:
        most_count, most_kept = min(whole.max + 1, UNLIMITED), whole.max
    elif new.max <= old.min:
        most_kept = whole.max
    else:
        most_count = ceil(whole.max / old.min)
    if old.max == 0:
        least_count, least_kept = min(whole.min + 1, UNLIMITED), whole.min
    elif old.max <= new.min:
        least_kept = whole.min
    else:
        least_count = ceil(whole.min / old.max)
    size = Range(least_count, most_count).times(new).plus(Range(least_kept, most_kept))
    return Estimated(whole.scaled(2 * TEXT), size)


def _split(target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    if target is None:
        return None
    most = target.size.max
    if len(operands) > 1 and isinstance(operands[1].node, Literal):
        given = operands[1].node.value
        if isinstance(given, int):
            most = given % 2**64
    return Estimated(target.size.scaled(2 * TEXT), Range(0, most))


def _join(target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    if target is None:
        return None
    item = target.item_size()
    size = NOTHING if item is None else target.size.times(item)
    if operands:
        separators = Range(max(target.size.min - 1, 0), max(target.size.max - 1, 0))
        size = size.plus(operands[0].size.times(separators))
    return Estimated(size.scaled(TEXT), size)


def _find(target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    if target is None or not operands:
        return None
    cost = target.size.plus(ONE).scaled(TEXT).times(operands[0].size.scaled(PATTERN))
    return Estimated(cost, Range(0, target.size.max))


def _selector(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    if len(operands) != 1:
        return None
    size = operands[0].size
    needed = size.scaled(0.5).scaled(float(LIST_COST + STRUCT_COST))
    return Estimated(exactly(LIST_COST).plus(size.scaled(TEXT)).plus(needed))


def _validate(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    if not operands:
        return None
    return Estimated(operands[0].size.scaled(TEXT).scaled(NAME_PATTERN_SIZE * PATTERN))


def _fixed(cost: int) -> _Function:
    return lambda _target, _operands: Estimated(exactly(cost))


_BY_FUNCTION: Final[dict[str, _Function]] = {
    "check": _fixed(CHECK),
    "fieldSelector": _selector,
    "labelSelector": _selector,
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _traversal),
    "includes": _includes,
    **dict.fromkeys(("url", "jsonpatch.escapeKey"), _argument_scan(TEXT, keeps_size=True)),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _target_scan(TEXT)),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _find,
    "findAll": _find,
    **dict.fromkeys(
        ("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"),
        _argument_scan(TEXT),
    ),
    "ip.isCanonical": _argument_scan(2 * TEXT),
    "validate": _validate,
}


def _contained(target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    if target is None:
        return None
    return Estimated(target.size.scaled(TEXT).times(operands[0].size.scaled(TEXT)))


def _matches(target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    text, pattern = (operands[0], operands[1]) if target is None else (target, operands[0])
    cost = text.size.plus(ONE).scaled(TEXT).times(pattern.size.scaled(PATTERN))
    return Estimated(cost)


def _compared(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    most = min(operands[0].size.max, operands[1].size.max)
    return Estimated(Range(1 if most else 0, most).scaled(TEXT))


def _added_text(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    size = operands[0].size.plus(operands[1].size)
    return Estimated(size.scaled(TEXT), size)


def _added_list(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    return Estimated(ONE, operands[0].size.plus(operands[1].size))


def _to_bytes(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    size = operands[0].size
    return Estimated(size.scaled(TEXT), Range(size.min, min(size.max * 4, UNLIMITED)))


def _to_text(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    size = operands[0].size
    return Estimated(size.scaled(TEXT), Range(size.min // 4, size.max))


def _quoted(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    size = operands[0].size
    most = min(size.max * 2 + 2, UNLIMITED)
    return Estimated(size.scaled(TEXT), Range(size.min + 2, most))


def _in_list(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    return Estimated(operands[1].size)


_ADDRESS: Final = Range(4, 16)


def _contains_ip(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    cost = _ADDRESS.plus(_ADDRESS).scaled(TEXT)
    if operands[0].type.name == "string":
        cost = cost.plus(operands[0].size.scaled(TEXT))
    return Estimated(cost)


def _contains_cidr(target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    found = _contains_ip(target, operands)
    assert found is not None
    return Estimated(found.cost.plus(_ADDRESS.scaled(TEXT)).plus(ONE))


def _new_list(factor: float, size: Range) -> Estimated:
    return Estimated(size.scaled(factor).plus(exactly(LIST_COST + 1)), size)


def _whole_number(operand: Operand, otherwise: int) -> int:
    node = operand.node
    if isinstance(node, Literal) and isinstance(node.value, int) and node.value >= 0:
        return int(node.value)
    return otherwise


def _slice(target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    if target is None:
        return None
    start = _whole_number(operands[0], 0)
    end = _whole_number(operands[1], target.size.max)
    return _new_list(1, exactly((end - start) % 2**64))


def _range(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    return _new_list(1, exactly(_whole_number(operands[0], UNLIMITED)))


def _reverse(target: Operand | None, _operands: Sequence[Operand]) -> Estimated | None:
    return None if target is None else _new_list(1, target.size)


def _flatten(target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    depth = _whole_number(operands[0], UNLIMITED) if operands else 1
    return None if target is None else _new_list(float(depth), target.size)


def _distinct(target: Operand | None, _operands: Sequence[Operand]) -> Estimated | None:
    return None if target is None else _new_list(2, target.size.times(target.size))


def _sort(operand: Operand, overload: str) -> Estimated:
    is_text = overload.startswith(("list_string_", "list_bytes_"))
    return _new_list(2 + TEXT if is_text else 2, operand.size.times(operand.size))


def _sets(factor: float) -> _Function:
    def estimate(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
        return Estimated(operands[0].size.times(operands[1].size).scaled(factor).plus(ONE))

    return estimate


_BY_OVERLOAD: Final[dict[str, _Function]] = {
    "string_to_ip": _argument_scan(TEXT),
    "cidr_contains_ip_string": _contains_ip,
    "cidr_contains_ip_ip": _contains_ip,
    "cidr_contains_cidr_string": _contains_cidr,
    "cidr_contains_cidr": _contains_cidr,
    "string_format": _target_scan(TEXT, keeps_size=False),
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_text,
    "strings_quote": _quoted,
    "starts_with_string": _argument_scan(TEXT),
    "ends_with_string": _argument_scan(TEXT),
    "in_list": _in_list,
    "matches": _matches,
    "matches_string": _matches,
    "contains_string": _contained,
    "add_string": _added_text,
    "add_bytes": _added_text,
    "add_list": _added_list,
    "equals": _compared,
    "not_equals": _compared,
    **{
        f"{word}_{kind}": _compared
        for word in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    "list_slice": _slice,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_distinct": _distinct,
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}
_PLAIN_EQUALITY: Final = frozenset(
    ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver")
)


def call_estimate(
    function: str, overload: str, target: Operand | None, operands: Sequence[Operand]
) -> Estimated:
    """Return what a call of an overload costs besides its arguments."""
    if overload == "equals" and operands[0].type is operands[1].type:
        name = operands[0].type.name
        if name in _PLAIN_EQUALITY or name.startswith("kubernetes.authorization."):
            return Estimated(ONE)
        if name == "kubernetes.NamedFormat":
            return Estimated(Range(1, FORMAT_SIZE_MAX).scaled(TEXT))
        if name == "kubernetes.URL":
            return Estimated(Range(1, operands[1].size.max).scaled(TEXT))
    if overload.endswith("_sort") and target is not None:
        return _sort(target, overload)
    if overload.endswith("_sortByAssociatedKeys"):
        return _sort(operands[0], overload)
    estimator = _BY_FUNCTION.get(function) or _BY_OVERLOAD.get(overload)
    found = None if estimator is None else estimator(target, operands)
    return Estimated(ONE) if found is None else found
