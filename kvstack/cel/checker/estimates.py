"""Static estimates of the least and the greatest cost of an expression.

    estimate(root, sizes)   → Range(3, 12)

`sizes` knows how large the values are that the expression gets: of `self.spec.name` by the path
("self", "spec", "name"), where "@items", "@keys" and "@values" are the contents of lists and maps.
The numbers decide which rules may be stored, so they are upstream's.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvstack.cel.checker.call_estimates import (
    Estimated,
    Operand,
    Path,
    Sizes,
    call_estimate,
)
from kvstack.cel.checker.ranges import ANY, NOTHING, ONE, UNLIMITED, Range, exactly
from kvstack.cel.checker.types import LIST, MAP, PARAM, STRUCT
from kvstack.cel.evaluation.costs import LIST as LIST_COST
from kvstack.cel.evaluation.costs import MAP as MAP_COST
from kvstack.cel.evaluation.costs import STRUCT as STRUCT_COST
from kvstack.cel.syntax.nodes import (
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


class _Entries(NamedTuple):
    """The sizes of the keys and values of a list or map."""

    kind: str
    keys: Range
    values: Range


class _Local(NamedTuple):
    """A variable of a comprehension."""

    path: Path
    size: Range | None
    entries: _Entries | None


def estimate(root: Node, sizes: Sizes) -> Range:
    """Return what an expression may cost."""
    return _Estimator(sizes).cost(root)


class _Estimator:
    def __init__(self, sizes: Sizes) -> None:
        self._given = sizes
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, _Entries] = {}
        self._locals: list[tuple[str, _Local]] = []

    def cost(self, node: Node) -> Range:
        if isinstance(node, Literal):
            return NOTHING
        if isinstance(node, Ident):
            local = self._local(node.name)
            self._paths[id(node)] = (node.name,) if local is None else local.path
            return ONE
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
            return ONE
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
            return ONE
        total = self.cost(node.operand)
        if node.is_test:
            return total
        if node.operand.type.kind in {MAP, STRUCT, PARAM}:
            total = total.plus(ONE)
        self._paths[id(node)] = (*self._path(node.operand), node.field)
        return total

    # Calls.

    def _call(self, node: Call) -> Range:
        if node.function == "dyn":
            argument = node.arguments[0]
            total = self.cost(argument).plus(ONE)
            self._copy(node, argument)
            return total
        costs = [self.cost(each) for each in node.arguments]
        operands = [self._operand(each) for each in node.arguments]
        if not node.overloads:
            return NOTHING
        total, target = NOTHING, None
        if node.target is not None:
            total = self.cost(node.target)
            target = self._operand(node.target)
        call_cost: Range | None = None
        size: Range | None = None
        for overload in node.overloads:
            one = self._overload(node, overload, target, operands, costs)
            cost = one.cost if one.covers_arguments else _sum([one.cost, *costs])
            call_cost = cost if call_cost is None else call_cost.union(cost)
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
        assert call_cost is not None
        return total.plus(call_cost)

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
        self._entries[id(node)] = _Entries(LIST, ONE, items)
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
    total = NOTHING
    for each in ranges:
        total = total.plus(each)
    return total
