"""The objects that a node has to read for a pod on it, and for a volume.

    references_of_pod(pod)   → {("secrets", "a", "db"), ("persistentvolumeclaims", "a", "data"), …}

A mirror pod gives its node nothing: nodes must not be able to grant themselves access by creating
pods.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvstack.apimachinery.objects.core.pod_references import (
    config_map_names,
    is_mirror,
    secret_names,
)

Obj = Mapping[str, Any]
Key = tuple[str, str, str]
"""Resource, namespace ("": none) and name."""

CLAIMS: Final = "persistentvolumeclaims"
CONFIG_MAPS: Final = "configmaps"
DEVICE_CLAIMS: Final = "resourceclaims"
PODS: Final = "pods"
SECRETS: Final = "secrets"
SERVICE_ACCOUNTS: Final = "serviceaccounts"

_SECRET_REFERENCES: Final[Mapping[str, tuple[str, ...]]] = {
    "cephfs": ("secretRef",),
    "cinder": ("secretRef",),
    "csi": ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"),
    "flexVolume": ("secretRef",),
    "iscsi": ("secretRef",),
    "rbd": ("secretRef",),
    "scaleIO": ("secretRef",),
    "storageos": ("secretRef",),
}
"""Fields of the source of a persistent volume that name Secrets which kubelets read."""
_OWN_NAMESPACE: Final = frozenset(("cinder", "csi", "storageos"))
"""Sources whose references never default to the namespace of the claim."""


def references_of_pod(pod: Obj) -> frozenset[Key]:
    """Return what the node of a pod may read because of it, besides the pod itself."""
    if is_mirror(pod):
        return frozenset()
    spec, namespace = pod.get("spec") or {}, pod["metadata"]["namespace"]
    references: set[Key] = set()
    if account := spec.get("serviceAccountName"):
        references.add((SERVICE_ACCOUNTS, namespace, account))
    references.update((SECRETS, namespace, each) for each in secret_names(pod))
    references.update((CONFIG_MAPS, namespace, each) for each in config_map_names(pod))
    references.update((CLAIMS, namespace, each) for each in claim_names(pod))
    references.update((DEVICE_CLAIMS, namespace, each) for each in _device_claim_names(pod))
    return frozenset(references)


def claim_of_volume(pod: Obj, volume: Obj) -> str:
    """Return the name of the claim of a pod's volume; empty: none."""
    if (source := volume.get("persistentVolumeClaim")) is not None:
        name: str = source.get("claimName") or ""
        return name
    if volume.get("ephemeral") is not None:
        return f"{pod['metadata']['name']}-{volume['name']}"
    return ""


def claim_names(pod: Obj) -> Iterator[str]:
    """Yield the names of the claims of a pod's volumes."""
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if name := claim_of_volume(pod, volume):
            yield name


def secrets_of_volume(volume: Obj) -> Iterator[Key]:
    """Yield the Secrets that kubelets read to mount a persistent volume."""
    spec = volume.get("spec") or {}
    of_claim = (spec.get("claimRef") or {}).get("namespace", "")
    if (file := spec.get("azureFile")) is not None and (name := file.get("secretName")):
        yield SECRETS, file.get("secretNamespace") or of_claim, name
    for kind, members in _SECRET_REFERENCES.items():
        source = spec.get(kind) or {}
        for member in members:
            reference = source.get(member) or {}
            if name := reference.get("name"):
                default = "" if kind in _OWN_NAMESPACE else of_claim
                yield SECRETS, reference.get("namespace") or default, name


def _device_claim_names(pod: Obj) -> Iterator[str]:
    status = pod.get("status") or {}
    made = {each["name"]: each for each in status.get("resourceClaimStatuses") or ()}
    for each in (pod.get("spec") or {}).get("resourceClaims") or ():
        # For a template, the status names the claim that was made.
        name = each.get("resourceClaimName")
        name = name or made.get(each["name"], {}).get("resourceClaimName")
        if name:
            yield name
    if name := (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"):
        yield name
