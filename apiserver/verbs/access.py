"""What the hooks of kinds may query: permissions of the request's user, and other objects."""

from collections.abc import Coroutine
from typing import Any

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.kinds.access import AccessRequest
from kvstack.apiserver.policy.interfaces import Decision
from kvstack.apiserver.verbs.environment import Environment


class UserAccess:
    """Access for the user of one request; see `kinds.access.Access`."""

    __slots__ = ("_env", "_user")

    def __init__(self, env: Environment, user: User) -> None:
        self._env = env
        self._user = user

    def is_allowed(self, request: AccessRequest) -> bool:
        """Return whether the user may do this.

        Hooks cannot wait: what an authorizer would have to query remotely is not allowed.
        """
        attributes = Attributes(
            self._user,
            request.verb,
            request.group,
            request.version,
            request.resource,
            request.subresource,
            request.namespace,
            request.name,
        )
        found = self._env.authorizer.authorize(attributes)
        if isinstance(found, Decision):
            return found.allowed
        if isinstance(found, Coroutine):
            found.close()
        return False

    def resource_of(self, group: str, version: str, kind: str) -> str | None:
        """Return the served resource of a kind; None: there is none."""
        for row in self._env.endpoints.rows:
            if (row.group, row.version, row.kind.kind) == (group, version, kind):
                return row.name
        return None

    def find(self, group: str, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a stored object; None: it does not exist."""
        return self._env.registry.view.get(GroupResource(group, resource), namespace, name)
