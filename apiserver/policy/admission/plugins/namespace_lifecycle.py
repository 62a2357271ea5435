"""NamespaceLifecycle: refuses creates in missing and terminating namespaces.

Some namespaces cannot be deleted. A namespace that was deleted through this server is read from the
store for a while, since the watch cache may be behind.
"""

from collections.abc import Awaitable, Iterable
from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import NAMESPACES
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.policy.admission.request import CREATE, DELETE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView
from kvstack.component.clock import Clock

IMMORTAL: Final = frozenset(("default", "kube-system", "kube-public"))
_ACCESS_REVIEWS: Final = GroupResource("authorization.k8s.io", "localsubjectaccessreviews")
_DOUBTED_NS: Final = 30_000_000_000
_DOUBTED_MAX: Final = 100


class NamespaceLifecycle:
    """Refuses creates in missing and terminating namespaces, and deletes of some."""

    name = "NamespaceLifecycle"

    def __init__(
        self,
        view: ObjectView,
        live: LiveObjects,
        clock: Clock,
        immortal: Iterable[str] = IMMORTAL,
    ) -> None:
        """immortal: namespaces that cannot be deleted."""
        self._view: Final = view
        self._live: Final = live
        self._clock: Final = clock
        self._immortal: Final = frozenset(immortal)
        self._doubted: dict[str, int] = {}

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return whether it is a create, or a delete of a namespace."""
        if resource == NAMESPACES:
            return operation == DELETE and not subresource
        return operation == CREATE and resource != _ACCESS_REVIEWS

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Check the namespace."""
        if request.resource == NAMESPACES:
            self._check_delete(request)
            return None
        if not request.namespace:
            return None
        phase = self._phase(request.namespace)
        if phase is None or (phase == "Active" and self._is_doubted(request.namespace)):
            return self._look_again(request)
        _check(request, phase)
        return None

    async def _look_again(self, request: AdmissionRequest) -> None:
        await self._live.catch_up()
        phase = self._phase(request.namespace)
        if phase is None:
            raise status.not_found(NAMESPACES, request.namespace)
        _check(request, phase)

    def _phase(self, namespace: str) -> str | None:
        found = self._view.get(NAMESPACES, "", namespace)
        if found is None:
            return None
        phase: str = (found.get("status") or {}).get("phase") or "Active"
        return phase

    def _check_delete(self, request: AdmissionRequest) -> None:
        if request.name in self._immortal:
            message = "this namespace may not be deleted"
            raise status.forbidden(NAMESPACES, request.name, message)
        if len(self._doubted) >= _DOUBTED_MAX:
            del self._doubted[next(iter(self._doubted))]
        self._doubted[request.name] = self._clock.monotonic_ns() + _DOUBTED_NS

    def _is_doubted(self, namespace: str) -> bool:
        until = self._doubted.get(namespace)
        return until is not None and self._clock.monotonic_ns() < until


def _check(request: AdmissionRequest, phase: str) -> None:
    if phase != "Terminating":
        return
    namespace = request.namespace
    message = (
        f"unable to create new content in namespace {namespace} because it is being terminated"
    )
    refusal = request.forbidden(message)
    refusal.status["details"]["causes"] = [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    raise refusal
