"""The scheduling cycle of one pod: the input and output of plugins.

    cycle = Cycle(pod, cluster)

Rows are the nodes that are looked at: all slots, or a few of them (preemption asks about one).
The extension points of plugins are in `plugin`.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.columns import BoolArray, IntArray
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

Rows: TypeAlias = slice | IntArray

SCORE_MAX: Final = 100


class Code(Enum):
    """Why a node is refused."""

    UNSCHEDULABLE = "Unschedulable"
    """Without some pods on it it might do."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Without any pods on it it would not do either."""


class Reason(NamedTuple):
    """Why a node is refused, and the message."""

    code: Code
    texts: tuple[str, ...]


class Refusal(NamedTuple):
    """No node will do."""

    code: Code
    text: str


class Only(NamedTuple):
    """Only these nodes may do."""

    names: frozenset[str]


class Skip(Enum):
    """The plugin does not filter in this cycle."""

    SKIP = "Skip"


SKIP: Final = Skip.SKIP


class Failures(NamedTuple):
    """The refused rows: number k for reasons[k - 1], 0 for those that pass."""

    numbers: IntArray
    reasons: Sequence[Reason]


class Cycle:
    """One pod's turn."""

    def __init__(
        self, pod: PodInfo, cluster: Cluster, rows: Rows | None = None, now_s: float = 0.0
    ) -> None:
        """rows: the slots to look at, all if not given; now_s: seconds since 1970."""
        self.now_s: Final = now_s
        self.pod: Final = pod
        self.cluster: Final = cluster
        self.rows: Final[Rows] = slice(0, cluster.size) if rows is None else rows
        self.is_alive: BoolArray = cluster.is_valid
        """Slots that no plugin before the one that is asked has refused."""
        self.states: Final[dict[str, Any]] = {}
        """The state of plugins during the cycle, by plugin."""


def refuse(is_refused: BoolArray, reason: Reason) -> Failures | None:
    """Return the failures of rows that are refused for one reason."""
    return Failures(is_refused.astype(np.int64), (reason,)) if is_refused.any() else None


def normalized(scores: IntArray, *, is_reversed: bool = False) -> IntArray:
    """Return scores stretched so that the best has 100; reversed: the worst has 0."""
    most = int(scores.max()) if len(scores) else 0
    if most == 0:
        return np.full(len(scores), SCORE_MAX, dtype=np.int64) if is_reversed else scores
    found = SCORE_MAX * scores // most
    return SCORE_MAX - found if is_reversed else found
