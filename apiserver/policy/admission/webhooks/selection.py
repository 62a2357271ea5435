"""Selectors and match conditions of webhooks."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, Protocol

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import NAMESPACES
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.admission.matching import (
    is_of_object,
    labels_of,
    needs_namespace,
    own_labels,
)
from kvstack.apiserver.policy.admission.request import AdmissionRequest
from kvstack.apiserver.policy.admission.webhooks.hooks import Hook
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView


class ConditionError(Exception):
    """Match conditions could not be evaluated; the text says why."""


class Conditions(Protocol):
    """Evaluates match conditions."""

    def hold(
        self,
        conditions: Sequence[Object],
        request: AdmissionRequest,
        new: Object | None,
        old: Object | None,
    ) -> bool | Awaitable[bool]:
        """Return whether all hold; raises ConditionError. new, old: as the webhook sees them."""
        ...


class Selection:
    """Evaluates selectors."""

    def __init__(self, view: ObjectView, live: LiveObjects) -> None:
        self._view: Final = view
        self._live: Final = live

    async def selects(self, hook: Hook, request: AdmissionRequest) -> bool:
        """Return whether the selectors of a webhook match; raises ApiError."""
        is_selected = self.selects_at_once(hook, request)
        if is_selected is None:
            await self._live.catch_up()
            is_selected = self.selects_at_once(hook, request)
        if is_selected is None:
            raise status.not_found(NAMESPACES, request.namespace or request.name)
        return is_selected

    def selects_at_once(self, hook: Hook, request: AdmissionRequest) -> bool | None:
        """Return whether the selectors match; None: the namespace is not in the cache yet."""
        if needs_namespace(hook.namespaces, request):
            labels = self._namespace_labels(request)
            if labels is None:
                return None
            if not hook.namespaces.matches(labels):
                return False
        return is_of_object(hook.objects, request)

    def _namespace_labels(self, request: AdmissionRequest) -> Mapping[str, str] | None:
        labels = own_labels(request)
        if labels is not None:
            return labels
        found = self._view.get(NAMESPACES, "", request.namespace or request.name)
        return None if found is None else labels_of(found)
