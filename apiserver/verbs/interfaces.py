"""Interfaces that the verbs call: computed objects, and handlers of reviews."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.json_object import Object

Validate: TypeAlias = Callable[[Object], Awaitable[None] | None]
"""Calls validating admission for an object; raises ApiError."""


class ReviewRequest(NamedTuple):
    """A create that stores nothing."""

    user: User
    namespace: str
    name: str
    """Name in the path; empty for a review."""
    obj: Object
    """The decoded body; the handler may change it."""
    validate: Validate
    warnings: list[str]
    """Warnings for the client; the handler may add to them."""


ReviewHandler: TypeAlias = Callable[[ReviewRequest], Awaitable[Object]]
"""Returns the answer; raises ApiError."""


class ObjectSource(Protocol):
    """Makes the objects of a resource that is not stored."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all objects, in order."""
        ...

    async def make(self, name: str) -> Object:
        """Return the object of a name, without kind and apiVersion."""
        ...
