"""Host ports: two pods of a node cannot have the same one."""

from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from kvstack.agents.scheduler.cycle import SKIP, Code, Cycle, Failures, Reason, Skip, refuse
from kvstack.agents.scheduler.events.changes import (
    NODE_ADD,
    POD_DELETE,
)
from kvstack.agents.scheduler.events.pods import frees_port
from kvstack.agents.scheduler.plugin import Hints, Plugin, always
from kvstack.agents.scheduler.snapshot.pod_info import Port

_TAKEN: Final = Reason(
    Code.UNSCHEDULABLE, ("node(s) didn't have free ports for the requested pod ports",)
)
_ALL: Final = ("", "0.0.0.0")


class NodePorts(Plugin):
    """Pods run where their host ports are free."""

    name = "NodePorts"
    hints: ClassVar[Hints] = {POD_DELETE: frees_port, NODE_ADD: always}

    @override
    def pre_filter(self, cycle: Cycle) -> Skip | None:
        return None if cycle.pod.ports else SKIP

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        is_taken = np.zeros(cycle.cluster.size, dtype=np.bool_)
        for taken, users in cycle.cluster.ports.items():
            if users and any(conflict(port, taken) for port in cycle.pod.ports):
                is_taken[list(users)] = True
        return refuse(is_taken[cycle.rows], _TAKEN)


def conflict(one: Port, other: Port) -> bool:
    """Whether two host ports conflict on a node."""
    if one[:2] != other[:2]:
        return False
    return one[2] in _ALL or other[2] in _ALL or one[2] == other[2]
