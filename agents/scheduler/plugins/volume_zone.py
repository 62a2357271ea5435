"""Volumes with labels of zones: pods run in the zones of their volumes."""

from typing import TYPE_CHECKING, ClassVar, Final

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
    NODE_LABEL,
)
from kvstack.agents.scheduler.events.storage import is_own_claim, is_zoned, waits_for_pods
from kvstack.agents.scheduler.plugin import Hints, Plugin, always
from kvstack.agents.scheduler.snapshot import storage

if TYPE_CHECKING:
    from kvstack.agents.scheduler.snapshot.columns import BoolArray

_NO_ZONE: Final = Reason(Code.UNRESOLVABLE, ("node(s) had no available volume zone",))


class VolumeZone(Plugin):
    """Pods run in the zones of their volumes."""

    name = "VolumeZone"
    hints: ClassVar[Hints] = {
        **dict.fromkeys(("PersistentVolumeClaimAdd", "PersistentVolumeClaimUpdate"), is_own_claim),
        "StorageClassAdd": waits_for_pods,
        **dict.fromkeys(("PersistentVolumeAdd", "PersistentVolumeUpdate"), is_zoned),
        **dict.fromkeys((NODE_ADD, NODE_LABEL), always),
    }

    @override
    def pre_filter(self, cycle: Cycle) -> Skip | Refusal | None:
        objects = cycle.cluster.storage
        required_labels: list[tuple[str, frozenset[str]]] = []
        for volume in cycle.pod.spec.get("volumes") or ():
            if not volume.get("persistentVolumeClaim"):
                continue
            name = volume["persistentVolumeClaim"]["claimName"]
            claim = objects.claims.get(f"{cycle.pod.namespace}/{name}")
            if claim is None:
                return _refusal(f'persistentvolumeclaim "{name}" not found')
            bound = claim["spec"].get("volumeName")
            if not bound:
                refusal = _unbound(cycle, storage.claim_class(claim))
                if refusal is not None:
                    return refusal
                continue
            found = objects.volumes.get(bound)
            if found is None:
                return _refusal(f'persistentvolume "{bound}" not found')
            labels = found["metadata"].get("labels") or {}
            required_labels += [
                (label, frozenset(labels[label].split("__")))
                for label in storage.ZONE_LABELS
                if label in labels
            ]
        if not required_labels:
            return SKIP
        cycle.states[self.name] = required_labels
        return None

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        wanted: list[tuple[str, frozenset[str]]] = cycle.states[self.name]
        is_refused: BoolArray = np.zeros(cycle.cluster.size, dtype=np.bool_)
        for slot, node in enumerate(cycle.cluster.nodes):
            labels = (node or {}).get("metadata", {}).get("labels") or {}
            if not any(label in labels for label in storage.ZONE_LABELS):
                continue
            for label, values in wanted:
                value = labels.get(label, labels.get(label.replace(storage.BETA, storage.STABLE)))
                if value not in values:
                    is_refused[slot] = True
                    break
        return refuse(is_refused[cycle.rows], _NO_ZONE)


def _unbound(cycle: Cycle, class_name: str) -> Refusal | None:
    if not class_name:
        return _refusal("PersistentVolumeClaim had no pv name and storageClass name")
    found = cycle.cluster.storage.classes.get(class_name)
    if found is None:
        return _refusal(f'storageclass.storage.k8s.io "{class_name}" not found')
    mode = found.get("volumeBindingMode")
    if mode is None:
        return _refusal(f'VolumeBindingMode not set for StorageClass "{class_name}"')
    return None if mode == storage.WAIT else _refusal("PersistentVolume had no name")


def _refusal(text: str) -> Refusal:
    return Refusal(Code.UNRESOLVABLE, text)
