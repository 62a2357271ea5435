"""What a plugin of admission is.

A plugin has a name, tells what it wants to be called for, and has `mutate`, `validate` or both. It
may answer with an awaitable if it has to wait for something.
"""

from collections.abc import Awaitable, Collection
from typing import Protocol, TypeAlias, runtime_checkable

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.policy.admission.request import AdmissionRequest

Call: TypeAlias = tuple[str, GroupResource, str]
"""Operation, resource and subresource."""


class Plugin(Protocol):
    """One plugin."""

    @property
    def name(self) -> str:
        """As flags have it."""
        ...

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Tell whether it wants to be called."""
        ...


@runtime_checkable
class Mutating(Plugin, Protocol):
    """A plugin that may change objects."""

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Change `request.object`, or raise ApiError; the same if it is called again."""
        ...


@runtime_checkable
class Validating(Plugin, Protocol):
    """A plugin that looks at objects as they are to be stored."""

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Raise ApiError if the object is not to be stored."""
        ...


def calls(
    operations: Collection[str], resource: GroupResource, *subresources: str
) -> frozenset[Call]:
    """Return the calls for some operations on a resource, or on these subresources of it."""
    below = subresources or ("",)
    return frozenset((each, resource, name) for each in operations for name in below)


class Listed:
    """A plugin whose calls are a list."""

    calls: frozenset[Call] = frozenset()

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Tell whether it wants to be called."""
        return (operation, resource, subresource) in self.calls
