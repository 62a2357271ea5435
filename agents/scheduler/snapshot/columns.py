"""Columns over nodes: numpy arrays with an element a slot, which grow together.

columns = Columns()
used = columns.add(np.int64, 0)
used.data[slot] += 5
"""

from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]
IdArray: TypeAlias = npt.NDArray[np.int32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]

_Element = TypeVar("_Element", bound=np.generic)

_FIRST_CAPACITY: Final = 64


class Column(Generic[_Element]):
    """One value a slot."""

    __slots__ = ("data", "fill")

    def __init__(self, kind: type[_Element], fill: float, capacity: int) -> None:
        self.data: npt.NDArray[_Element] = np.full(capacity, fill, dtype=kind)
        self.fill: Final = fill


class Columns:
    """All columns of a cluster."""

    def __init__(self) -> None:
        self.capacity = _FIRST_CAPACITY
        self._columns: dict[int, Column[Any]] = {}

    def add(self, kind: type[_Element], fill: float) -> Column[_Element]:
        """Return a new column; fill: the default value of slots."""
        column = Column(kind, fill, self.capacity)
        self._columns[id(column)] = column
        return column

    def drop(self, column: Column[Any]) -> None:
        """Forget a column."""
        del self._columns[id(column)]

    def reserve(self, size: int) -> None:
        """Grow to a number of slots."""
        if size <= self.capacity:
            return
        self.capacity = max(size, 2 * self.capacity)
        for column in self._columns.values():
            larger = np.full(self.capacity, column.fill, dtype=column.data.dtype)
            larger[: len(column.data)] = column.data
            column.data = larger
