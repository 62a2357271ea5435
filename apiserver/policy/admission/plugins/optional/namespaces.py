"""NamespaceAutoProvision and NamespaceExists: namespaces are made when needed, or must be there."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kvstack.apimachinery.objects.core.group_resources import NAMESPACES
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.policy.admission.namespaces import NamespaceReader
from kvstack.apiserver.policy.admission.request import CREATE, DELETE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import LiveObjects, Obj, ObjectView

MakeNamespace: TypeAlias = Callable[[str], Awaitable[None]]
"""Creates a namespace as a client does; raises ApiError."""


class NamespaceAutoProvision:
    """Creates the namespace of what is created."""

    name = "NamespaceAutoProvision"

    def __init__(self, view: ObjectView, make: MakeNamespace) -> None:
        """Look for namespaces in the view, and make those that are missing."""
        self._view: Final = view
        self._make: Final = make

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Tell whether something is created that is no namespace."""
        del subresource
        return operation == CREATE and resource != NAMESPACES

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Make the namespace, if it is missing and this is no trial."""
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
    """Refuses writes in namespaces that are not there."""

    name = "NamespaceExists"

    def __init__(self, view: ObjectView, live: LiveObjects) -> None:
        """Look for namespaces in the view, then in the store."""
        self._namespaces: Final = NamespaceReader(view, live)

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Tell whether it is a write of what is no namespace."""
        del subresource
        return operation in {CREATE, UPDATE, DELETE} and resource != NAMESPACES

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Look for the namespace; ApiError 404."""
        return self._namespaces.use(request, _nothing) if request.namespace else None


def _nothing(_request: AdmissionRequest, _namespace: Obj) -> None:
    """Be content that it is there."""
