"""Runs several expressions on one budget, with upstream's texts for what goes wrong.

budget = Budget(10_000_000)
result = budget.evaluate(compiled, "object.a > 1", bindings)   → Result(value, "")
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kvstack.cel.admission import Compiled
from kvstack.cel.errors import EvaluationError
from kvstack.cel.programs import CALL_MAX

CONDITIONS_MAX: Final = CALL_MAX // 4
"""What all match conditions may cost."""
BINDING_MAX: Final = 10 * CALL_MAX
"""What the expressions of a policy may cost for one binding."""
_NO_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


class OutOfBudgetError(Exception):
    """The expressions together cost more than they may."""

    def __init__(self) -> None:
        """Say so."""
        super().__init__(_NO_BUDGET)


class Result(NamedTuple):
    """What an expression gave, or what went wrong."""

    value: Any = None
    error: str = ""


class Budget:
    """What is left of what expressions may cost together."""

    __slots__ = ("left",)

    def __init__(self, limit: int) -> None:
        """Begin with all of it."""
        self.left = limit

    def spend(self, cost: int) -> None:
        """Take from it; raises OutOfBudgetError."""
        if cost > self.left:
            raise OutOfBudgetError
        self.left -= cost

    def evaluate(self, compiled: Compiled, text: str, bindings: Mapping[str, Any]) -> Result:
        """Return what an expression gives; raises OutOfBudgetError, PendingCheckError."""
        if compiled.program is None:
            return Result(error=f"compilation error: {compiled.problem}")
        try:
            outcome = compiled.program.evaluate(bindings)
        except EvaluationError as error:
            return Result(error=f"expression '{text}' resulted in error: {error}")
        self.spend(outcome.cost)
        return Result(outcome.value)
