"""Resources: whether a pod fits, and scores by utilization and balance.

    NodeResourcesFit                 refuses where something is short; scores by a strategy
    NodeResourcesBalancedAllocation  scores by how alike the shares of resources in use are

Amounts are whole numbers, so that scores are upstream's to the digit.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
from typing_extensions import override

from kvstack.agents.scheduler.arguments import (
    POINT,
    RESOURCE,
    SHARE_MAX,
    Fields,
    check_points,
    invalid,
)
from kvstack.agents.scheduler.cycle import SCORE_MAX, Code, Cycle, Failures, Reason
from kvstack.agents.scheduler.events.changes import (
    NODE_ADD,
    NODE_ALLOCATABLE,
    OWN_SCALE_DOWN,
    POD_DELETE,
    POD_SCALE_DOWN,
)
from kvstack.agents.scheduler.events.nodes import has_room
from kvstack.agents.scheduler.events.pods import frees_resources
from kvstack.agents.scheduler.plugin import Args, Hints, Plugin, always
from kvstack.agents.scheduler.snapshot import pod_resources
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.columns import BoolArray, FloatArray, IntArray
from kvstack.agents.scheduler.snapshot.pod_resources import CPU, MEMORY, PODS
from kvstack.apimachinery.objects.json_object import Object

Strategy: TypeAlias = Callable[[IntArray, IntArray], IntArray]

_TOO_MANY_PODS: Final = "Too many pods"
_DEFAULT_RESOURCES: Final[Sequence[Object]] = (
    {"name": CPU, "weight": 1},
    {"name": MEMORY, "weight": 1},
)
_SHAPE_UNIT: Final = 10
"""Scores of shapes go to 10, those of nodes to 100."""


class Weighted(NamedTuple):
    """A resource that counts."""

    name: str
    weight: int


class NodeResourcesFit(Plugin):
    """Pods run where there is room for what they ask."""

    name = "NodeResourcesFit"
    arg_fields: ClassVar[Fields | None] = {
        "ignoredResources": [str],
        "ignoredResourceGroups": [str],
        "scoringStrategy": {
            "type": str,
            "resources": [RESOURCE],
            "requestedToCapacityRatio": {"shape": [POINT]},
        },
    }
    arg_defaults: ClassVar[Args] = {
        "scoringStrategy": {"resources": [*_DEFAULT_RESOURCES], "type": "LeastAllocated"}
    }
    hints: ClassVar[Hints] = {
        POD_DELETE: always,
        POD_SCALE_DOWN: frees_resources,
        OWN_SCALE_DOWN: always,
        NODE_ADD: has_room,
        NODE_ALLOCATABLE: has_room,
    }

    @classmethod
    @override
    def check_args(cls, args: Object, path: str) -> None:
        for number, group in enumerate(args.get("ignoredResourceGroups") or ()):
            if "/" in group:
                at = f"{path}.ignoredResourceGroups[{number}]"
                raise invalid(at, group, "resource group name can't contain '/'")
        strategy = args.get("scoringStrategy") or {}
        kind = strategy.get("type") or "LeastAllocated"
        kinds = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
        if kind not in kinds:
            raise invalid(
                f"{path}.scoringStrategy.type", kind, f"must be one of {', '.join(kinds)}"
            )
        for number, each in enumerate(strategy.get("resources") or ()):
            weight = each.get("weight", 1)
            if not 1 <= weight <= SHARE_MAX:
                at = f"{path}.scoringStrategy.resources[{number}].weight"
                raise invalid(at, weight, "not in valid range [1-100]")
        if kind == kinds[-1]:
            ratio = strategy.get("requestedToCapacityRatio") or {}
            check_points(
                ratio.get("shape"), f"{path}.scoringStrategy.requestedToCapacityRatio.shape"
            )

    def __init__(self, args: Mapping[str, Any]) -> None:
        """args: `ignoredResources`, `ignoredResourceGroups`, `scoringStrategy`."""
        self._ignored = frozenset(args.get("ignoredResources") or ())
        self._ignored_groups = frozenset(args.get("ignoredResourceGroups") or ())
        strategy = args.get("scoringStrategy") or {}
        self._resources = _weighted(strategy.get("resources"))
        self._is_ratio = strategy.get("type") == "RequestedToCapacityRatio"
        self._strategy = _strategy(strategy)

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        cluster, rows = cycle.cluster, cycle.rows
        requests = {
            name: amount
            for name, amount in cycle.pod.requests.items()
            if amount and not self._is_ignored(name)
        }
        if isinstance(rows, slice):
            key = (self, "short", *requests.items())
            bits = cluster.kept.column(
                key, cluster.size, lambda slots: _shortfalls(cluster, slots, requests)
            )
        else:
            bits = _shortfalls(cluster, rows, requests)
        if not bits.any():
            return None
        names = (PODS, *requests)
        kinds, numbers = np.unique(bits, return_inverse=True)
        reasons = [_shortfall(int(kind), names) for kind in kinds if kind]
        return Failures(numbers if kinds[0] == 0 else numbers + 1, reasons)

    @override
    def score(self, cycle: Cycle, feasible: IntArray) -> IntArray | None:
        cluster, scored = cycle.cluster, cycle.pod.scored_requests
        amounts = tuple(
            (name, weight, amount)
            for name, weight in self._resources
            if (amount := scored.get(name, 0)) or not pod_resources.is_scalar(name)
        )
        scores = cluster.kept.column(
            (self, "score", *amounts),
            cluster.size,
            lambda slots: self._scores(cluster, slots, amounts),
        )
        return scores[feasible]

    def _scores(
        self, cluster: Cluster, slots: IntArray, amounts: Sequence[tuple[str, int, int]]
    ) -> IntArray:
        """Return the scores of slots; amounts: resource, weight, what the pod asks of it."""
        total = np.zeros(len(slots), dtype=np.int64)
        weights = np.zeros(len(slots), dtype=np.int64)
        for name, weight, amount in amounts:
            allocatable = cluster.allocatable(name)[slots]
            is_there = allocatable > 0
            requested = cluster.scored_used(name)[slots] + amount
            scores = self._strategy(requested, np.where(is_there, allocatable, 1))
            counts = is_there & (scores > 0) if self._is_ratio else is_there
            total += np.where(counts, scores * weight, 0)
            weights += np.where(counts, weight, 0)
        divisor = np.maximum(weights, 1)
        if self._is_ratio:
            return np.floor(total / divisor + 0.5).astype(np.int64)
        found: IntArray = total // divisor
        return found

    def _is_ignored(self, name: str) -> bool:
        if not pod_resources.is_scalar(name) or "/" not in name:
            return False
        return name in self._ignored or name.partition("/")[0] in self._ignored_groups


class NodeResourcesBalancedAllocation(Plugin):
    """Nodes are better where a pod evens out which shares of resources are in use."""

    name = "NodeResourcesBalancedAllocation"
    arg_fields: ClassVar[Fields | None] = {"resources": [RESOURCE]}
    arg_defaults: ClassVar[Args] = {"resources": [*_DEFAULT_RESOURCES]}

    @classmethod
    @override
    def check_args(cls, args: Object, path: str) -> None:
        for number, each in enumerate(args.get("resources") or ()):
            if each.get("weight", 1) != 1:
                raise invalid(f"{path}.resources[{number}].weight", each["weight"], "must be 1")

    def __init__(self, args: Mapping[str, Any]) -> None:
        """args: `resources`."""
        self._resources = _weighted(args.get("resources"))

    @override
    def score(self, cycle: Cycle, feasible: IntArray) -> IntArray | None:
        requests = cycle.pod.requests
        names = [each.name for each in self._resources]
        if not any(requests.get(name) for name in names):
            return None
        names = [n for n in names if requests.get(n) or not pod_resources.is_scalar(n)]
        cluster = cycle.cluster
        amounts = [requests.get(name, 0) for name in names]
        scores = cluster.kept.column(
            (self, *names, *amounts),
            cluster.size,
            lambda slots: 50 + _truncated_half(50 + _evened_out(cluster, slots, names, amounts)),
        )
        return scores[feasible]


_NEVER: Final = 1 << 62
"""Bit of nodes that would be too small even if they were empty."""


def _shortfalls(cluster: Cluster, slots: IntArray, requests: Mapping[str, int]) -> IntArray:
    """Return what slots lack: a bit for the number of pods, one for each resource, `_NEVER`."""
    short = cluster.used(PODS)[slots] + 1 > cluster.allocatable(PODS)[slots]
    bits = short.astype(np.int64)
    for index, (name, amount) in enumerate(requests.items(), 1):
        allocatable = cluster.allocatable(name)[slots]
        bits += (cluster.used(name)[slots] + amount > allocatable) * (1 << index)
        bits |= (amount > allocatable) * _NEVER
    return bits


def _shortfall(bits: int, names: Sequence[str]) -> Reason:
    texts = tuple(
        _TOO_MANY_PODS if name == PODS else f"Insufficient {name}"
        for index, name in enumerate(names)
        if bits >> index & 1
    )
    return Reason(Code.UNRESOLVABLE if bits & _NEVER else Code.UNSCHEDULABLE, texts)


def _weighted(resources: Sequence[Object] | None) -> tuple[Weighted, ...]:
    return tuple(
        Weighted(each["name"], each.get("weight") or 1) for each in resources or _DEFAULT_RESOURCES
    )


def _strategy(strategy: Object) -> Strategy:
    kind = strategy.get("type") or "LeastAllocated"
    if kind == "LeastAllocated":
        return _least_allocated
    if kind == "MostAllocated":
        return _most_allocated
    points = [
        (each["utilization"], each["score"] * _SHAPE_UNIT)
        for each in strategy["requestedToCapacityRatio"]["shape"]
    ]
    return lambda requested, allocatable: by_shape(
        points,
        np.where(requested > allocatable, SCORE_MAX, requested * SCORE_MAX // allocatable),
    )


def _least_allocated(requested: IntArray, allocatable: IntArray) -> IntArray:
    free = np.maximum(allocatable - requested, 0)
    found: IntArray = free * SCORE_MAX // allocatable
    return found


def _most_allocated(requested: IntArray, allocatable: IntArray) -> IntArray:
    found: IntArray = np.minimum(requested, allocatable) * SCORE_MAX // allocatable
    return found


def by_shape(points: Sequence[tuple[int, int]], shares: IntArray) -> IntArray:
    """Return the value of a piecewise linear function, truncated toward zero."""
    found = np.full(len(shares), points[-1][1], dtype=np.int64)
    for (x0, y0), (x1, y1) in reversed(list(itertools.pairwise(points))):
        is_before = shares <= x1
        found[is_before] = y0 + _divided((y1 - y0) * (shares[is_before] - x0), x1 - x0)
    found[shares <= points[0][0]] = points[0][1]
    return found


def _divided(number: IntArray, divisor: int) -> IntArray:
    """Divide, truncating toward zero."""
    found: IntArray = np.sign(number) * (np.abs(number) // divisor)
    return found


def _truncated_half(number: IntArray) -> IntArray:
    return _divided(number, 2)


def _evened_out(
    cluster: Cluster, slots: IntArray, names: Sequence[str], amounts: Sequence[int]
) -> IntArray:
    """Return by how much nodes are more balanced with a pod than without; 0 to 100 both."""
    allocatable = np.array([cluster.allocatable(name)[slots] for name in names])
    used = np.array([cluster.used(name)[slots] for name in names])
    there = allocatable > 0
    divisors = np.where(there, allocatable, 1)
    after = used + np.array(amounts, dtype=np.int64).reshape(-1, 1)
    found: IntArray = _balance(after, divisors, there) - _balance(used, divisors, there)
    return found


def _balance(used: IntArray, divisors: IntArray, there: BoolArray) -> IntArray:
    """Return 100 where all shares in use are equal, less where they are not; a row a resource."""
    shares = np.where(there, np.minimum(used / divisors, 1.0), 0.0)
    if len(shares) == 1:
        deviation = np.zeros(shares.shape[1])
    elif len(shares) == 2:  # the usual case: cpu and memory
        deviation = np.where(there.all(axis=0), np.abs(shares[0] - shares[1]) / 2, 0.0)
    else:
        deviation = _deviation(shares, there)
    found: IntArray = ((1.0 - deviation) * SCORE_MAX).astype(np.int64)
    return found


def _deviation(shares: FloatArray, there: BoolArray) -> FloatArray:
    """Return how far shares are apart, of several resources that not all nodes have."""
    count = there.sum(axis=0)
    deviation: FloatArray = np.zeros(shares.shape[1])
    two = count == 2
    if two.any():
        ordered = np.where(there, shares, -1.0)
        ordered.sort(axis=0)
        deviation[two] = (np.abs(ordered[-1] - ordered[-2]) / 2)[two]
    many = count > 2
    if many.any():
        mean = shares.sum(axis=0) / np.maximum(count, 1)
        squares = np.where(there, (shares - mean) * (shares - mean), 0.0).sum(axis=0)
        deviation[many] = np.sqrt(squares / np.maximum(count, 1))[many]
    return deviation
