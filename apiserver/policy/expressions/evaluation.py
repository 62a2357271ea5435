"""Evaluates several expressions with one cost budget and upstream's error texts.

budget = Budget(10_000_000)
result = budget.evaluate(compiled, "object.a > 1", bindings)   → Result(value, "")
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kvstack.cel.admission import Compiled
from kvstack.cel.errors import EvaluationError
from kvstack.cel.programs import CALL_MAX

CONDITIONS_MAX: Final = CALL_MAX // 4
"""Cost limit of all match conditions."""
BINDING_MAX: Final = 10 * CALL_MAX
"""Cost limit of a policy's expressions per binding."""
_NO_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


class OutOfBudgetError(Exception):
    """The expressions together exceed the cost limit."""

    def __init__(self) -> None:
        super().__init__(_NO_BUDGET)


class Result(NamedTuple):
    """The value of an expression, or its error."""

    value: Any = None
    error: str = ""


class Budget:
    """The remaining cost budget of several expressions."""

    __slots__ = ("left",)

    def __init__(self, limit: int) -> None:
        self.left = limit

    def spend(self, cost: int) -> None:
        """Subtract a cost; raises OutOfBudgetError."""
        if cost > self.left:
            raise OutOfBudgetError
        self.left -= cost

    def evaluate(self, compiled: Compiled, text: str, bindings: Mapping[str, Any]) -> Result:
        """Return the value of an expression; raises OutOfBudgetError, PendingCheckError."""
        if compiled.program is None:
            return Result(error=f"compilation error: {compiled.problem}")
        try:
            outcome = compiled.program.evaluate(bindings)
        except EvaluationError as error:
            return Result(error=f"expression '{text}' resulted in error: {error}")
        self.spend(outcome.cost)
        return Result(outcome.value)
