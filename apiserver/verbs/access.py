"""What the hooks of kinds may ask about the user of a request, and about other objects."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from kvstack.apiserver.kinds.access import AccessRequest
from kvstack.apiserver.objects.groups import GroupResource
from kvstack.apiserver.policy.attributes import Attributes
from kvstack.apiserver.policy.ports import Decision

if TYPE_CHECKING:
    from kvstack.apiserver.verbs.call import Call


class CallAccess:
    """Answers for the user of one call; see `kinds.access.Access`."""

    __slots__ = ("_call",)

    def __init__(self, call: "Call") -> None:
        """Answer for a call."""
        self._call = call

    def is_allowed(self, request: AccessRequest) -> bool:
        """Return whether the user may do this.

        Hooks cannot wait: what an authorizer would have to ask somebody else is not allowed.
        """
        attributes = Attributes(
            self._call.user,
            request.verb,
            request.group,
            request.version,
            request.resource,
            request.subresource,
            request.namespace,
            request.name,
        )
        found = self._call.env.authorizer.authorize(attributes)
        if isinstance(found, Decision):
            return found.allowed
        if isinstance(found, Coroutine):
            found.close()
        return False

    def resource_of(self, group: str, version: str, kind: str) -> str | None:
        """Return the resource of a kind that is served; None: none is."""
        for row in self._call.env.endpoints.rows:
            if (row.group, row.version, row.kind.kind) == (group, version, kind):
                return row.name
        return None

    def find(self, group: str, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a stored object; None: it is not there."""
        return self._call.env.registry.view.get(GroupResource(group, resource), namespace, name)
