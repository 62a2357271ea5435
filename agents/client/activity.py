"""The current work of agents and what is due later, as values that show whether all is done.

    Moving("deployment-controller", "shop/web", "waits to be worked on")
    Due("cronjob-controller", "shop/nightly", 3600.0)

Periodic checks are not due: they find nothing to do in a cluster in which nothing changed.
"""

from typing import NamedTuple


class Moving(NamedTuple):
    """Something that is not done yet."""

    who: str
    what: str
    """A key, a resource, or empty."""
    why: str


class Due(NamedTuple):
    """Work that will start later."""

    who: str
    what: str
    in_s: float


class Activity:
    """Collects activity."""

    __slots__ = ("due", "moving")

    def __init__(self) -> None:
        self.moving: list[Moving] = []
        self.due: list[Due] = []
