"""APIServices of the groups and versions that this server itself serves.

Those of built-in versions are made at start; those of custom resources come and go with their
definitions. An APIService of the same name that refers to a Service is left alone.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.table import CUSTOM_PRIORITY, Priority, Table
from kvstack.apiserver.http.site import Site
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.server.loopback import Loopback
from kvstack.component.logger import Logger
from kvstore.client.errors import StoreError

PERIOD_S: Final = 60.0
RESOURCE: Final = GroupResource("apiregistration.k8s.io", "apiservices")

_LABEL: Final = "kube-aggregator.kubernetes.io/automanaged"
_ON_START: Final = "onstart"
_ALWAYS: Final = "true"
_AT_ONCE: Final = 16
_RETRY_S: Final = 1.0


class ApiServices:
    """Maintains the local APIServices."""

    def __init__(
        self, loopback: Loopback, table: Table, site: Site, registry: Registry, logger: Logger
    ) -> None:
        """Maintain APIServices of the site's versions for which the table has a priority."""
        self._loopback: Final = loopback
        self._site: Final = site
        self._registry: Final = registry
        self._logger: Final = logger
        served = {each.group_version for each in site.endpoints.rows if not each.is_custom}
        self._built_in: Final = [
            _object(name, priority, _ON_START)
            for name, priority in table.priorities.items()
            if name in served
        ]
        self._wake: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def keep(self) -> None:
        """Make what is missing and revert changes; raises ApiError."""
        await self._keep_all(self._built_in)
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name="API services of definitions")
            self._site.on_custom.append(self._wake.set)
        self._wake.set()

    async def end(self) -> None:
        """Stop watching definitions."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._keep_custom()
            except (ApiError, StoreError) as error:
                is_race = isinstance(error, ApiError) and (error.is_not_found or error.is_conflict)
                if not is_race:
                    self._logger.warning("failed to maintain APIServices", error=str(error))
                self._wake.set()
                await asyncio.sleep(_RETRY_S)

    async def _keep_custom(self) -> None:
        served = dict.fromkeys(e.group_version for e in self._site.endpoints.rows if e.is_custom)
        services = [_object(each, CUSTOM_PRIORITY, _ALWAYS) for each in served]
        await self._keep_all(services)
        names = {each["metadata"]["name"] for each in (*services, *self._built_in)}
        for each in list(self._registry.view.list(RESOURCE)):
            metadata = each["metadata"]
            is_ours = (metadata.get("labels") or {}).get(_LABEL) == _ALWAYS
            if is_ours and metadata["name"] not in names:
                await self._loopback.delete(RESOURCE, each)

    async def _keep_all(self, services: Iterable[Object]) -> None:
        missing = [each for each in services if not self._is_kept(each)]
        for at in range(0, len(missing), _AT_ONCE):
            part = missing[at : at + _AT_ONCE]
            await asyncio.gather(*(self._keep_one(each) for each in part))

    def _is_kept(self, service: Object) -> bool:
        found = self._loopback.get(RESOURCE, "", service["metadata"]["name"])
        if found is None:
            return False
        is_ours = (found["metadata"].get("labels") or {}).get(_LABEL) is not None
        return found.get("spec") == service["spec"] or not is_ours

    async def _keep_one(self, desired: Object) -> None:
        found = self._loopback.get(RESOURCE, "", desired["metadata"]["name"])
        if found is not None:
            await self._loopback.update(RESOURCE, {**found, "spec": desired["spec"]})
            return
        try:
            await self._loopback.create(RESOURCE, desired)
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):
                raise


def _object(group_version: str, priority: Priority, label: str) -> Object:
    group, _, version = group_version.rpartition("/")
    spec: dict[str, Any] = {
        "version": version,
        "groupPriorityMinimum": priority.group,
        "versionPriority": priority.version,
    }
    if group:
        spec["group"] = group
    return {"metadata": {"name": f"{version}.{group}", "labels": {_LABEL: label}}, "spec": spec}
