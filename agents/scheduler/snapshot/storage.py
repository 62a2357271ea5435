"""Volumes, claims and classes in the scheduler's snapshot."""

from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import (
    BETA_REGION_LABEL,
    BETA_ZONE_LABEL,
    REGION_LABEL,
    STORAGE_CLASS_ANNOTATION,
    ZONE_LABEL,
)

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT: Final = "WaitForFirstConsumer"
BETA: Final = "failure-domain.beta.kubernetes.io/"
STABLE: Final = "topology.kubernetes.io/"
ZONE_LABELS: Final = (BETA_ZONE_LABEL, BETA_REGION_LABEL, ZONE_LABEL, REGION_LABEL)
DISKS: Final = ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")
"""Volumes that a pod names itself and that not every other pod may use meanwhile."""


class Storage:
    """The storage objects of the cluster, by name or `namespace/name`."""

    def __init__(self) -> None:
        self.volumes: Final[dict[str, Object]] = {}
        self.claims: Final[dict[str, Object]] = {}
        self.classes: Final[dict[str, Object]] = {}
        self.nodes: Final[dict[str, Object]] = {}
        """CSINodes."""
        self.drivers: Final[dict[str, Object]] = {}
        self.capacities: Final[dict[str, Object]] = {}
        self.attachments: Final[dict[str, Object]] = {}


def claim_class(claim: Object) -> str:
    """Return the name of a claim's class; empty: none."""
    annotations = claim["metadata"].get("annotations") or {}
    old = annotations.get(STORAGE_CLASS_ANNOTATION)
    return old if old is not None else claim["spec"].get("storageClassName") or ""


def volume_class(volume: Object) -> str:
    """Return the name of a volume's class; empty: none."""
    annotations = volume["metadata"].get("annotations") or {}
    old = annotations.get(STORAGE_CLASS_ANNOTATION)
    return old if old is not None else volume["spec"].get("storageClassName") or ""


def claim_names(pod: Object) -> list[tuple[str, bool]]:
    """Return the claims a pod names, and whether each is made for it alone (ephemeral)."""
    names: list[tuple[str, bool]] = []
    for volume in pod["spec"].get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim:
            names.append((claim["claimName"], False))
        elif volume.get("ephemeral"):
            names.append((f"{pod['metadata']['name']}-{volume['name']}", True))
    return names
