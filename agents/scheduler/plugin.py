"""The extension points of a plugin, in the order of their calls.

    pre_enqueue(pod, cluster)     whether the pod may be tried
    pre_filter(cycle)             None, SKIP, Only(names) or Refusal: before any node is looked at
    filter(cycle)                 None (all pass) or Failures: a number a row, 0 where it passes
    post_filter(handle, …)        no node takes the pod: make room
    score(cycle, feasible)        None (skipped) or a score of 0 to 100 for each
    reserve(cycle, slot)          what the pod needs on its node counts as used
    pre_bind(handle, …)           what must be written before the pod is bound
    hints                         events that may help a pod which it refused

Those before the decision is carried out are pure; `post_filter` and `pre_bind` reach the API
through the `Handle` alone. What a plugin has no method for it has no say in.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from typing_extensions import override

from kvstack.agents.scheduler.arguments import Fields
from kvstack.agents.scheduler.cycle import Code, Cycle, Failures, Only, Refusal, Skip
from kvstack.agents.scheduler.diagnosis import Diagnosis
from kvstack.agents.scheduler.events.changes import Change
from kvstack.agents.scheduler.handle import Handle, PostFilterResult
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.columns import IntArray
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

Hint: TypeAlias = Callable[[PodInfo, Change], bool]
"""Whether a change may help a pod that a plugin refused."""
Hints: TypeAlias = Mapping[str, Hint]
Args: TypeAlias = Mapping[str, Any]


def always(_pod: PodInfo, _change: Change) -> bool:
    """Every change of this kind may help: a hint."""
    return True


class Unplaced(NamedTuple):
    """A pod that no node takes."""

    cycle: Cycle
    diagnosis: Diagnosis
    filters: "Sequence[Plugin]"
    """Plugins whose filters its nodes must pass."""


class Plugin:
    """A plugin, and all its extension points; here it has no say at any of them."""

    name: ClassVar[str] = ""
    filters: ClassVar[bool] = False
    """Whether it has a `pre_filter` or a `filter` of its own."""
    scores: ClassVar[bool] = False
    """Whether it has a `score` of its own."""
    default_weight: ClassVar[int] = 1
    """The default weight of its scores."""
    hints: ClassVar[Hints] = {}
    """Events that may help the pods it refused, and what decides for one of them."""
    arg_fields: ClassVar[Fields | None] = None
    """Fields of its arguments by type; None: it takes none."""
    arg_defaults: ClassVar[Args] = {}

    def __init__(self, args: Args) -> None:
        """args: checked already."""

    @override
    def __init_subclass__(cls) -> None:
        cls.filters = cls.has("pre_filter") or cls.has("filter")
        cls.scores = cls.has("score")

    @classmethod
    def has(cls, method: str) -> bool:
        """Whether it implements an extension point."""
        return getattr(cls, method) is not getattr(Plugin, method)

    @classmethod
    def check_args(cls, _args: dict[str, Any], _path: str) -> None:
        """Check values of arguments; raises ConfigurationError. path: where they stand."""

    def pre_enqueue(self, _pod: PodInfo, _cluster: Cluster) -> bool:
        """Whether a pod may be tried; if not, an event of `hints` causes another check."""
        return True

    def pre_filter(self, _cycle: Cycle) -> Skip | Only | Refusal | None:
        """Prepare for the nodes."""
        return None

    def filter(self, _cycle: Cycle) -> Failures | None:
        """Refuse rows."""
        return None

    def score(self, _cycle: Cycle, _feasible: IntArray) -> IntArray | None:
        """Score slots, from 0 to 100."""
        return None

    def reserve(self, _cycle: Cycle, _slot: int) -> Sequence[Any]:
        """Reserve a pod's resources on its node; return what must be bound before the pod."""
        return ()

    def unreserve(self, _cluster: Cluster, _reserved: Sequence[Any]) -> None:
        """Release what `reserve` returned: the pod was not bound."""

    async def post_filter(self, _handle: Handle, _unplaced: Unplaced) -> PostFilterResult:
        """Make room for a pod that no node takes; raises what ends the attempt of all plugins."""
        return PostFilterResult(Code.UNSCHEDULABLE)

    def pre_bind_pre_flight(self, _pod: PodInfo, _node: str, reserved: Sequence[Any]) -> bool:
        """Whether `pre_bind` must be called before a pod is bound."""
        return bool(reserved)

    async def pre_bind(
        self, _handle: Handle, _pod: PodInfo, _node: str, _reserved: Sequence[Any]
    ) -> None:
        """Do the work before a pod is bound; raises on failure."""

    async def undo_pre_bind(self, _handle: Handle, _pod: PodInfo, _reserved: Sequence[Any]) -> None:
        """Undo what `pre_bind` wrote, after `unreserve`: the pod was not bound."""
