"""Cached derived columns; only slots that changed are computed again.

    kept = KeptColumns()
    kept.touch(slot)                          amounts of this slot have changed
    kept.column(key, size, compute)           compute(slots) → an element for each

A key must say all that `compute` depends on besides the amounts of the slots.
"""

from collections.abc import Callable, Hashable
from typing import Final

import numpy as np

from kvstack.agents.scheduler.snapshot.columns import IntArray

_KEPT_MAX: Final = 64
"""The maximum number of columns; the least recently used one is dropped."""
_CHANGES_MAX: Final = 4096
"""Changes that are remembered; a column that is older is computed anew."""


class _KeptColumn:
    __slots__ = ("data", "moment")

    def __init__(self, data: IntArray, moment: int) -> None:
        self.data = data
        self.moment = moment


class KeptColumns:
    """Columns by their keys, and which slots changed when."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _KeptColumn] = {}
        self._changes: list[int] = []
        self._forgotten = 0

    def touch(self, slot: int) -> None:
        """Note that amounts of a slot have changed."""
        if len(self._changes) >= _CHANGES_MAX:
            half = _CHANGES_MAX // 2
            del self._changes[:half]
            self._forgotten += half
        self._changes.append(slot)

    def column(self, key: Hashable, size: int, compute: Callable[[IntArray], IntArray]) -> IntArray:
        """Return an element a slot; it is not to be changed, and good until the next touch."""
        now = self._forgotten + len(self._changes)
        column = self._kept.pop(key, None)
        if column is None or len(column.data) != size or column.moment < self._forgotten:
            if column is None and len(self._kept) >= _KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            column = _KeptColumn(compute(np.arange(size, dtype=np.int64)), now)
        elif column.moment < now:
            changed = {*self._changes[column.moment - self._forgotten :]}
            slots = np.array([*changed], dtype=np.int64)
            column.data[slots] = compute(slots)
            column.moment = now
        self._kept[key] = column
        return column.data
