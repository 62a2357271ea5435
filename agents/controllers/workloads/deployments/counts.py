"""How many replicas a Deployment's ReplicaSets may have. Pure arithmetic.

bounds(deployment)       → Bounds(replicas=10, surge=3, unavailable=2)
proportional(sets, …)    → {name: replicas}
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.int_or_string import scaled
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int

DESIRED_REPLICAS: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"
ROLLING_UPDATE: Final = "RollingUpdate"


class Bounds(NamedTuple):
    """Between what the number of pods moves."""

    replicas: int
    surge: int
    """The maximum number of extra replicas."""
    unavailable: int
    """The maximum number of unavailable replicas."""

    @property
    def most(self) -> int:
        """The maximum number of replicas in total."""
        return self.replicas + self.surge

    @property
    def least_available(self) -> int:
        """The minimum number of available replicas."""
        return self.replicas - self.unavailable


def is_rolling(deployment: Object) -> bool:
    """Whether the strategy is a rolling update."""
    return bool(deployment["spec"]["strategy"].get("type") == ROLLING_UPDATE)


def bounds(deployment: Object) -> Bounds:
    """Return the bounds of a Deployment."""
    replicas: int = deployment["spec"].get("replicas", 1)
    if not is_rolling(deployment):
        return Bounds(replicas, 0, 0)
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    surge = scaled(rolling.get("maxSurge", 0), replicas, round_up=True)
    unavailable = scaled(rolling.get("maxUnavailable", 0), replicas, round_up=False)
    if not surge and not unavailable:
        unavailable = 1  # else nothing could ever move
    return Bounds(replicas, surge, min(unavailable, replicas))


def size(replica_set: Object) -> int:
    """Return how many replicas a set is to have."""
    replicas: int = replica_set["spec"].get("replicas", 1)
    return replicas


def available(replica_set: Object) -> int:
    """Return how many of a set's replicas are available."""
    count: int = (replica_set.get("status") or {}).get("availableReplicas", 0)
    return count


def total_size(sets: Iterable[Object]) -> int:
    """Return how many replicas sets are to have together."""
    return sum(map(size, sets))


def active(sets: Iterable[Object]) -> list[Object]:
    """Return the sets that are to have replicas."""
    return [each for each in sets if size(each) > 0]


def new_size(deployment: Object, sets: Iterable[Object], new_set_size: int) -> int:
    """Return how large the new set may become while the others are as large as they are."""
    limits = bounds(deployment)
    if not is_rolling(deployment):
        return limits.replicas
    room = limits.most - total_size(sets)
    if room <= 0:
        return new_set_size
    return new_set_size + min(room, limits.replicas - new_set_size)


def number_in(replica_set: Object, annotation: str) -> int | None:
    """Return the number in an annotation; None: there is none, or it is not one."""
    text = (replica_set["metadata"].get("annotations") or {}).get(annotation)
    if text is None:
        return None
    try:
        number = parse_int(text, 32)
    except NumberError:
        return None
    return number if number >= 0 else None


def is_saturated(deployment: Object, replica_set: Object) -> bool:
    """Whether a set has all replicas of its Deployment, and all are available."""
    replicas = bounds(deployment).replicas
    return (
        size(replica_set) == replicas
        and number_in(replica_set, DESIRED_REPLICAS) == replicas
        and available(replica_set) == replicas
    )


def proportional(deployment: Object, sets: Sequence[Object]) -> list[tuple[Object, int]]:
    """Return active sets with the sizes that spread a change of the whole among them.

    Each keeps its share; what rounding leaves over goes to the largest.
    """
    limits = bounds(deployment)
    allowed = limits.most if limits.replicas > 0 else 0
    to_add = allowed - total_size(sets)
    if not to_add:
        return [(each, size(each)) for each in sets]
    # Of sets of one size the newest grows first, and the oldest shrinks first.
    ordered = sorted(sets, key=creation_order, reverse=to_add > 0)
    ordered.sort(key=size, reverse=True)
    added = 0
    sizes: list[int] = []
    for each in ordered:
        share = _share(deployment, each, limits)
        left = to_add - added
        part = min(share, left) if to_add > 0 else max(share, left)
        added += part
        sizes.append(size(each) + part)
    sizes[0] = max(sizes[0] + to_add - added, 0)
    return list(zip(ordered, sizes, strict=True))


def creation_order(obj: Object) -> tuple[str, str]:
    """Return the sort key of the older first."""
    return obj["metadata"].get("creationTimestamp", ""), obj["metadata"]["name"]


def _share(deployment: Object, replica_set: Object, limits: Bounds) -> int:
    """Return how many replicas a set gains or loses by its share of the whole."""
    own = size(replica_set)
    if limits.replicas == 0:
        return -own
    before = number_in(replica_set, MAX_REPLICAS)
    before = before or (deployment.get("status") or {}).get("replicas", 0)
    if not before:
        return 0
    return math.floor(own * limits.most / before + 0.5) - own
