"""The default RBAC roles and bindings, reconciled at start.

Others that the settings name are created if missing, and never changed.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.policy.authorization.rbac.bootstrap import (
    CREATE,
    RECREATE,
    default_objects,
    reconcile,
)
from kvstack.apiserver.policy.authorization.rbac.grants import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
)
from kvstack.apiserver.server.loopback import Loopback

_RESOURCES: Final = {
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS,
    "Role": ROLES,
    "RoleBinding": ROLE_BINDINGS,
}


class Roles:
    """Maintains the default roles."""

    def __init__(self, loopback: Loopback, others: Iterable[Mapping[str, Any]] = ()) -> None:
        """others: roles and bindings besides the default ones."""
        self._loopback: Final = loopback
        self._others: Final = tuple(others)

    async def keep(self) -> None:
        """Add what is missing: cluster roles, then what refers to them. Raises ApiError."""
        defaults = default_objects()
        is_binding = [resource.resource.endswith("bindings") for resource, _ in defaults]
        for turn in (False, True):
            await self._keep_all(
                each for each, binds in zip(defaults, is_binding, strict=True) if binds is turn
            )
        for each in self._others:
            resource, metadata = _RESOURCES[each["kind"]], each["metadata"]
            namespace = metadata.get("namespace", "")
            if self._loopback.get(resource, namespace, metadata["name"]) is None:
                await self._create(resource, each)

    async def _keep_all(self, defaults: Iterable[tuple[GroupResource, Object]]) -> None:
        results = await asyncio.gather(
            *(self._keep_one(resource, obj) for resource, obj in defaults), return_exceptions=True
        )
        for each in results:
            if isinstance(each, BaseException):
                raise each

    async def _keep_one(self, resource: GroupResource, expected: Object) -> None:
        metadata = expected["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        step = reconcile(expected, self._loopback.get(resource, namespace, name))
        if step is None:
            return
        if step.action == CREATE:
            await self._create(resource, step.object)
            return
        if step.action == RECREATE:
            existing = self._loopback.get(resource, namespace, name)
            assert existing is not None, "a recreated object existed"
            await self._loopback.delete(resource, existing)
            await self._loopback.create(resource, step.object)
            return
        await self._loopback.update(resource, step.object)

    async def _create(self, resource: GroupResource, obj: Mapping[str, Any]) -> None:
        try:
            await self._loopback.create(resource, obj)
        except ApiError as error:
            if not error.is_conflict:
                raise
