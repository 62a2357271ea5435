"""Estimated work of requests, in seats.

    lists       100 kB of memory a seat; lists from the cache are streamed, so 1 MB at most
    watches     as lists, if they begin with the existing objects; else one
    writes      a seat more for every ten watches that get the event, while it is being sent
    all others  one

A request takes no more seats than its level allows for one.
"""

from math import ceil
from typing import Final, NamedTuple

SEAT_BYTES: Final = 100_000
STREAMED_BYTES_MAX: Final = 1_000_000
LIST_SEATS_MAX: Final = 100
WRITE_SEATS_MAX: Final = 10
SEAT_WATCHES: Final = 10
SEAT_WATCHES_NS: Final = 50_000
"""Estimated time to send one change to ten watches, generously: a thousand take 3.4 µs if they
share the bytes, and some hundred times that if not."""


class Objects(NamedTuple):
    """Number and size of the objects of a resource."""

    number: int
    average_bytes: int


def list_seats(
    objects: Objects,
    limit: int,
    seats_max: int,
    *,
    is_one: bool = False,
    is_streamed: bool = True,
    selects: bool = False,
) -> int:
    """Return the seats of a list.

    limit: of the page, 0: none. seats_max: of one request of the level, 0: none. is_one: whether
    one name is requested. is_streamed: whether it is served from the watch cache.
    """
    highest = min(seats_max or LIST_SEATS_MAX, LIST_SEATS_MAX)
    limited = min(limit or objects.number, objects.number)
    if is_one:
        loaded = 1
    elif is_streamed or not selects:
        loaded = limited
    else:
        loaded = max(limited, objects.number // 2)
    size = loaded * objects.average_bytes
    if is_streamed:
        size = min(size, STREAMED_BYTES_MAX)
    return max(1, min(ceil(size / SEAT_BYTES), highest))


class Work(NamedTuple):
    """The work of a request."""

    seats: int
    extra_ns: int
    """How long the seats stay taken after the answer."""


ONE_SEAT: Final = Work(1, 0)


def write_work(watch_count: int, seats_max: int) -> Work:
    """Return the work of a write with so many watchers."""
    if watch_count < SEAT_WATCHES:
        return ONE_SEAT
    wanted = ceil(watch_count / SEAT_WATCHES)
    seats = min(wanted, seats_max or WRITE_SEATS_MAX, WRITE_SEATS_MAX)
    return Work(seats, wanted * SEAT_WATCHES_NS // seats)
