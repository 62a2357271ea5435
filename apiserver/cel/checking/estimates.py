"""What an expression may cost at least and at most, as far as can be told before it runs.

    estimate(root, sizes)   → Range(3, 12)

`sizes` knows how large the values are that the expression gets: of `self.spec.name` by the path
("self", "spec", "name"), where "@items", "@keys" and "@values" stand for what lists and maps hold.
The numbers decide which rules may be stored, so they are upstream's.
"""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Final, NamedTuple, TypeAlias

from kvstack.apiserver.cel.checking.types import LIST, MAP, PARAM, STRUCT, Type
from kvstack.apiserver.cel.evaluation.costs import CHECK, PATTERN, TEXT
from kvstack.apiserver.cel.evaluation.costs import LIST as LIST_COST
from kvstack.apiserver.cel.evaluation.costs import MAP as MAP_COST
from kvstack.apiserver.cel.evaluation.costs import STRUCT as STRUCT_COST
from kvstack.apiserver.cel.library.formats import FORMAT_SIZE_MAX, NAME_PATTERN_SIZE
from kvstack.apiserver.cel.syntax.nodes import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    Struct,
)

UNLIMITED: Final = 2**64 - 1


class Range(NamedTuple):
    """A least and a most; both at most `UNLIMITED`."""

    min: int
    max: int

    def plus(self, other: "Range") -> "Range":
        """Return the sum."""
        return Range(min(self.min + other.min, UNLIMITED), min(self.max + other.max, UNLIMITED))

    def times(self, other: "Range") -> "Range":
        """Return the product."""
        return Range(min(self.min * other.min, UNLIMITED), min(self.max * other.max, UNLIMITED))

    def scaled(self, factor: float) -> "Range":
        """Return the product with a factor, rounded up."""
        return Range(_scaled(self.min, factor), _scaled(self.max, factor))

    def union(self, other: "Range") -> "Range":
        """Return what holds both."""
        return Range(min(self.min, other.min), max(self.max, other.max))


def _scaled(number: int, factor: float) -> int:
    product = float(number) * factor
    return UNLIMITED if product >= 2.0**64 else ceil(product)


def exactly(number: int) -> Range:
    """Return a range of one number."""
    return Range(number, number)


ANY: Final = Range(0, UNLIMITED)
_ONE: Final = Range(1, 1)
_NOTHING: Final = Range(0, 0)

Path: TypeAlias = tuple[str, ...]
Sizes: TypeAlias = Callable[[Path, Type], Range | None]
"""(path, type) → how large a value is; None: not known."""


class _Entries(NamedTuple):
    """How large the keys and values of a list or map are."""

    kind: str
    keys: Range
    values: Range


class _Local(NamedTuple):
    """A variable of a comprehension."""

    path: Path
    size: Range | None
    entries: _Entries | None


class Estimated(NamedTuple):
    """What a call costs besides its arguments, and how large its result is."""

    cost: Range
    size: Range | None = None
    covers_arguments: bool = False
    """Whether the cost of the arguments is in it."""


def estimate(root: Node, sizes: Sizes) -> Range:
    """Return what an expression may cost."""
    return _Estimator(sizes).cost(root)


class Operand(NamedTuple):
    """An argument of a call, as the tables of costs see it."""

    size: Range
    type: Type
    path: Path
    node: Node | None
    sizes: Sizes

    def item_size(self) -> Range | None:
        """Return how large the items of a list are; None: it is no list."""
        if not self.type.parameters:
            return None
        path = (*self.path, "@items") if self.path else ()
        found = self.sizes(path, self.type.parameters[0])
        return ANY if found is None else found


class _Estimator:
    def __init__(self, sizes: Sizes) -> None:
        self._given = sizes
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, _Entries] = {}
        self._locals: list[tuple[str, _Local]] = []

    def cost(self, node: Node) -> Range:
        if isinstance(node, Literal):
            return _NOTHING
        if isinstance(node, Ident):
            local = self._local(node.name)
            self._paths[id(node)] = (node.name,) if local is None else local.path
            return _ONE
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, ListNode):
            return self._list(node)
        if isinstance(node, MapNode):
            return self._map(node)
        if isinstance(node, Struct):
            total = exactly(STRUCT_COST)
            for each in node.entries:
                total = total.plus(self.cost(each.value))
            return total
        assert isinstance(node, Comprehension)
        return self._bind(node) if node.is_bind else self._comprehension(node)

    # What is known of nodes.

    def _local(self, name: str) -> _Local | None:
        return next((each for known, each in reversed(self._locals) if known == name), None)

    def _path(self, node: Node) -> Path:
        if isinstance(node, Ident):
            local = self._local(node.name)
            if local is not None:
                return local.path
        return self._paths.get(id(node), ())

    def _size(self, node: Node) -> Range | None:
        known = self._sizes.get(id(node))
        if known is not None:
            return known
        if isinstance(node, Literal):
            value = node.value
            return exactly(len(value) if isinstance(value, (str, bytes)) else 1)
        if isinstance(node, ListNode):
            return exactly(len(node.elements))
        if isinstance(node, MapNode):
            return exactly(len(node.entries))
        given = self._given(self._path(node), node.type)
        if given is not None:
            self._sizes[id(node)] = given
            return given
        if node.type.is_scalar:
            return _ONE
        if isinstance(node, Ident):
            local = self._local(node.name)
            return None if local is None else local.size
        return None

    def _size_or_any(self, node: Node) -> Range:
        return self._size(node) or ANY

    def _entry_sizes(self, node: Node) -> _Entries | None:
        known = self._entries.get(id(node))
        if known is None and isinstance(node, Ident):
            local = self._local(node.name)
            return None if local is None else local.entries
        return known

    def _operand(self, node: Node) -> Operand:
        path = self._path(node)
        if path and path[0] == ACCUMULATOR:
            path = ()
        size = self._size(node)
        if size is None:
            size = self._given(path, node.type) or ANY
        return Operand(size, node.type, path, node, self._given)

    # Members.

    def _select(self, node: Select) -> Range:
        if node.resolved:
            self._paths[id(node)] = (node.resolved,)
            return _ONE
        total = self.cost(node.operand)
        if node.is_test:
            return total
        if node.operand.type.kind in {MAP, STRUCT, PARAM}:
            total = total.plus(_ONE)
        self._paths[id(node)] = (*self._path(node.operand), node.field)
        return total

    # Calls.

    def _call(self, node: Call) -> Range:
        if node.function == "dyn":
            argument = node.arguments[0]
            total = self.cost(argument).plus(_ONE)
            self._copy(node, argument)
            return total
        costs = [self.cost(each) for each in node.arguments]
        operands = [self._operand(each) for each in node.arguments]
        if not node.overloads:
            return _NOTHING
        total, target = _NOTHING, None
        if node.target is not None:
            total = self.cost(node.target)
            target = self._operand(node.target)
        found: Range | None = None
        size: Range | None = None
        for overload in node.overloads:
            one = self._overload(node, overload, target, operands, costs)
            cost = one.cost if one.covers_arguments else _sum([one.cost, *costs])
            found = cost if found is None else found.union(cost)
            if one.size is not None:
                size = one.size if size is None else size.union(one.size)
            if overload in _INDEXES:
                first = node.arguments[0]
                entries = self._entry_sizes(first)
                size = None if entries is None else entries.values
                self._paths[id(node)] = (*self._path(first), _INDEXES[overload])
            if size is None:
                size = self._size(node)
        if size is not None:
            self._sizes[id(node)] = size
        assert found is not None
        return total.plus(found)

    def _overload(
        self,
        node: Call,
        overload: str,
        target: Operand | None,
        operands: Sequence[Operand],
        costs: Sequence[Range],
    ) -> Estimated:
        if overload in {"logical_or", "logical_and"}:
            cost = Range(costs[0].min, costs[0].plus(costs[1]).max)
            return Estimated(cost, covers_arguments=True)
        if overload == "conditional":
            self._join_entries(node, node.arguments[1], node.arguments[2])
            cost = costs[0].plus(costs[1].union(costs[2]))
            size = self._size_or_any(node.arguments[1]).union(self._size_or_any(node.arguments[2]))
            return Estimated(cost, size, covers_arguments=True)
        if overload in _SUMS:
            self._join_entries(node, *node.arguments)
        return call_estimate(node.function.removeprefix("."), overload, target, operands)

    def _join_entries(self, node: Node, one: Node, other: Node) -> None:
        first, second = self._entry_sizes(one), self._entry_sizes(other)
        if first is not None and second is not None:
            self._entries[id(node)] = _Entries(
                first.kind, first.keys.union(second.keys), first.values.union(second.values)
            )

    def _copy(self, node: Node, source: Node) -> None:
        size = self._size(source)
        if size is not None:
            self._sizes[id(node)] = size
        entries = self._entry_sizes(source)
        if entries is not None:
            self._entries[id(node)] = entries

    # Values with parts.

    def _list(self, node: ListNode) -> Range:
        total = exactly(LIST_COST)
        items = Range(0 if not node.elements else UNLIMITED, 0)
        for each in node.elements:
            total = total.plus(self.cost(each))
            items = items.union(self._size_or_any(each))
        self._entries[id(node)] = _Entries(LIST, _ONE, items)
        return total

    def _map(self, node: MapNode) -> Range:
        total = exactly(MAP_COST)
        keys = values = Range(0 if not node.entries else UNLIMITED, 0)
        for each in node.entries:
            total = total.plus(self.cost(each.key)).plus(self.cost(each.value))
            keys = keys.union(self._size_or_any(each.key))
            values = values.union(self._size_or_any(each.value))
        self._entries[id(node)] = _Entries(MAP, keys, values)
        return total

    # Folds.

    def _bind(self, node: Comprehension) -> Range:
        total = self.cost(node.iter_range).plus(self.cost(node.init))
        self._push(node.accumulator, node.init)
        total = total.plus(self.cost(node.result))
        self._locals.pop()
        self._copy(node, node.result)
        return total

    def _push(self, name: str, node: Node) -> None:
        local = _Local(self._path(node), self._size(node), self._entry_sizes(node))
        self._locals.append((name, local))

    def _comprehension(self, node: Comprehension) -> Range:
        whole = node.iter_range
        total = self.cost(whole).plus(self.cost(node.init))
        self._push(node.accumulator, node.init)
        self._locals += self._iterated(node)
        loop, step = self.cost(node.condition), self.cost(node.step)
        del self._locals[-2 if node.iter_var2 else -1 :]
        total = total.plus(self.cost(node.result))
        self._locals.pop()
        count = self._size_or_any(whole)
        total = total.plus(count.times(step.plus(loop)))
        if isinstance(node.init, Literal):
            self._sizes[id(node)] = self._size_or_any(node.init)
        else:
            self._sizes[id(node)] = count
            entries = self._entry_sizes(node.step)
            if entries is not None:
                self._entries[id(node)] = entries
        return total

    def _iterated(self, node: Comprehension) -> list[tuple[str, _Local]]:
        whole = node.iter_range
        entries, path = self._entry_sizes(whole), self._path(whole)
        kind = whole.type.kind if entries is None else entries.kind
        keys = None if entries is None else entries.keys
        values = None if entries is None else entries.values
        is_list = kind == LIST
        value = _Local((*path, "@items" if is_list else "@values"), values, None)
        name = "@indices" if is_list and node.iter_var2 else "@keys"
        key = _Local((*path, name), keys, None)
        if node.iter_var2:
            return [(node.iter_var, key), (node.iter_var2, value)]
        return [(node.iter_var, value if is_list else key)]


_INDEXES: Final = {"index_list": "@items", "index_map": "@values"}
_SUMS: Final = frozenset(("add_string", "add_bytes", "add_list"))


def _sum(ranges: Sequence[Range]) -> Range:
    total = _NOTHING
    for each in ranges:
        total = total.plus(each)
    return total


# Calls by name and overload.

_Function: TypeAlias = Callable[[Operand | None, Sequence[Operand]], Estimated | None]


def _target_scan(factor: float, *, keeps_size: bool = True) -> _Function:
    def found(target: Operand | None, _operands: Sequence[Operand]) -> Estimated | None:
        if target is None:
            return None
        return Estimated(target.size.scaled(factor), target.size if keeps_size else None)

    return found


def _argument_scan(factor: float, *, keeps_size: bool = False) -> _Function:
    def found(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
        if not operands:
            return None
        size = operands[0].size
        return Estimated(size.scaled(factor), size if keeps_size else None)

    return found


def _traversal(target: Operand | None, _operands: Sequence[Operand]) -> Estimated | None:
    if target is None:
        return None
    item = target.item_size()
    if item is None:
        return Estimated(target.size.scaled(TEXT))  # a text
    cost = _ONE
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
    size = _NOTHING if item is None else target.size.times(item)
    if operands:
        separators = Range(max(target.size.min - 1, 0), max(target.size.max - 1, 0))
        size = size.plus(operands[0].size.times(separators))
    return Estimated(size.scaled(TEXT), size)


def _find(target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    if target is None or not operands:
        return None
    cost = target.size.plus(_ONE).scaled(TEXT).times(operands[0].size.scaled(PATTERN))
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
    cost = text.size.plus(_ONE).scaled(TEXT).times(pattern.size.scaled(PATTERN))
    return Estimated(cost)


def _compared(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    most = min(operands[0].size.max, operands[1].size.max)
    return Estimated(Range(1 if most else 0, most).scaled(TEXT))


def _added_text(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    size = operands[0].size.plus(operands[1].size)
    return Estimated(size.scaled(TEXT), size)


def _added_list(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
    return Estimated(_ONE, operands[0].size.plus(operands[1].size))


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
    return Estimated(found.cost.plus(_ADDRESS.scaled(TEXT)).plus(_ONE))


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
    def found(_target: Operand | None, operands: Sequence[Operand]) -> Estimated | None:
        return Estimated(operands[0].size.times(operands[1].size).scaled(factor).plus(_ONE))

    return found


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
            return Estimated(_ONE)
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
    return Estimated(_ONE) if found is None else found
