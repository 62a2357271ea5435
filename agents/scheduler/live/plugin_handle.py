"""The scheduler as its plugins see it: the `Handle` of one profile."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import PODS
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.series_recorder import SeriesRecorder
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.scheduler.handle import Candidate, PluginError
from kvstack.agents.scheduler.live.extender_calls import ExtenderCalls
from kvstack.agents.scheduler.live.pod_status import PodStatus
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.component.clock import Clock


@dataclass(frozen=True, slots=True)
class PluginHandle:
    """The scheduler as plugins of one profile see it."""

    api: Api
    cluster: Cluster
    clock: Clock
    random: Callable[[], float]
    status: PodStatus
    recorder: SeriesRecorder
    extenders: ExtenderCalls
    begin: Callable[[Coroutine[Any, Any, None], str], None]
    activate: Callable[[PodInfo], None]
    count_preemption: Callable[[int], None]

    def now_s(self) -> float:
        """Return the seconds since 1970."""
        return self.clock.now_s()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def wait_until(
        self, is_met: Callable[[], bool], every_s: float, timeout_s: float
    ) -> None:
        """Wait for a condition; raises PluginError after the time limit, with Go's text."""
        try:
            async with asyncio.timeout(timeout_s):
                while not is_met():  # noqa: ASYNC110  # as often as upstream looks
                    await asyncio.sleep(every_s)
        except TimeoutError as error:
            raise PluginError("context deadline exceeded") from error

    async def together(self, works: Iterable[Awaitable[Any]]) -> None:
        """Run several coroutines at once."""
        await asyncio.gather(*works)

    async def get(self, resource: ResourceType, namespace: str, name: str) -> Object:
        """Return an object."""
        with _reaching():
            return await self.api.get(resource, namespace, name)

    async def update(self, resource: ResourceType, obj: Object, subresource: str = "") -> Object:
        """Write an object."""
        with _reaching():
            return await self.api.update(resource, obj, subresource=subresource)

    async def patch(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        change: Object,
        subresource: str = "",
    ) -> Object:
        """Apply a strategic merge patch."""
        with _reaching():
            return await self.api.patch(
                resource, namespace, name, change, STRATEGIC_MERGE_PATCH, subresource=subresource
            )

    async def patch_pod_status(self, pod: PodInfo, change: Object) -> bool:
        """Patch the status of a pod."""
        return await self.status.patch(pod, change)

    async def delete_pod(self, pod: PodInfo) -> bool:
        """Delete a pod that is still the same one."""
        try:
            with _reaching():
                await self.api.delete(PODS, pod.namespace, pod.name, uid=pod.uid)
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):
                raise
            return False
        return True

    def record(self, pod: PodInfo, reason: str, action: str, note: str) -> None:
        """Write an event about a pod."""
        self.recorder.record(pod.obj, "Normal", reason, action, note)

    async def spare(self, pod: PodInfo, candidates: list[Candidate]) -> list[Candidate]:
        """Call extenders about victims."""
        return await self.extenders.spare(pod, self.cluster, candidates)


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except UnreachableError as error:
        raise PluginError(str(error)) from error
