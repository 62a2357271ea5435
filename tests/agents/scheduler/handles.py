"""A `Handle` without a scheduler: keeps what plugins write."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.scheduler.handle import Candidate, PluginError
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object


class FakeHandle:
    """Writes into lists; whoever waits finds what it waits for, or that its time is over."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.updated: list[Object] = []
        self.patched: list[Object] = []
        self.deleted: list[str] = []
        self.activated: list[str] = []
        self.recorded: list[str] = []
        self.counted: list[int] = []
        self.begun: list[Coroutine[Any, Any, None]] = []

    def now_s(self) -> float:
        return 1_700_000_000.0

    def random(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nothing changes within {seconds} s")

    async def wait_until(
        self, is_met: Callable[[], bool], every_s: float, timeout_s: float
    ) -> None:
        if not is_met():
            raise PluginError("context deadline exceeded")

    async def together(self, works: Iterable[Awaitable[Any]]) -> None:
        await asyncio.gather(*works)

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.begun.append(work)

    async def get(self, resource: ResourceType, namespace: str, name: str) -> Object:
        raise PluginError(f"{resource} {namespace}/{name} is not there")

    async def update(self, resource: ResourceType, obj: Object, subresource: str = "") -> Object:
        self.updated.append(copy.deepcopy(obj))
        return obj

    async def patch(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        change: Object,
        subresource: str = "",
    ) -> Object:
        self.patched.append(change)
        return change

    async def patch_pod_status(self, pod: PodInfo, change: Object) -> bool:
        self.patched.append(change)
        return True

    async def delete_pod(self, pod: PodInfo) -> bool:
        self.deleted.append(pod.key)
        return True

    def record(self, pod: PodInfo, reason: str, action: str, note: str) -> None:
        self.recorded.append(note)

    def activate(self, pod: PodInfo) -> None:
        self.activated.append(pod.key)

    async def spare(self, pod: PodInfo, candidates: list[Candidate]) -> list[Candidate]:
        return candidates

    def count_preemption(self, victims: int) -> None:
        self.counted.append(victims)
