"""Prefers nodes that have the pod's images already."""

from typing import Final

import numpy as np
from typing_extensions import override

from kvstack.agents.scheduler.cycle import SCORE_MAX, Cycle
from kvstack.agents.scheduler.plugin import Plugin
from kvstack.agents.scheduler.snapshot.columns import IntArray
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

_MIB: Final = 1 << 20
_LOW: Final = 23 * _MIB
_HIGH: Final = 1000 * _MIB
"""Bytes per image from which on more does not count."""


class ImageLocality(Plugin):
    """Scores by the sizes of a pod's images on a node, less for images few nodes have."""

    name = "ImageLocality"

    @override
    def score(self, cycle: Cycle, feasible: IntArray) -> IntArray | None:
        cluster = cycle.cluster
        names = _images(cycle.pod)
        images = [image for name in names if (image := cluster.images.get(name)) is not None]
        if not images:
            return np.zeros(len(feasible), dtype=np.int64)
        total = np.zeros(cluster.size, dtype=np.int64)
        count = cluster.node_count
        for image in images:
            total[list(image.slots)] += int(image.size * (len(image.slots) / count))
        high = _HIGH * len(names)
        within = np.clip(total[feasible], _LOW, high)
        found: IntArray = SCORE_MAX * (within - _LOW) // (high - _LOW)
        return found


def _images(pod: PodInfo) -> list[str]:
    spec = pod.spec
    names = [
        container.get("image") or ""
        for container in (*(spec.get("initContainers") or ()), *spec["containers"])
    ]
    names += [
        volume["image"].get("reference") or ""
        for volume in spec.get("volumes") or ()
        if volume.get("image")
    ]
    return [_with_tag(name) for name in names]


def _with_tag(name: str) -> str:
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
