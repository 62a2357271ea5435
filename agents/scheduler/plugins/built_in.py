"""Plugins without filter and score: their work is built into the queue and the binder."""

from typing import ClassVar

from typing_extensions import override

from kvstack.agents.scheduler.events.changes import OWN_GATES
from kvstack.agents.scheduler.plugin import Hints, Plugin, always
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo


class SchedulingGates(Plugin):
    """Pods with scheduling gates wait until these are removed."""

    name = "SchedulingGates"
    hints: ClassVar[Hints] = {OWN_GATES: always}

    @override
    def pre_enqueue(self, pod: PodInfo, _cluster: Cluster) -> bool:
        return not pod.spec.get("schedulingGates")


class PrioritySort(Plugin):
    """The order of the queue."""

    name = "PrioritySort"


class DefaultBinder(Plugin):
    """Bindings are posted to the API server."""

    name = "DefaultBinder"
