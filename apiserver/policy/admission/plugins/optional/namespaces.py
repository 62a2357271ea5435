"""NamespaceAutoProvision and NamespaceExists: missing namespaces are created, or refused."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kvstack.apimachinery.objects.core.group_resources import NAMESPACES
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.policy.admission.namespaces import NamespaceReader
from kvstack.apiserver.policy.admission.request import CREATE, DELETE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView

MakeNamespace: TypeAlias = Callable[[str], Awaitable[None]]
"""Creates a namespace like a client; raises ApiError."""


class NamespaceAutoProvision:
    """Creates the namespace of a created object."""

    name = "NamespaceAutoProvision"

    def __init__(self, view: ObjectView, make: MakeNamespace) -> None:
        self._view: Final = view
        self._make: Final = make

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return whether an object other than a namespace is created."""
        del subresource
        return operation == CREATE and resource != NAMESPACES

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Create the namespace, if it is missing and this is not a dry run."""
        if request.is_dry_run or not request.namespace:
            return None
        if self._view.get(NAMESPACES, "", request.namespace) is not None:
            return None
        return self._provide(request)

    async def _provide(self, request: AdmissionRequest) -> None:
        try:
            await self._make(request.namespace)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise request.forbidden(error.message) from error


class NamespaceExists:
    """Refuses writes in missing namespaces."""

    name = "NamespaceExists"

    def __init__(self, view: ObjectView, live: LiveObjects) -> None:
        self._namespaces: Final = NamespaceReader(view, live)

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return whether it is a write of an object other than a namespace."""
        del subresource
        return operation in {CREATE, UPDATE, DELETE} and resource != NAMESPACES

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Find the namespace; raises ApiError 404."""
        return self._namespaces.use(request, _nothing) if request.namespace else None


def _nothing(_request: AdmissionRequest, _namespace: Object) -> None:
    """Accept an existing namespace."""
