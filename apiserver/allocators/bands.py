"""How a range of numbers is split: a low band for those who ask, the rest for those who do not.

    first        offset                                last
      ├── asked ───┼──────────────── chosen ────────────┤

A number that a client asks for may lie anywhere. One that the server chooses comes from above the
offset, from a random start upwards and around; only when all of those are taken from the low band,
in the same way. So fixed numbers, taken from the low band, rarely collide with chosen ones.
"""

from collections.abc import Callable, Iterator

RandomBelow = Callable[[int], int]
"""(n): return a random number of 0 … n - 1."""


def band(size: int, *, least: int, most: int, step: int) -> int:
    """Return how many numbers the low band of a range of `size` has; 0: it has none."""
    return 0 if size <= least else min(max(least, size // step), most)


def candidates(first: int, offset: int, last: int, random_below: RandomBelow) -> Iterator[int]:
    """Yield the numbers of first … last in the order in which they are tried."""
    yield from _around(first + offset, last, random_below)
    yield from _around(first, min(first + offset - 1, last), random_below)


def _around(first: int, last: int, random_below: RandomBelow) -> Iterator[int]:
    if first > last:
        return
    start = first + random_below(last - first + 1)
    yield from range(start, last + 1)
    yield from range(first, start)
