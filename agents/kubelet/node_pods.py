"""The pods of a node, as the parts of its kubelet see them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kvstack.agents.kubelet.logs.log_links import LogLinks
from kvstack.agents.kubelet.logs.pod_logs import PodLogs
from kvstack.agents.kubelet.node.node_status import NodeStatus
from kvstack.agents.kubelet.options import KubeletOptions
from kvstack.agents.kubelet.runtime.runtime import Runtime
from kvstack.agents.kubelet.sync.pod_sync import PodRecord
from kvstack.apimachinery.objects.json_object import Object


class NodePods(Protocol):
    """The kubelet, for what cleans up after pods, admits them or ends them."""

    @property
    def options(self) -> KubeletOptions:
        """The settings of the node."""
        ...

    @property
    def runtime(self) -> Runtime:
        """The container runtime."""
        ...

    @property
    def node(self) -> NodeStatus:
        """The node's object."""
        ...

    @property
    def links(self) -> LogLinks:
        """Links to logs."""
        ...

    @property
    def logs(self) -> PodLogs:
        """The logs of this node's pods."""
        ...

    @property
    def evictions(self) -> Counter[str]:
        """Pods that were evicted, by the signal that was the cause."""
        ...

    @property
    def is_shutting_down(self) -> bool:
        """Whether its pods end with it, and new ones are refused."""
        ...

    def pods(self) -> Sequence[Object]:
        """Return the pods of the node."""
        ...

    def admitted(self) -> Sequence[Object]:
        """Return the pods that the node has taken."""
        ...

    def record_of(self, uid: str) -> PodRecord | None:
        """Return what is known of a pod; None: nothing yet."""
        ...

    def pod_directory(self, uid: str) -> Path:
        """Return the directory of a pod."""
        ...

    async def renew_volumes(self, pod: Object) -> None:
        """Rewrite a pod's volumes; VolumeError, ConfigurationError, ApiError."""
        ...

    def end(self, uid: str, reason: str, message: str, grace_s: float, *, disrupts: bool) -> None:
        """End a pod for the node's sake."""
        ...
