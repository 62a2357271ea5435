"""The roles and bindings that every cluster has, brought up to what they should be at start."""

import asyncio
from collections.abc import Iterable
from typing import Final

from kvstack.apiserver.objects.groups import GroupResource
from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.policy.authorization.rbac.bootstrap import (
    CREATE,
    RECREATE,
    default_objects,
    reconcile,
)
from kvstack.apiserver.registry.record import Obj
from kvstack.apiserver.server.loopback import Loopback

_RACED: Final = 409


class Roles:
    """Keeps the default roles."""

    def __init__(self, loopback: Loopback) -> None:
        """Write through the verbs."""
        self._loopback: Final = loopback

    async def keep(self) -> None:
        """Add what is missing: cluster roles, then what refers to them. Raises ApiError."""
        wanted = default_objects()
        is_binding = [resource.resource.endswith("bindings") for resource, _ in wanted]
        for turn in (False, True):
            await self._keep_all(
                each for each, binds in zip(wanted, is_binding, strict=True) if binds is turn
            )

    async def _keep_all(self, wanted: Iterable[tuple[GroupResource, Obj]]) -> None:
        results = await asyncio.gather(
            *(self._keep_one(resource, obj) for resource, obj in wanted), return_exceptions=True
        )
        for each in results:
            if isinstance(each, BaseException):
                raise each

    async def _keep_one(self, resource: GroupResource, expected: Obj) -> None:
        metadata = expected["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        step = reconcile(expected, self._loopback.get(resource, namespace, name))
        if step is None:
            return
        if step.action == CREATE:
            try:
                await self._loopback.create(resource, step.object)
            except ApiError as error:
                if error.code != _RACED:
                    raise
            return
        if step.action == RECREATE:
            existing = self._loopback.get(resource, namespace, name)
            assert existing is not None, "what is made anew exists"
            await self._loopback.delete(resource, existing)
            await self._loopback.create(resource, step.object)
            return
        await self._loopback.update(resource, step.object)
