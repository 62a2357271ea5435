"""The hooks of pods and of their subresources.

    pods                       create, update, delete with grace
    pods/status                written by kubelets
    pods/ephemeralcontainers   added to running pods
    pods/resize                cpu and memory of running pods

Binding and eviction are operations, not writes of a pod: see `binding` and `eviction`.
"""

from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.pods import cells, deletion, preparation, validation, warnings
from kvstack.apiserver.kinds.pods.defaults import default_pod
from kvstack.apiserver.kinds.pods.subresources import ephemeral_containers, resize, status
from kvstack.apiserver.kinds.strategy import Deletion, Strategy, TableFormat


def selectable(pod: Object) -> dict[str, str]:
    """Return the selectable fields of a pod."""
    spec, pod_status = pod.get("spec") or {}, pod.get("status") or {}
    addresses = pod_status.get("podIPs")
    return {
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.restartPolicy": spec.get("restartPolicy", ""),
        "spec.schedulerName": spec.get("schedulerName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
        "status.phase": pod_status.get("phase", ""),
        "status.podIP": addresses[0].get("ip", "") if addresses else "",
        "status.nominatedNodeName": pod_status.get("nominatedNodeName", ""),
    }


_STATUS: Final = Strategy(
    default=default_pod,
    prepare_update=status.prepare_update,
    validate_update=status.validate_update,
    update_warnings=status.update_warnings,
    reset_fields=(
        ("spec",),
        ("metadata", "deletionTimestamp"),
        ("metadata", "ownerReferences"),
    ),
)
_EPHEMERAL_CONTAINERS: Final = Strategy(
    default=default_pod,
    prepare_update=ephemeral_containers.prepare_update,
    validate_update=ephemeral_containers.validate_update,
    owned_fields=(("spec", "ephemeralContainers"),),
)
_RESIZE: Final = Strategy(
    default=default_pod,
    prepare_update=resize.prepare_update,
    validate_update=resize.validate_update,
    owned_fields=(
        ("spec", "containers", "*", "resources"),
        ("spec", "containers", "*", "resizePolicy"),
        ("spec", "initContainers", "*", "resources"),
        ("spec", "initContainers", "*", "resizePolicy"),
    ),
)

PODS: Final = Strategy(
    default=default_pod,
    prepare_create=preparation.prepare_create,
    prepare_update=preparation.prepare_update,
    validate=validation.validate,
    validate_update=validation.validate_update,
    warnings=warnings.warnings,
    has_generation=True,
    deletion=Deletion(grace_period=deletion.grace_period),
    reset_fields=(("status",),),
    selectable=selectable,
    cells=cells.cells,
    table=TableFormat(conditions=cells.row_conditions),
    subresources={
        "status": _STATUS,
        "ephemeralcontainers": _EPHEMERAL_CONTAINERS,
        "resize": _RESIZE,
    },
)
