"""Volumes that two pods cannot use at once: some disks, and ReadWriteOncePod claims."""

from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from kvstack.agents.scheduler.cycle import (
    SKIP,
    Code,
    Cycle,
    Failures,
    Reason,
    Refusal,
    Skip,
    refuse,
)
from kvstack.agents.scheduler.events.changes import (
    NODE_ADD,
    POD_DELETE,
)
from kvstack.agents.scheduler.events.pods import frees_volume
from kvstack.agents.scheduler.events.storage import is_own_claim
from kvstack.agents.scheduler.plugin import Hints, Plugin, always
from kvstack.agents.scheduler.snapshot import storage
from kvstack.apimachinery.objects.json_object import Object

_DISK: Final = Reason(Code.UNSCHEDULABLE, ("node(s) had no available disk",))
_IN_USE: Final = Reason(
    Code.UNSCHEDULABLE,
    (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode"
        " already in-use by another pod",
    ),
)


class VolumeRestrictions(Plugin):
    """Pods run where their disks are not in use."""

    name = "VolumeRestrictions"
    hints: ClassVar[Hints] = {
        POD_DELETE: frees_volume,
        NODE_ADD: always,
        "PersistentVolumeClaimAdd": is_own_claim,
    }

    @override
    def pre_filter(self, cycle: Cycle) -> Skip | Refusal | None:
        pod, objects = cycle.pod, cycle.cluster.storage
        volumes = pod.spec.get("volumes") or ()
        disks = [volume for volume in volumes if any(volume.get(kind) for kind in storage.DISKS)]
        single: list[str] = []
        for volume in volumes:
            if not volume.get("persistentVolumeClaim"):
                continue
            name = volume["persistentVolumeClaim"]["claimName"]
            claim = objects.claims.get(f"{pod.namespace}/{name}")
            if claim is None:
                text = f'persistentvolumeclaim "{name}" not found'
                return Refusal(Code.UNRESOLVABLE, text)
            if "ReadWriteOncePod" in (claim["spec"].get("accessModes") or ()):
                single.append(name)
        if not disks and not single:
            return SKIP
        cycle.states[self.name] = (disks, frozenset(single))
        return None

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        disks, single = cycle.states[self.name]
        cluster = cycle.cluster
        is_refused = np.zeros(cluster.size, dtype=np.bool_)
        if single and self._is_in_use(cycle, single):
            is_refused[:] = True
            return refuse(is_refused[cycle.rows], _IN_USE)
        for slot, pods in enumerate(cluster.pods_on):
            is_refused[slot] = any(
                _conflict(disk, volume)
                for other in pods.values()
                for volume in other.spec.get("volumes") or ()
                for disk in disks
            )
        return refuse(is_refused[cycle.rows], _DISK)

    def _is_in_use(self, cycle: Cycle, claims: frozenset[str]) -> bool:
        return any(
            name in claims
            for other in cycle.cluster.pods.values()
            if other.namespace == cycle.pod.namespace
            for name, _ in storage.claim_names(other.obj)
        )


def _conflict(one: Object, other: Object) -> bool:
    for kind in storage.DISKS:
        mine, theirs = one.get(kind), other.get(kind)
        if mine and theirs:
            return bool(_SAME[kind](mine, theirs))
    return False


def _both_read_only(one: Object, other: Object) -> bool:
    return bool(one.get("readOnly") and other.get("readOnly"))


def _same_rbd(one: Object, other: Object) -> bool:
    return (
        not set(one.get("monitors") or ()).isdisjoint(other.get("monitors") or ())
        and (one.get("pool") or "rbd") == (other.get("pool") or "rbd")
        and one.get("image") == other.get("image")
        and not _both_read_only(one, other)
    )


_SAME: Final = {
    "gcePersistentDisk": lambda one, other: (
        one["pdName"] == other["pdName"] and not _both_read_only(one, other)
    ),
    "awsElasticBlockStore": lambda one, other: one["volumeID"] == other["volumeID"],
    "iscsi": lambda one, other: one["iqn"] == other["iqn"] and not _both_read_only(one, other),
    "rbd": _same_rbd,
}
"""By kind: whether two volumes conflict on a node."""
