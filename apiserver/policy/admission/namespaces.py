"""The namespace of a write, for plugins that use its annotations."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import NAMESPACES
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.admission.request import AdmissionRequest
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView

Hook: TypeAlias = Callable[[AdmissionRequest, Object], None]


class NamespaceReader:
    """Finds namespaces, in the store if the watch cache does not have them yet."""

    def __init__(self, view: ObjectView, live: LiveObjects) -> None:
        self._view: Final = view
        self._live: Final = live

    def use(self, request: AdmissionRequest, hook: Hook) -> Awaitable[None] | None:
        """Call a hook with the request's namespace; raises ApiError 404 if it does not exist."""
        found = self._view.get(NAMESPACES, "", request.namespace)
        if found is None:
            return self._look_again(request, hook)
        hook(request, found)
        return None

    async def _look_again(self, request: AdmissionRequest, hook: Hook) -> None:
        await self._live.catch_up()
        found = self._view.get(NAMESPACES, "", request.namespace)
        if found is None:
            raise status.not_found(NAMESPACES, request.namespace)
        hook(request, found)
