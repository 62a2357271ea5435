"""Which changes of volumes, claims, classes and drivers matter to a waiting pod.

is_own_claim(pod, change)    a claim that the pod names
is_zoned(pod, change)        a volume that is new, or whose zone is another
lets_more(pod, change)       a driver of a node takes more volumes
"""

from typing import Any, Final

from kvstack.agents.scheduler.events.changes import Change
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.agents.scheduler.snapshot.storage import WAIT, ZONE_LABELS, claim_names
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse

_MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"


def is_own_claim(pod: PodInfo, change: Change) -> bool:
    """Whether a claim is one of a pod, or generated for it."""
    if change.new is None or change.new["metadata"]["namespace"] != pod.namespace:
        return False
    name = change.new["metadata"]["name"]
    return any(name == each for each, _ in claim_names(pod.obj))


def has_claims(pod: PodInfo, _change: Change) -> bool:
    """Whether a pod names claims."""
    return bool(claim_names(pod.obj))


def waits_for_pods(_pod: PodInfo, change: Change) -> bool:
    """Whether the binding mode of a class is WaitForFirstConsumer."""
    return change.new is not None and change.new.get("volumeBindingMode") == WAIT


def has_other_topology(_pod: PodInfo, change: Change) -> bool:
    """Whether the allowed topologies of a class have changed."""
    return _field(change.old, "allowedTopologies") != _field(change.new, "allowedTopologies")


def is_zoned(_pod: PodInfo, change: Change) -> bool:
    """Whether a volume is new, or its labels of zones and regions have changed."""
    return change.old is None or _zones(change.old) != _zones(change.new)


def is_migrated(_pod: PodInfo, change: Change) -> bool:
    """Whether the migrated plugins of a node have changed."""
    return _annotation(change.old, _MIGRATED) != _annotation(change.new, _MIGRATED)


def lets_more(_pod: PodInfo, change: Change) -> bool:
    """Whether the limit of a node's driver was raised or removed."""
    before, now = _counts(change.old), _counts(change.new)
    return any(
        name not in before or (before[name] is not None and (count is None or count > before[name]))
        for name, count in now.items()
    )


def stops_counting(_pod: PodInfo, change: Change) -> bool:
    """Whether a driver's capacity is no longer considered."""
    return _counts_capacity(change.old) and not _counts_capacity(change.new)


def has_more_capacity(_pod: PodInfo, change: Change) -> bool:
    """Whether a driver has more capacity, or a larger maximum, at some nodes."""
    return any(
        _amount(change.new, name) > _amount(change.old, name)
        for name in ("capacity", "maximumVolumeSize")
    )


def _field(obj: Object | None, name: str) -> object:
    return (obj or {}).get(name)


def _annotation(obj: Object | None, name: str) -> object:
    return ((obj or {"metadata": {}})["metadata"].get("annotations") or {}).get(name)


def _zones(volume: Object | None) -> dict[str, str]:
    labels = (volume or {"metadata": {}})["metadata"].get("labels") or {}
    return {key: labels[key] for key in ZONE_LABELS if key in labels}


def _counts(node: Object | None) -> dict[str, Any]:
    """Return how many volumes each driver takes; None: any number."""
    drivers = ((node or {}).get("spec") or {}).get("drivers") or ()
    return {each["name"]: (each.get("allocatable") or {}).get("count") for each in drivers}


def _counts_capacity(driver: Object | None) -> bool:
    return bool(((driver or {}).get("spec") or {}).get("storageCapacity"))


def _amount(obj: Object | None, name: str) -> int:
    return parse((obj or {}).get(name) or "0").value()
