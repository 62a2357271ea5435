"""The maximum number of attached volumes of a CSI driver on a node."""

from typing import ClassVar, Final, TypeAlias

import numpy as np
from typing_extensions import override

from kvstack.agents.scheduler.cycle import SKIP, Code, Cycle, Failures, Reason, Refusal, Skip
from kvstack.agents.scheduler.events.changes import (
    POD_DELETE,
)
from kvstack.agents.scheduler.events.pods import had_claims
from kvstack.agents.scheduler.events.storage import has_claims, is_own_claim, lets_more
from kvstack.agents.scheduler.plugin import Hints, Plugin, always
from kvstack.agents.scheduler.snapshot import storage
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object

Volumes: TypeAlias = dict[str, str]
"""Volume, made unique by its driver → driver."""

_FULL: Final = Reason(Code.UNSCHEDULABLE, ("node(s) exceed max volume count",))


class NodeVolumeLimits(Plugin):
    """Pods run where their volumes can be attached."""

    name = "NodeVolumeLimits"
    hints: ClassVar[Hints] = {
        "CSINodeAdd": always,
        "CSINodeUpdate": lets_more,
        POD_DELETE: had_claims,
        "PersistentVolumeClaimAdd": is_own_claim,
        "VolumeAttachmentDelete": has_claims,
    }

    @override
    def pre_filter(self, cycle: Cycle) -> Skip | Refusal | None:
        pod, cluster = cycle.pod, cycle.cluster
        if not any(
            each.get("persistentVolumeClaim") or each.get("ephemeral") or each.get("csi")
            for each in pod.spec.get("volumes") or ()
        ):
            return SKIP
        cycle.states[self.name] = _volumes_of(cluster, pod)
        return None

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        volumes: Volumes = cycle.states[self.name]
        if not volumes:
            return None
        cluster = cycle.cluster
        reasons = [_FULL]
        numbers = np.zeros(cluster.size, dtype=np.int64)
        attached = _attached(cluster)
        for slot, name in enumerate(cluster.names):
            limits = _limits(cluster.storage.nodes.get(name))
            missing = _missing_driver(cluster, volumes, cluster.storage.nodes.get(name))
            if missing:
                text = f"{missing} CSI driver is not installed on the node"
                reasons.append(Reason(Code.UNSCHEDULABLE, (text,)))
                numbers[slot] = len(reasons)
            elif limits and _is_full(cluster, volumes, slot, limits, attached.get(name, {})):
                numbers[slot] = 1
        numbers = numbers[cycle.rows]
        return Failures(numbers, reasons) if numbers.any() else None


def _is_full(
    cluster: Cluster, volumes: Volumes, slot: int, limits: dict[str, int], attached: Volumes
) -> bool:
    there = dict(attached)
    for pod in cluster.pods_on[slot].values():
        there.update(_volumes_of(cluster, pod))
    for driver, limit in limits.items():
        new = sum(each == driver and volume not in there for volume, each in volumes.items())
        if new and new + sum(each == driver for each in there.values()) > limit:
            return True
    return False


def _limits(node: Object | None) -> dict[str, int]:
    drivers = ((node or {}).get("spec") or {}).get("drivers") or ()
    return {
        each["name"]: each["allocatable"]["count"]
        for each in drivers
        if (each.get("allocatable") or {}).get("count") is not None
    }


def _missing_driver(cluster: Cluster, volumes: Volumes, node: Object | None) -> str:
    present = {each["name"] for each in ((node or {}).get("spec") or {}).get("drivers") or ()}
    for driver in dict.fromkeys(volumes.values()):
        known = cluster.storage.drivers.get(driver)
        must_be_there = known is not None and known["spec"].get("preventPodSchedulingIfMissing")
        if must_be_there and driver not in present:
            return driver
    return ""


def _attached(cluster: Cluster) -> dict[str, Volumes]:
    """Return what is attached to nodes, by their names."""
    attached: dict[str, Volumes] = {}
    for each in cluster.storage.attachments.values():
        spec = each["spec"]
        volume = cluster.storage.volumes.get(spec["source"].get("persistentVolumeName") or "")
        if volume is not None and volume["spec"].get("csi"):
            handle = volume["spec"]["csi"]["volumeHandle"]
            there = attached.setdefault(spec["nodeName"], {})
            there[f"{spec['attacher']}/{handle}"] = spec["attacher"]
    return attached


def _volumes_of(cluster: Cluster, pod: PodInfo) -> Volumes:
    objects = cluster.storage
    volumes: Volumes = {}
    for name, _ in storage.claim_names(pod.obj):
        claim = objects.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            continue
        volume = objects.volumes.get(claim["spec"].get("volumeName") or "")
        csi = volume["spec"].get("csi") if volume is not None else None
        if csi:
            volumes[f"{csi['driver']}/{csi['volumeHandle']}"] = csi["driver"]
        elif volume is None:
            one = objects.classes.get(storage.claim_class(claim))
            if one is not None:
                driver = one["provisioner"]
                volumes[f"{driver}/{pod.namespace}/{name}"] = driver
    return volumes
