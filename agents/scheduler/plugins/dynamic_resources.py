"""Claims of devices: pods that have some are not placed, since no devices are allocated here."""

from typing import Final

import numpy as np
from typing_extensions import override

from kvstack.agents.scheduler.cycle import SKIP, Code, Cycle, Plugin, Refusal, Skip
from kvstack.agents.scheduler.snapshot.columns import IntArray

_REFUSAL: Final = Refusal(Code.UNRESOLVABLE, "resource claims are not supported by this scheduler")


class DynamicResources(Plugin):
    """Refuses pods with resource claims; scores all nodes alike."""

    name = "DynamicResources"
    filters = True
    scores = True
    default_weight = 2

    @override
    def pre_filter(self, cycle: Cycle) -> Skip | Refusal:
        return _REFUSAL if cycle.pod.spec.get("resourceClaims") else SKIP

    @override
    def score(self, _cycle: Cycle, feasible: IntArray) -> IntArray | None:
        return np.zeros(len(feasible), dtype=np.int64)
