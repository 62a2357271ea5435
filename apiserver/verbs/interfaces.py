"""What other packages give to the verbs: objects that are not stored, and answers to reviews."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kvstack.apimachinery.attributes import User
from kvstack.apiserver.registry.record import Obj

Validate: TypeAlias = Callable[[Obj], Awaitable[None] | None]
"""Asks validating admission about an object; raises ApiError."""


class ReviewRequest(NamedTuple):
    """A create that stores nothing."""

    user: User
    namespace: str
    name: str
    """Of the path; empty for a review."""
    obj: Obj
    """The body, decoded; the handler may change it."""
    validate: Validate
    warnings: list[str]
    """What the client is told; the handler may add to it."""


ReviewHandler: TypeAlias = Callable[[ReviewRequest], Awaitable[Obj]]
"""Returns the answer; raises ApiError."""


class ObjectSource(Protocol):
    """Makes the objects of a resource that is not stored."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all, in order."""
        ...

    async def make(self, name: str) -> Obj:
        """Return the object of a name, without kind and apiVersion."""
        ...
