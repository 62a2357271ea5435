"""What somebody does now, and what is due later, as values: whether all is done follows from them.

    Moving("deployment-controller", "shop/web", "waits to be worked on")
    Due("cronjob-controller", "shop/nightly", 3600.0)

Who looks around from time to time, whatever happens, is not due: a look finds nothing in a cluster
in which nothing happened.
"""

from typing import NamedTuple


class Moving(NamedTuple):
    """Something that is not done yet."""

    who: str
    what: str
    """A key, a resource, or empty."""
    why: str


class Due(NamedTuple):
    """Something that will be worked on by itself."""

    who: str
    what: str
    in_s: float


class Activity:
    """What somebody does, gathered."""

    __slots__ = ("due", "moving")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.moving: list[Moving] = []
        self.due: list[Due] = []
