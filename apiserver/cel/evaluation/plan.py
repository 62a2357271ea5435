"""Turns a checked tree into closures.

    run = plan(root, {"self": 0})     raises PlanError
    run(Frame([value], limit))   → the value of the expression; raises CelError, CostError

A `Frame` holds the variables by number and what the evaluation has cost so far. Costs are the ones
of the language's own evaluator, so that what is within its limits there is within them here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from kvstack.apiserver.cel.checking.functions import Overload
from kvstack.apiserver.cel.checking.types import STRUCT as STRUCT_KIND
from kvstack.apiserver.cel.checking.types import Type
from kvstack.apiserver.cel.errors import CelError, CostError, NoSuchOverloadError
from kvstack.apiserver.cel.evaluation.costs import LIST, MAP, NEEDS_RESULT, STRUCT, cost_of
from kvstack.apiserver.cel.evaluation.guards import Guard, guards_of
from kvstack.apiserver.cel.evaluation.operators import (
    BINARY,
    OTHERS,
    has,
    index,
    select,
    type_value,
)
from kvstack.apiserver.cel.library.table import IMPLEMENTATIONS, OVERLOADS
from kvstack.apiserver.cel.syntax.nodes import (
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
from kvstack.apiserver.cel.values import ObjectValue, Optional, StructValue, TypeValue
from kvstack.apiserver.objects.text.go_patterns import PatternError, compile_pattern


class Frame:
    """One evaluation."""

    __slots__ = ("cost", "limit", "slots")

    def __init__(self, slots: list[Any], limit: int) -> None:
        """Begin with the variables; limit: what it may cost."""
        self.slots = slots
        self.limit = limit
        self.cost = 0


Run: TypeAlias = Callable[[Frame], Any]

_CONVERSIONS: Final = frozenset(
    ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint")
)
_FINDERS: Final = frozenset(("find", "findAll"))
_TYPES: Final = frozenset(
    ("bool", "bytes", "double", "google.protobuf.Duration", "google.protobuf.Timestamp", "int",
     "list", "map", "net.CIDR", "net.IP", "null_type", "optional_type", "string", "type", "uint")
)  # fmt: skip


class PlanError(ValueError):
    """An expression with a constant part that fails; the message is what users see."""


def plan(root: Node, variables: Mapping[str, int]) -> tuple[Run, int]:
    """Return the closure, and how many slots it needs; raises PlanError."""
    planner = _Planner(variables)
    run = planner.plan(root)
    return run, planner.slots


class _Planner:
    """Knows where variables are."""

    def __init__(self, variables: Mapping[str, int]) -> None:
        self.slots = len(variables)
        self._variables = variables
        self._locals: list[tuple[str, int]] = []

    def plan(self, node: Node) -> Run:
        if isinstance(node, Literal):
            return _constant(node.value)
        if isinstance(node, Ident):
            return self._named(node.name.removeprefix("."))
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, ListNode):
            return self._list(node)
        if isinstance(node, MapNode):
            return self._map(node)
        if isinstance(node, Struct):
            return self._struct(node)
        assert isinstance(node, Comprehension)
        return self._comprehension(node)

    # Variables and members.

    def _slot(self, name: str) -> int | None:
        for each, slot in reversed(self._locals):
            if each == name:
                return slot
        return self._variables.get(name)

    def _new_slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _named(self, name: str) -> Run:
        slot = self._slot(name)
        if slot is None:
            return _constant(TypeValue(name), cost=1)
        return _variable(slot)

    def _select(self, node: Select) -> Run:
        if node.resolved:
            return self._named(node.resolved)
        if node.is_test:
            return _presence(self.plan(node.operand), node.field)
        names = [node.field]
        operand = node.operand
        while isinstance(operand, Select) and not operand.is_test and not operand.resolved:
            names.append(operand.field)
            operand = operand.operand
        names.reverse()
        slot = None
        if isinstance(operand, Ident):
            slot = self._slot(operand.name.removeprefix("."))
        elif isinstance(operand, Select) and operand.resolved:
            slot = self._slot(operand.resolved)
        if slot is not None:
            return _path(slot, tuple(names))
        return _members(self.plan(operand), tuple(names))

    # Calls.

    def _call(self, node: Call) -> Run:
        function = node.function.removeprefix(".")
        arguments = node.arguments if node.target is None else [node.target, *node.arguments]
        if function in _CONVERSIONS and all(isinstance(each, Literal) for each in arguments):
            return self._folded(node, function, arguments)
        runs = [self.plan(each) for each in arguments]
        special = _SPECIAL.get(function)
        if special is not None:
            return special(*runs)
        if function == "_[_]":
            return _index(*runs)
        if function == "@in" and _is_constant(arguments[1]):
            return _membership(runs[0], runs[1](Frame([], 0)))
        if function in BINARY:
            overload = node.overloads[0] if len(node.overloads) == 1 else ""
            return _binary(BINARY[function], cost_of(function, overload), *runs)
        if function in OTHERS:
            return _plain(OTHERS[function], runs)
        if function in _FINDERS and isinstance(arguments[1], Literal):
            _check_pattern(arguments[1].value)
        candidates = [OVERLOADS[each] for each in node.overloads]
        return _function(function, candidates, [each.type for each in arguments], runs)

    def _folded(self, node: Call, function: str, arguments: Sequence[Node]) -> Run:
        """Return the value of a conversion of a constant."""
        values = [each.value for each in arguments if isinstance(each, Literal)]
        try:
            if function in OTHERS:
                return _constant(OTHERS[function](*values))
            if None in values:
                raise NoSuchOverloadError
            return _constant(IMPLEMENTATIONS[node.overloads[0]](*values))
        except CelError as error:
            raise PlanError(str(error)) from None

    # Values with parts.

    def _list(self, node: ListNode) -> Run:
        if _is_constant(node):
            return _constant_list(
                [each.value for each in node.elements if isinstance(each, Literal)]
            )
        runs = [self.plan(each) for each in node.elements]
        if node.optionals:
            return _optional_list(runs, node.optionals)
        if len(runs) == 1:
            return _single(runs[0])

        def run(frame: Frame) -> Any:  # noqa: ANN401
            found = [each(frame) for each in runs]
            frame.cost += LIST
            return found

        return run

    def _map(self, node: MapNode) -> Run:
        parts = [
            (self.plan(each.key), self.plan(each.value), each.is_optional) for each in node.entries
        ]

        def run(frame: Frame) -> Any:  # noqa: ANN401
            found: dict[Any, Any] = {}
            for key, value, is_optional in parts:
                name, member = key(frame), value(frame)
                if is_optional:
                    if not _is_there(member, f"entry '{name}'"):
                        continue
                    member = member.value
                if not isinstance(name, (str, int, bool, float)):
                    raise CelError(f"unsupported key type: {type_value(name).name}")
                found[name] = member
            frame.cost += MAP
            return found

        return run

    def _struct(self, node: Struct) -> Run:
        parts = [(each.key, self.plan(each.value), each.is_optional) for each in node.entries]
        name_of_type = node.type.name if node.type.kind == STRUCT_KIND else ""

        def run(frame: Frame) -> Any:  # noqa: ANN401
            found: dict[Any, Any] = {}
            for name, value, is_optional in parts:
                member = value(frame)
                if is_optional:
                    if not _is_there(member, f"entry '{name}'"):
                        continue
                    member = member.value
                found[name] = member
            frame.cost += STRUCT
            return StructValue(found, name_of_type) if name_of_type else found

        return run

    # Folds.

    def _comprehension(self, node: Comprehension) -> Run:
        whole, init = self.plan(node.iter_range), self.plan(node.init)
        accumulator = self._new_slot()
        self._locals.append((node.accumulator, accumulator))
        if node.is_bind:
            result = self.plan(node.result)
            self._locals.pop()
            return _bind(accumulator, init, result)
        first = self._new_slot()
        second = self._new_slot() if node.iter_var2 else -1
        before = len(self._locals)
        self._locals.append((node.iter_var, first))
        if node.iter_var2:
            self._locals.append((node.iter_var2, second))
        loop = _Loop(whole, accumulator, first, second)
        step = node.step
        assert isinstance(step, Call)
        if step.function in {"_&&_", "_||_"}:
            predicate = self.plan(step.arguments[1])
            del self._locals[before - 1 :]
            return _quantifier(loop, predicate, stops_at=step.function == "_||_")
        run = self._step(step, accumulator)
        del self._locals[before:]
        result = self.plan(node.result)
        self._locals.pop()
        return _fold(loop, init, run, result)

    def _step(self, step: Call, accumulator: int) -> Run:
        if step.function == "_?_:_":
            condition, inner = self.plan(step.arguments[0]), step.arguments[1]
            assert isinstance(inner, Call)
            return _conditional_step(condition, self._step(inner, accumulator))
        if step.function == "_+_":
            item = step.arguments[1]
            if isinstance(item, ListNode):
                return _append(self.plan(item.elements[0]), accumulator)
            return _count(accumulator)
        return _insert([self.plan(each) for each in step.arguments[1:]], accumulator)


# Closures.


def _constant(value: Any, cost: int = 0) -> Run:  # noqa: ANN401
    if not cost:
        return lambda _frame: value

    def run(frame: Frame) -> Any:  # noqa: ANN401
        frame.cost += cost
        return value

    return run


def _constant_list(values: list[Any]) -> Run:
    return lambda _frame: values


def _variable(slot: int) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        frame.cost += 1
        value = frame.slots[slot]
        return value.value() if type(value) is Lazy else value

    return run


class Lazy:
    """A variable whose value is found when it is asked for, once."""

    __slots__ = ("_error", "_find", "_value")

    def __init__(self, find: Callable[[], Any]) -> None:
        """Note how to find it; it may raise CelError."""
        self._find: Callable[[], Any] | None = find
        self._value: Any = None
        self._error: CelError | None = None

    def value(self) -> Any:  # noqa: ANN401
        """Return the value; raises CelError."""
        if self._find is not None:
            try:
                self._value = self._find()
            except CelError as error:
                self._error = error
            self._find = None
        if self._error is not None:
            raise self._error
        return self._value


def _path(slot: int, names: tuple[str, ...]) -> Run:
    cost = 1 + len(names)

    def run(frame: Frame) -> Any:  # noqa: ANN401
        frame.cost += cost
        value = frame.slots[slot]
        if type(value) is Lazy:
            value = value.value()
        for name in names:
            value = select(value, name)
        return value

    return run


def _members(operand: Run, names: tuple[str, ...]) -> Run:
    cost = len(names)

    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = operand(frame)
        frame.cost += cost
        for name in names:
            value = select(value, name)
        return value

    return run


def _presence(operand: Run, name: str) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        return has(operand(frame), name)

    return run


def _index(whole: Run, key: Run) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = whole(frame)
        found = index(value, key(frame))
        frame.cost += 1
        return found

    return run


def _membership(item: Run, values: list[Any]) -> Run:
    """Return whether a value is one of constants."""
    constants = frozenset((type(each), each) for each in values)
    plain = BINARY["@in"]

    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = item(frame)
        kind = type(value)
        if kind is str:
            return (kind, value) in constants
        return plain(value, values)

    return run


def _binary(function: Callable[[Any, Any], Any], cost: Any, left: Run, right: Run) -> Run:  # noqa: ANN401
    if isinstance(cost, int):

        def run(frame: Frame) -> Any:  # noqa: ANN401
            one = left(frame)
            other = right(frame)
            frame.cost += cost
            return function(one, other)

        return run

    def charged(frame: Frame) -> Any:  # noqa: ANN401
        one = left(frame)
        other = right(frame)
        frame.cost += cost((one, other), None)
        if frame.cost > frame.limit:
            raise CostError
        return function(one, other)

    return charged


def _plain(function: Callable[..., Any], arguments: Sequence[Run]) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        values = [each(frame) for each in arguments]
        frame.cost += 1
        return function(*values)

    return run


def _function(
    name: str, candidates: Sequence[Overload], given: Sequence[Type], arguments: Sequence[Run]
) -> Run:
    """Return a call of one of some overloads, picked by the values where types are not known."""
    ways = [
        (
            IMPLEMENTATIONS[each.identifier],
            guards_of(each, given),
            guards_of(each),
            cost_of(name, each.identifier),
        )
        for each in candidates
    ]
    is_late = name in NEEDS_RESULT

    def chosen(frame: Frame, values: list[Any]) -> Any:  # noqa: ANN401
        has_null = None in values  # which values of every type may be
        for function, guards, all_guards, cost in ways:
            asked = all_guards if has_null else guards
            if asked and not _fits(values, asked):
                continue
            if isinstance(cost, int):
                frame.cost += cost
                return function(*values)
            if not is_late:
                frame.cost += cost(values, None)
                if frame.cost > frame.limit:
                    raise CostError
                return function(*values)
            found = function(*values)
            frame.cost += cost(values, found)
            return found
        raise NoSuchOverloadError

    if len(ways) == 1 and not ways[0][1] and not is_late:
        return _direct(ways[0][0], ways[0][3], arguments, chosen)
    return lambda frame: chosen(frame, [each(frame) for each in arguments])


def _direct(
    function: Callable[..., Any],
    cost: Any,  # noqa: ANN401
    arguments: Sequence[Run],
    chosen: Callable[[Frame, list[Any]], Any],
) -> Run:
    """Return a call of the one overload that the types of the arguments leave."""
    if len(arguments) == 1 and isinstance(cost, int):
        (argument,) = arguments

        def of_one(frame: Frame) -> Any:  # noqa: ANN401
            value = argument(frame)
            if value is None:
                return chosen(frame, [value])
            frame.cost += cost
            return function(value)

        return of_one

    def run(frame: Frame) -> Any:  # noqa: ANN401
        values = [each(frame) for each in arguments]
        if None in values:
            return chosen(frame, values)
        if isinstance(cost, int):
            frame.cost += cost
            return function(*values)
        frame.cost += cost(values, None)
        if frame.cost > frame.limit:
            raise CostError
        return function(*values)

    return run


def _fits(values: Sequence[Any], guards: Sequence[tuple[int, Guard]]) -> bool:
    return all(guard(values[position]) for position, guard in guards)


def _check_pattern(text: str) -> None:
    try:
        compile_pattern(text)
    except PatternError as error:
        raise PlanError(str(error)) from None


def _is_constant(node: Node) -> bool:
    return (
        isinstance(node, ListNode)
        and not node.optionals
        and all(isinstance(each, Literal) for each in node.elements)
    )


def _single(element: Run) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        found = [element(frame)]
        frame.cost += LIST
        return found

    return run


def _optional_list(runs: Sequence[Run], optionals: frozenset[int]) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        found: list[Any] = []
        for position, each in enumerate(runs):
            value = each(frame)
            if position not in optionals:
                found.append(value)
            elif _is_there(value, "list element"):
                found.append(value.value)
        frame.cost += LIST
        return found

    return run


def _is_there(value: Any, told: str) -> bool:  # noqa: ANN401
    if type(value) is not Optional:
        raise CelError(f"cannot initialize optional {told} from non-optional value {value}")
    return value.has_value


# Conditions.


def _logical(left: Run, right: Run, *, decides: bool) -> Run:
    """Return `and` (false decides) or `or` (true does); what decides absorbs errors."""

    def rest(frame: Frame, error: CelError | None) -> Any:  # noqa: ANN401
        try:
            other = right(frame)
        except CelError as failed:
            raise error or failed from None
        if other is decides:
            return decides
        if error is not None:
            raise error
        if other is (not decides):
            return other
        raise NoSuchOverloadError

    def run(frame: Frame) -> Any:  # noqa: ANN401
        try:
            one = left(frame)
        except CelError as error:
            return rest(frame, error)
        if one is decides:
            return decides
        return rest(frame, None if one is (not decides) else NoSuchOverloadError())

    return run


def _and(left: Run, right: Run) -> Run:
    return _logical(left, right, decides=False)


def _or(left: Run, right: Run) -> Run:
    return _logical(left, right, decides=True)


def _not(operand: Run) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = operand(frame)
        frame.cost += 1
        if value is True:
            return False
        if value is False:
            return True
        raise NoSuchOverloadError

    return run


def _conditional(condition: Run, if_true: Run, if_false: Run) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = condition(frame)
        if value is True:
            return if_true(frame)
        if value is False:
            return if_false(frame)
        raise NoSuchOverloadError

    return run


def _or_optional(left: Run, right: Run) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = left(frame)
        if type(value) is not Optional:
            raise NoSuchOverloadError
        return value if value.has_value else right(frame)

    return run


def _or_value(left: Run, right: Run) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = left(frame)
        if type(value) is not Optional:
            raise NoSuchOverloadError
        return value.value if value.has_value else right(frame)

    return run


_SPECIAL: Final[Mapping[str, Callable[..., Run]]] = {
    "_&&_": _and,
    "_||_": _or,
    "!_": _not,
    "_?_:_": _conditional,
    "or": _or_optional,
    "orValue": _or_value,
}


# Folds.


class _Loop:
    """The items of a range, one after another in the slots of variables."""

    __slots__ = ("_first", "_second", "_whole", "accumulator")

    def __init__(self, whole: Run, accumulator: int, first: int, second: int) -> None:
        self._whole = whole
        self.accumulator = accumulator
        self._first = first
        self._second = second

    def items(self, frame: Frame) -> Any:  # noqa: ANN401
        """Yield once for each item."""
        whole = self._whole(frame)
        slots, first, second = frame.slots, self._first, self._second
        kind = type(whole)
        if second < 0:
            if not (isinstance(whole, list) or kind is dict or kind is ObjectValue):
                raise _no_range(whole)
            for each in whole:
                slots[first] = each
                yield
        elif isinstance(whole, list):
            for position, each in enumerate(whole):
                slots[first], slots[second] = position, each
                yield
        elif kind is dict or kind is ObjectValue:
            for each in whole:
                slots[first] = each
                slots[second] = whole.get(each)
                yield
        else:
            raise _no_range(whole)


def _no_range(value: Any) -> CelError:  # noqa: ANN401
    return CelError(
        f"got '{_GO_TYPES.get(type_value(value).name, 'types.Val')}', expected iterable type"
    )


_GO_TYPES: Final = {
    "bool": "types.Bool",
    "bytes": "types.Bytes",
    "double": "types.Double",
    "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp",
    "int": "types.Int",
    "null_type": "types.Null",
    "optional_type": "*types.Optional",
    "string": "types.String",
    "type": "*types.Type",
    "uint": "types.Uint",
}


def _quantifier(loop: _Loop, predicate: Run, *, stops_at: bool) -> Run:
    """Return whether all items are such (stops at one that is not), or any is."""
    before, after = (4, 3) if stops_at else (3, 2)

    def run(frame: Frame) -> Any:  # noqa: ANN401
        error: CelError | None = None
        for _ in loop.items(frame):
            frame.cost += before
            if frame.cost > frame.limit:
                raise CostError
            try:
                value = predicate(frame)
            except CelError as failed:
                error = error or failed
                continue
            if value is stops_at:
                frame.cost += after
                return stops_at
            if value is not True and value is not False:
                error = error or NoSuchOverloadError()
        frame.cost += 1
        if error is not None:
            raise error
        return not stops_at

    return run


def _fold(loop: _Loop, init: Run, step: Run, result: Run) -> Run:
    accumulator = loop.accumulator

    def run(frame: Frame) -> Any:  # noqa: ANN401
        found = init(frame)
        slots = frame.slots
        # What is gathered is this fold's own, so that it may grow in place.
        slots[accumulator] = found if type(found) is int else type(found)()
        for _ in loop.items(frame):
            step(frame)
            if frame.cost > frame.limit:
                raise CostError
        return result(frame)

    return run


def _conditional_step(condition: Run, step: Run) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = condition(frame)
        if value is True:
            step(frame)
        elif value is False:
            frame.cost += 1
        else:
            raise NoSuchOverloadError

    return run


def _append(item: Run, accumulator: int) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        gathered = frame.slots[accumulator]
        gathered.append(item(frame))
        frame.cost += LIST + 2

    return run


def _count(accumulator: int) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        frame.slots[accumulator] += 1
        frame.cost += 2

    return run


def _insert(entry: Sequence[Run], accumulator: int) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        gathered = frame.slots[accumulator]
        values = [each(frame) for each in entry]
        added = values[0] if len(values) == 1 else {values[0]: values[1]}
        for key, value in added.items():
            if key in gathered:
                raise CelError(f"insert failed: key {key} already exists")
            gathered[key] = value
        frame.cost += 2

    return run


def _bind(slot: int, value: Run, result: Run) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        frame.slots[slot] = value(frame)
        return result(frame)

    return run
