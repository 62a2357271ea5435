"""One evaluation of an expression: the values of its variables, and what it has cost so far."""

from collections.abc import Callable
from typing import Any, TypeAlias


class Frame:
    """One evaluation."""

    __slots__ = ("cost", "limit", "slots")

    def __init__(self, slots: list[Any], limit: int) -> None:
        """Begin with the variables; limit: what it may cost."""
        self.slots = slots
        self.limit = limit
        self.cost = 0


Run: TypeAlias = Callable[[Frame], Any]
"""The compiled form of a node: returns its value; raises CelError, CostError."""
