"""Compiles expressions and runs them.

scope = Scope(functions=COMPATIBLE, variables={"self": INT})
program = compile_expression("self > 1", scope)
program.evaluate({"self": 5})   → Outcome(True, 2)
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kvstack.cel.checker.checker import check
from kvstack.cel.checker.scope import Scope
from kvstack.cel.checker.types import Type
from kvstack.cel.errors import CelError, CostError
from kvstack.cel.evaluation.frame import Frame, Run
from kvstack.cel.evaluation.plan import plan
from kvstack.cel.syntax.macros import MACROS
from kvstack.cel.syntax.nodes import Node
from kvstack.cel.syntax.parser import Macros, parse

CALL_MAX: Final = 1_000_000
"""The cost limit of one evaluation."""


class Outcome(NamedTuple):
    """The result of an evaluation."""

    value: Any
    cost: int


class Checked(NamedTuple):
    """An expression whose types are known."""

    root: Node
    type: Type


class Program:
    """A compiled expression."""

    __slots__ = ("_extra", "_names", "_run", "type")

    def __init__(self, run: Run, type_: Type, names: Sequence[str], slots: int) -> None:
        """Take the closure, what it returns, and its variables in the order of their slots."""
        self._run = run
        self.type = type_
        self._names = tuple(names)
        self._extra = slots - len(self._names)

    def evaluate(self, bindings: Mapping[str, Any], limit: int = CALL_MAX) -> Outcome:
        """Return the value and the cost; raises CelError, CostError.

        A variable that is not bound is an error where it is used.
        """
        slots = [bindings.get(name, _MISSING) for name in self._names]
        slots += [None] * self._extra
        frame = Frame(slots, limit)
        try:
            value = self._run(frame)
        except RecursionError:
            raise CelError("evaluation is too deep") from None
        if frame.cost > limit:
            raise CostError
        return Outcome(value, frame.cost)


class _Missing:
    """A variable without a value: every use fails."""

    __slots__ = ()

    type_name = "error"


_MISSING: Final = _Missing()


def check_expression(text: str, scope: Scope, macros: Macros = MACROS) -> Checked:
    """Return the checked tree of an expression; raises CompileError."""
    root = parse(text, macros)
    check(root, scope, text)
    return Checked(root, root.type)


def program_of(checked: Checked, scope: Scope) -> Program:
    """Return the program of a checked expression; raises PlanError."""
    names = tuple(scope.variables)
    run, slots = plan(checked.root, {name: slot for slot, name in enumerate(names)})
    return Program(run, checked.type, names, slots)


def compile_expression(text: str, scope: Scope) -> Program:
    """Return the program of an expression; raises CompileError, PlanError."""
    return program_of(check_expression(text, scope), scope)
