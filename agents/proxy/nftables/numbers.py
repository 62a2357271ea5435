"""Numbers for rules that choose among endpoints: rows that do not overlap.

    first = numbers.take(3)          first, first + 1 and first + 2
    numbers.give_back(first, 3)      for the next row of three

A row that was given back is used again by the next of its length. So the numbers grow with the
rules that there are at one time, and not with those that ever were.
"""

from typing import Final

NUMBERS_MAX: Final = 1 << 32


class OutOfNumbersError(Exception):
    """There is no row of such a length."""


class Numbers:
    """The numbers below a limit."""

    def __init__(self, first: int = 0, limit: int = NUMBERS_MAX) -> None:
        """None is taken; first: the smallest."""
        self._limit = limit
        self._next = first
        self._free: dict[int, list[int]] = {}

    def take(self, length: int) -> int:
        """Return the first number of a row; raises OutOfNumbersError."""
        free = self._free.get(length)
        if free:
            return free.pop()
        if self._next + length > self._limit:
            text = f"{length} numbers for endpoints after {self._next}: above {self._limit}"
            raise OutOfNumbersError(text)
        first = self._next
        self._next += length
        return first

    def give_back(self, first: int, length: int) -> None:
        """Take a row back."""
        self._free.setdefault(length, []).append(first)
