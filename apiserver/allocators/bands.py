"""The split of a range: a static band for requested numbers, the rest for chosen ones.

    first        offset                                last
      ├── asked ───┼──────────────── chosen ────────────┤

A requested number may be anywhere. A chosen one is above the offset, from a random start upwards
and around; only when all of those are taken it comes from the static band, in the same way. So
static numbers from that band rarely collide with chosen ones.
"""

from collections.abc import Callable, Iterator

RandomBelow = Callable[[int], int]
"""(n): returns a random number in 0 … n - 1."""


def band(size: int, *, least: int, most: int, step: int) -> int:
    """Return the size of the static band of a range of `size`; 0: it has none."""
    return 0 if size <= least else min(max(least, size // step), most)


def candidates(first: int, offset: int, last: int, random_below: RandomBelow) -> Iterator[int]:
    """Yield the numbers first … last in the order of attempts."""
    yield from _around(first + offset, last, random_below)
    yield from _around(first, min(first + offset - 1, last), random_below)


def _around(first: int, last: int, random_below: RandomBelow) -> Iterator[int]:
    if first > last:
        return
    start = first + random_below(last - first + 1)
    yield from range(start, last + 1)
    yield from range(first, start)
