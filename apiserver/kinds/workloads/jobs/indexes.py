"""Lists of completion indexes: `1,3-5,7`.

    count("1,3-5,7", 10)              → 5
    overlap("1,3-5", "4,6", 10)       → 4

Numbers are in ascending order and below the number of completions.
"""

from collections.abc import Iterator

from kvstack.apimachinery.objects.text.go_numbers import NumberError, atoi
from kvstack.apimachinery.objects.text.go_text import quote


class IndexesError(ValueError):
    """A text is not a list of indexes; the message is upstream's."""


def count(text: str, completions: int) -> int:
    """Return the number of indexes in a list; raises IndexesError."""
    total, last = 0, None
    for part in text.split(",") if text else ():
        first, end = _interval(part, completions)
        if last is not None and last >= first:
            raise _not_increasing(last, first)
        total += end - first + 1
        last = end
    return total


def overlap(one: str, other: str, completions: int) -> int | None:
    """Return the first index in both lists; None: there is none. Invalid parts do not count."""
    ours, theirs = list(_good_intervals(one, completions)), _good_intervals(other, completions)
    position = 0
    for first, end in theirs:
        while position < len(ours):
            our_first, our_end = ours[position]
            if our_first <= end and first <= our_end:
                return max(our_first, first)
            if our_first > first:
                break
            position += 1
    return None


def _good_intervals(text: str, completions: int) -> Iterator[tuple[int, int]]:
    for part in text.split(",") if text else ():
        try:
            yield _interval(part, completions)
        except IndexesError:
            continue


def _interval(text: str, completions: int) -> tuple[int, int]:
    limits = text.split("-")
    if len(limits) > 2:
        raise IndexesError(
            f"the fragment {quote(text)} violates the requirement that an index interval can have"
            " at most two parts separated by '-'"
        )
    first = _index(limits[0], completions)
    if len(limits) == 1:
        return first, first
    end = _index(limits[1], completions)
    if first >= end:
        raise _not_increasing(first, end)
    return first, end


def _index(text: str, completions: int) -> int:
    try:
        number = atoi(text)
    except NumberError:
        message = f"cannot convert string to integer for index: {quote(text)}"
        raise IndexesError(message) from None
    if number >= completions:
        raise IndexesError(f"too large index: {quote(text)}")
    return number


def _not_increasing(previous: int, current: int) -> IndexesError:
    return IndexesError(f"non-increasing order, previous: {previous}, current: {current}")
