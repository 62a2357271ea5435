"""The interface of the running scheduler for plugins at extension points that write.

    await handle.update(RESOURCE_CLAIMS, claim)      through the API, as the scheduler's user
    await handle.sleep(1)                            time is the scheduler's

Plugins have no clock, socket or task of their own. It is upstream's framework.Handle.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NamedTuple, Protocol

from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.scheduler.cycle import Code
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object


class PluginError(Exception):
    """A failure of a plugin; the message is for users."""


class PostFilterResult(NamedTuple):
    """The result of a post-filter plugin for an unschedulable pod."""

    code: Code | None
    """None: there is, or will be, a node. UNSCHEDULABLE: the next plugin is called."""
    text: str = ""
    """For users."""
    nominated: str | None = None
    """The nominated node of the pod; empty: none; None: unchanged."""


class Candidate(NamedTuple):
    """A node where a pod could run without its victims, the most important first."""

    slot: int
    victims: tuple[PodInfo, ...]
    violations: int
    """Victims whose disruption budget does not allow it."""


class Handle(Protocol):
    """The scheduler that runs a plugin."""

    @property
    def cluster(self) -> Cluster:
        """The current state of the scheduler's snapshot."""
        ...

    def now_s(self) -> float:
        """Return the seconds since 1970."""
        ...

    def random(self) -> float:
        """Return a number from 0 up to 1, without 1."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    async def wait_until(
        self, is_met: Callable[[], bool], every_s: float, timeout_s: float
    ) -> None:
        """Wait for a condition, looked at so often; raises PluginError after the time limit."""
        ...

    async def together(self, works: Iterable[Awaitable[Any]]) -> None:
        """Run several coroutines at once; raises the first error."""
        ...

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a coroutine in the background; its error is logged."""
        ...

    async def get(self, resource: ResourceType, namespace: str, name: str) -> Object:
        """Return an object from the API; raises ApiError, PluginError if it is not reached."""
        ...

    async def update(self, resource: ResourceType, obj: Object, subresource: str = "") -> Object:
        """Write an object, and return it as it is now; raises ApiError, PluginError."""
        ...

    async def patch(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        change: Object,
        subresource: str = "",
    ) -> Object:
        """Apply a strategic merge patch; raises ApiError, PluginError."""
        ...

    async def patch_pod_status(self, pod: PodInfo, change: Object) -> bool:
        """Patch the status of a pod; return whether that was done. Failures go to the log."""
        ...

    async def delete_pod(self, pod: PodInfo) -> bool:
        """Delete a pod; return whether it was there. Raises ApiError, PluginError."""
        ...

    def record(self, pod: PodInfo, reason: str, action: str, note: str) -> None:
        """Write an event about a pod, of type Normal."""
        ...

    def activate(self, pod: PodInfo) -> None:
        """Look again at what holds a waiting pod back."""
        ...

    async def spare(self, pod: PodInfo, candidates: list[Candidate]) -> list[Candidate]:
        """Call extenders about victims; return the remaining candidates."""
        ...

    def count_preemption(self, victims: int) -> None:
        """Count a preemption, and its victims."""
        ...
