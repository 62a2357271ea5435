"""Ranges of costs and sizes: a least and a most, which stop at what 64 bits hold."""

from math import ceil
from typing import Final, NamedTuple

UNLIMITED: Final = 2**64 - 1


class Range(NamedTuple):
    """A least and a most; both at most `UNLIMITED`."""

    min: int
    max: int

    def plus(self, other: "Range") -> "Range":
        """Return the sum."""
        return Range(min(self.min + other.min, UNLIMITED), min(self.max + other.max, UNLIMITED))

    def times(self, other: "Range") -> "Range":
        """Return the product."""
        return Range(min(self.min * other.min, UNLIMITED), min(self.max * other.max, UNLIMITED))

    def scaled(self, factor: float) -> "Range":
        """Return the product with a factor, rounded up."""
        return Range(_scaled(self.min, factor), _scaled(self.max, factor))

    def union(self, other: "Range") -> "Range":
        """Return what holds both."""
        return Range(min(self.min, other.min), max(self.max, other.max))


def _scaled(number: int, factor: float) -> int:
    product = float(number) * factor
    return UNLIMITED if product >= 2.0**64 else ceil(product)


def exactly(number: int) -> Range:
    """Return a range of one number."""
    return Range(number, number)


ANY: Final = Range(0, UNLIMITED)
ONE: Final = Range(1, 1)
NOTHING: Final = Range(0, 0)
