"""The objects of local-path: its StorageClass, its volumes, and supported claims."""

from pathlib import Path
from typing import Final

from kvstack.agents.client.built_in import PERSISTENT_VOLUMES, STORAGE_CLASSES
from kvstack.agents.controllers.storage.volume_rules import PROVISIONED_BY, class_of
from kvstack.agents.kubelet.hollow import nodes as hollow
from kvstack.agents.kubelet.node import node as node_labels
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import DEFAULT_STORAGE_CLASS_ANNOTATION, HOSTNAME_LABEL

CLASS: Final = "local-path"
PROVISIONER: Final = "kvstack.io/local-path"
FINALIZER: Final = "kvstack.io/local-path"
"""The finalizer of a volume whose directory is still to be removed."""
HOLLOW_DIRECTORY: Final = Path("/var/lib/kvstack-hollow-volumes")
"""The parent directory in volumes of hollow nodes; it is never created."""
_ACCESS_MODES: Final = ("ReadWriteOnce", "ReadWriteOncePod")


def storage_class(*, is_default: bool) -> Object:
    """Return the class that is made at start, unless there is one of its name."""
    meta: Object = {"name": CLASS}
    if is_default:
        meta["annotations"] = {DEFAULT_STORAGE_CLASS_ANNOTATION: "true"}
    labels = (hollow.LABEL, node_labels.LOCAL_PATH)
    return {
        "apiVersion": STORAGE_CLASSES.api_version,
        "kind": STORAGE_CLASSES.kind,
        "metadata": meta,
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
        "allowedTopologies": [
            {"matchLabelExpressions": [{"key": each, "values": ["true"]}]} for each in labels
        ],
    }


def problem_of(claim: Object, storage_class: Object) -> str:
    """Return why a claim cannot have a directory by a class; empty: it can."""
    spec = claim["spec"]
    modes = spec.get("accessModes") or ()
    if other := [each for each in modes if each not in _ACCESS_MODES]:
        return f"access mode {other[0]}: a directory of one node has {' or '.join(_ACCESS_MODES)}"
    if (mode := spec.get("volumeMode") or "Filesystem") != "Filesystem":
        return f"volumeMode {mode}: only Filesystem is supported"
    for field in ("selector", "dataSource", "dataSourceRef"):
        if spec.get(field):
            return f"spec.{field}: directories are made empty, for one claim"
    if parameters := sorted(storage_class.get("parameters") or ()):
        return f"parameter {parameters[0]} of StorageClass {class_of(claim)}: there are none"
    if storage_class.get("mountOptions"):
        return f"mountOptions of StorageClass {class_of(claim)}: a directory is not mounted"
    if storage_class.get("volumeBindingMode") != "WaitForFirstConsumer":
        return f"StorageClass {class_of(claim)} needs volumeBindingMode WaitForFirstConsumer"
    return ""


def name_of(claim: Object) -> str:
    """Return the name of the volume that is made for a claim."""
    return f"pvc-{claim['metadata']['uid']}"


def volume_of(claim: Object, storage_class: Object, node: Object, path: Path) -> Object:
    """Return the volume of a claim; storage_class: its class; path: on the node."""
    meta, spec = claim["metadata"], claim["spec"]
    labels = node["metadata"].get("labels") or {}
    values = [labels.get(HOSTNAME_LABEL, node["metadata"]["name"])]
    term = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": values}]}
    return {
        "apiVersion": PERSISTENT_VOLUMES.api_version,
        "kind": PERSISTENT_VOLUMES.kind,
        "metadata": {
            "name": name_of(claim),
            "annotations": {PROVISIONED_BY: PROVISIONER},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
            "storageClassName": class_of(claim),
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }
