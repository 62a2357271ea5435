"""Turns a checked tree into closures.

    run = plan(root, {"self": 0})     raises PlanError
    run(Frame([value], limit))   → the value of the expression; raises CelError, CostError

A `Frame` holds the variables by number and what the evaluation has cost so far. Costs are the ones
of the language's own evaluator, so that what is within its limits there is within them here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kvstack.apimachinery.objects.text.go_patterns import PatternError, compile_pattern
from kvstack.cel.checker.types import STRUCT as STRUCT_KIND
from kvstack.cel.errors import CelError, NoSuchOverloadError
from kvstack.cel.evaluation import closures, folds
from kvstack.cel.evaluation.conditions import CONDITIONS
from kvstack.cel.evaluation.costs import LIST, MAP, STRUCT, cost_of
from kvstack.cel.evaluation.frame import Frame, Run
from kvstack.cel.evaluation.operators import (
    BINARY,
    OTHERS,
    type_value,
)
from kvstack.cel.library.table import IMPLEMENTATIONS, OVERLOADS
from kvstack.cel.syntax.nodes import (
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
from kvstack.cel.values import StructValue, TypeValue

_CONVERSIONS: Final = frozenset(
    ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint")
)
_FINDERS: Final = frozenset(("find", "findAll"))


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
            return closures.constant(node.value)
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
            return closures.constant(TypeValue(name), cost=1)
        return closures.variable(slot)

    def _select(self, node: Select) -> Run:
        if node.resolved:
            return self._named(node.resolved)
        if node.is_test:
            return closures.has_field(self.plan(node.operand), node.field)
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
            return closures.path(slot, tuple(names))
        return closures.members(self.plan(operand), tuple(names))

    # Calls.

    def _call(self, node: Call) -> Run:
        function = node.function.removeprefix(".")
        arguments = node.arguments if node.target is None else [node.target, *node.arguments]
        if function in _CONVERSIONS and all(isinstance(each, Literal) for each in arguments):
            return self._folded(node, function, arguments)
        runs = [self.plan(each) for each in arguments]
        special = CONDITIONS.get(function)
        if special is not None:
            return special(*runs)
        if function == "_[_]":
            return closures.indexed(*runs)
        if function == "@in" and _is_constant(arguments[1]):
            return closures.membership(runs[0], runs[1](Frame([], 0)))
        if function in BINARY:
            overload = node.overloads[0] if len(node.overloads) == 1 else ""
            return closures.binary(BINARY[function], cost_of(function, overload), *runs)
        if function in OTHERS:
            return closures.plain(OTHERS[function], runs)
        if function in _FINDERS and isinstance(arguments[1], Literal):
            _check_pattern(arguments[1].value)
        candidates = [OVERLOADS[each] for each in node.overloads]
        return closures.called(function, candidates, [each.type for each in arguments], runs)

    def _folded(self, node: Call, function: str, arguments: Sequence[Node]) -> Run:
        """Return the value of a conversion of a constant."""
        values = [each.value for each in arguments if isinstance(each, Literal)]
        try:
            if function in OTHERS:
                return closures.constant(OTHERS[function](*values))
            if None in values:
                raise NoSuchOverloadError
            return closures.constant(IMPLEMENTATIONS[node.overloads[0]](*values))
        except CelError as error:
            raise PlanError(str(error)) from None

    # Values with parts.

    def _list(self, node: ListNode) -> Run:
        if _is_constant(node):
            return closures.constant_list(
                [each.value for each in node.elements if isinstance(each, Literal)]
            )
        runs = [self.plan(each) for each in node.elements]
        if node.optionals:
            return closures.optional_list(runs, node.optionals)
        if len(runs) == 1:
            return closures.single(runs[0])

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
            entries: dict[Any, Any] = {}
            for key, value, is_optional in parts:
                name, member = key(frame), value(frame)
                if is_optional:
                    if not closures.is_there(member, f"entry '{name}'"):
                        continue
                    member = member.value
                if not isinstance(name, (str, int, bool, float)):
                    raise CelError(f"unsupported key type: {type_value(name).name}")
                entries[name] = member
            frame.cost += MAP
            return entries

        return run

    def _struct(self, node: Struct) -> Run:
        parts = [(each.key, self.plan(each.value), each.is_optional) for each in node.entries]
        name_of_type = node.type.name if node.type.kind == STRUCT_KIND else ""

        def run(frame: Frame) -> Any:  # noqa: ANN401
            members: dict[Any, Any] = {}
            for name, value, is_optional in parts:
                member = value(frame)
                if is_optional:
                    if not closures.is_there(member, f"entry '{name}'"):
                        continue
                    member = member.value
                members[name] = member
            frame.cost += STRUCT
            return StructValue(members, name_of_type) if name_of_type else members

        return run

    # Folds.

    def _comprehension(self, node: Comprehension) -> Run:
        whole, init = self.plan(node.iter_range), self.plan(node.init)
        accumulator = self._new_slot()
        self._locals.append((node.accumulator, accumulator))
        if node.is_bind:
            result = self.plan(node.result)
            self._locals.pop()
            return folds.bind(accumulator, init, result)
        first = self._new_slot()
        second = self._new_slot() if node.iter_var2 else -1
        before = len(self._locals)
        self._locals.append((node.iter_var, first))
        if node.iter_var2:
            self._locals.append((node.iter_var2, second))
        loop = folds.Loop(whole, accumulator, first, second)
        step = node.step
        assert isinstance(step, Call)
        if step.function in {"_&&_", "_||_"}:
            predicate = self.plan(step.arguments[1])
            del self._locals[before - 1 :]
            return folds.quantifier(loop, predicate, stops_at=step.function == "_||_")
        run = self._step(step, accumulator)
        del self._locals[before:]
        result = self.plan(node.result)
        self._locals.pop()
        return folds.fold(loop, init, run, result)

    def _step(self, step: Call, accumulator: int) -> Run:
        if step.function == "_?_:_":
            condition, inner = self.plan(step.arguments[0]), step.arguments[1]
            assert isinstance(inner, Call)
            return folds.conditional_step(condition, self._step(inner, accumulator))
        if step.function == "_+_":
            item = step.arguments[1]
            if isinstance(item, ListNode):
                return folds.append(self.plan(item.elements[0]), accumulator)
            return folds.count(accumulator)
        return folds.insert([self.plan(each) for each in step.arguments[1:]], accumulator)


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
