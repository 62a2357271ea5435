"""The resource usage of nodes of this process, read without a socket."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from kvstack.agents.kubelet.hollow.hollow_nodes import HollowNodes
from kvstack.agents.metrics.readings import ContainerUsage, Reading, Usage, read_resource_page
from kvstack.agents.standalone.local_metrics import OwnNode
from kvstack.component.clock import Clock

if TYPE_CHECKING:
    from kvstack.agents.kubelet.real_node import RealNode

_NODE_CPU: Final = 0.01
"""Cores that a hollow node uses itself."""
_NODE_MEMORY: Final = 128 << 20
_KEPT_MIN: Final = 100


class HollowUsage:
    """Reads hollow nodes."""

    def __init__(self, nodes: HollowNodes, clock: Clock) -> None:
        """Read them later."""
        self._nodes = nodes
        self._clock = clock
        self._began_s: Final = clock.monotonic_s()
        self._kept_max = _KEPT_MIN
        self._of_gone: dict[str, tuple[dict[str, int], int]] = {}
        """By node: the last usage of its containers, ended ones included."""

    def __call__(self, name: str) -> Reading | None:
        """Read a node by its name; None: it does not run in this process."""
        return self._read(name) if self._nodes.runs(name) else None

    def _read(self, name: str) -> Reading:
        used = self._nodes.usage(name)
        now_ms = int(self._clock.now_s() * 1000)
        containers = [
            ContainerUsage(
                pod["metadata"]["namespace"],
                pod["metadata"]["name"],
                each.container.name,
                Usage(now_ms, int(each.container.started_s * 1000), each.cpu_ns, each.memory_bytes),
            )
            for pod, found in used
            for each in found
        ]
        seen = {each.container.id: each.cpu_ns for _, found in used for each in found}
        cpu_ns = self._total(name, seen)
        memory = _NODE_MEMORY + sum(each.usage.memory_bytes for each in containers)
        return Reading(Usage(now_ms, 0, cpu_ns, memory), containers)

    def _total(self, name: str, usage_by_container: dict[str, int]) -> int:
        """Return the usage of a node; that of containers that are gone is included."""
        if len(self._of_gone) > self._kept_max:
            self._of_gone = {k: each for k, each in self._of_gone.items() if self._nodes.runs(k)}
            self._kept_max = max(2 * len(self._of_gone), _KEPT_MIN)
        before, gone = self._of_gone.get(name, ({}, 0))
        gone += sum(cpu_ns for each, cpu_ns in before.items() if each not in usage_by_container)
        self._of_gone[name] = (usage_by_container, gone)
        own = int((self._clock.monotonic_s() - self._began_s) * _NODE_CPU * 1e9) + 1
        return own + gone + sum(usage_by_container.values())


def of_real_node(node: "RealNode", clock: Clock) -> OwnNode:
    """Return what reads a node that runs processes."""

    async def read() -> Reading:
        return read_resource_page(await node.resource_page(), int(clock.now_s() * 1000))

    def find(name: str) -> Awaitable[Reading] | None:
        return read() if name == node.name else None

    return find
