"""The interface of admission plugins.

A plugin has a name, says which requests it handles, and has `mutate`, `validate` or both. It may
return an awaitable if it has to wait.
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
        """The name, as in flags."""
        ...

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return whether it handles such requests."""
        ...


@runtime_checkable
class Mutating(Plugin, Protocol):
    """A plugin that may change objects."""

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Change `request.object`, or raise ApiError; must be idempotent."""
        ...


@runtime_checkable
class Validating(Plugin, Protocol):
    """A plugin that validates objects in their final form."""

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Raise ApiError if the object must not be stored."""
        ...


def calls(
    operations: Collection[str], resource: GroupResource, *subresources: str
) -> frozenset[Call]:
    """Return the calls for some operations on a resource, or on subresources of it."""
    below = subresources or ("",)
    return frozenset((each, resource, name) for each in operations for name in below)


class Listed:
    """A plugin that lists the calls it handles."""

    calls: frozenset[Call] = frozenset()

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return whether it handles such requests."""
        return (operation, resource, subresource) in self.calls
