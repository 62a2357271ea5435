"""Writes of a kubelet to pods: its own mirror pods, and the status of pods on it."""

from collections.abc import Mapping
from typing import Any, Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import NODES, PODS
from kvstack.apimachinery.objects.core.pod_references import (
    config_map_names,
    is_mirror,
    secret_names,
)
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import MIRROR_ANNOTATION
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.policy.admission.request import CREATE, DELETE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import ObjectView

_CLAIM: Final = "io.k8s.api.core.v1.PersistentVolumeClaim"
_POD_STATUS: Final = "io.k8s.api.core.v1.PodStatus"
_OF_CLAIM_STATUS: Final = (
    "capacity",
    "conditions",
    "allocatedResourceStatuses",
    "allocatedResources",
)
"""Fields of a claim's status that kubelets write."""
_FIXED_STATUS: Final = {
    "resourceClaimStatuses": "resource claim statues",
    "extendedResourceClaimStatus": "extended resource claim status",
    "nodeAllocatableResourceClaimStatuses": "node allocatable resource claim statuses",
}
"""Fields about a pod's devices that others write, and upstream's name for them."""
_VOLUME_REFERENCES: Final = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_PROJECTED_REFERENCES: Final = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}
_FREE_VOLUMES: Final = frozenset(
    (
        "awsElasticBlockStore", "azureDisk", "cephfs", "cinder", "downwardAPI", "emptyDir", "fc",
        "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "hostPath", "image", "iscsi",
        "nfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos",
        "vsphereVolume",
    )
)  # fmt: skip
"""Volumes that refer to no API object besides Secrets, which are checked separately."""


class PodRestriction:
    """Checks writes of pods."""

    def __init__(self, view: ObjectView) -> None:
        self._view: Final = view

    def check(self, node: str, request: AdmissionRequest) -> None:
        """Refuse a write of a pod that is not on the node; raises ApiError."""
        match request.subresource:
            case "":
                self._check_pod(node, request)
            case "status":
                _check_status(node, request)
            case "eviction":
                self._check_eviction(node, request)
            case other:
                raise request.forbidden(
                    f"unexpected pod subresource {quote(other)}, only 'status' and 'eviction' are"
                    " allowed"
                )

    def _check_pod(self, node: str, request: AdmissionRequest) -> None:
        if request.operation == CREATE:
            self._check_create(node, request)
        elif request.operation == DELETE:
            if _node_of(find_pod(self._view, request.namespace, request.name)) != node:
                raise request.forbidden(
                    f"node {quote(node)} can only delete pods with spec.nodeName set to itself"
                )
        else:
            raise request.forbidden(
                f"unexpected operation {quote(request.operation)}, node {quote(node)} can only"
                " create and delete mirror pods"
            )

    def _check_create(self, node: str, request: AdmissionRequest) -> None:
        pod, node_text = request.new, quote(node)
        if not is_mirror(pod):
            raise request.forbidden(
                f"pod does not have {quote(MIRROR_ANNOTATION)} annotation,"
                f" node {node_text} can only create mirror pods"
            )
        if _node_of(pod) != node:
            message = f"node {node_text} can only create pods with spec.nodeName set to itself"
            raise request.forbidden(message)
        if problem := self._owner_problem(node, pod):
            raise request.forbidden(problem)
        if reference := api_reference(pod):
            raise request.forbidden(
                f"node {node_text} can not create pods that reference {reference}"
            )

    def _owner_problem(self, node: str, pod: Object) -> str:
        can = f"node {quote(node)} can only create pods with"
        owners = pod["metadata"].get("ownerReferences") or []
        if len(owners) > 1:
            return f"{can} a single owner reference set to itself"
        owner_keys = [
            (each.get("apiVersion"), each.get("kind"), each.get("name")) for each in owners
        ]
        if owner_keys != [("v1", "Node", node)]:
            return f"{can} an owner reference set to itself"
        (owner,) = owners
        if not owner.get("controller"):
            return f"{can} a controller owner reference set to itself"
        if owner.get("blockOwnerDeletion"):
            return f"node {quote(node)} must not set blockOwnerDeletion on an owner reference"
        uid = find_node(self._view, node)["metadata"].get("uid", "")
        if owner.get("uid", "") != uid:
            return f"node {node} UID mismatch: expected {owner.get('uid', '')} got {uid}"
        return ""

    def _check_eviction(self, node: str, request: AdmissionRequest) -> None:
        if request.operation != CREATE:
            raise request.forbidden(f"unexpected operation {request.operation}")
        name = request.name or (request.new.get("metadata") or {}).get("name", "")
        if not name:
            raise request.forbidden("could not determine pod from request data")
        if _node_of(find_pod(self._view, request.namespace, name)) != node:
            message = f"node {node} can only evict pods with spec.nodeName set to itself"
            raise request.forbidden(message)


def check_claim(node: str, request: AdmissionRequest) -> None:
    """Refuse a write of a claim, except of the size in its status; raises ApiError."""
    if request.subresource != "status":
        raise request.forbidden("may only update PVC status")
    if request.operation != UPDATE:
        raise request.forbidden(f"unexpected operation {quote(request.operation)}")
    if not same(_compared(request.new), _compared(request.old or {}), _CLAIM):
        raise request.forbidden(
            f"node {quote(node)} is not allowed to update fields other than status.quantity and"
            " status.conditions"
        )


def find_pod(view: ObjectView, namespace: str, name: str) -> Object:
    """Return a pod; raises ApiError 404."""
    pod = view.get(PODS, namespace, name)
    if pod is None:
        raise status.not_found(GroupResource("", "pod"), name)
    return pod


def find_node(view: ObjectView, name: str) -> Object:
    """Return a node; raises ApiError 404."""
    node = view.get(NODES, "", name)
    if node is None:
        raise status.not_found(GroupResource("", "node"), name)
    return node


def api_reference(pod: Object) -> str:
    """Return the resource that a pod refers to; empty: none."""
    spec = pod.get("spec") or {}
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if any(secret_names(pod)):
        return "secrets"
    if any(config_map_names(pod)):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    found = (_volume_reference(each) for each in spec.get("volumes") or ())
    return next((each for each in found if each), "")


def _volume_reference(volume: Mapping[str, Any]) -> str:
    kinds = [name for name, source in volume.items() if name != "name" and source is not None]
    for kind in kinds:
        if kind in _VOLUME_REFERENCES:
            return _VOLUME_REFERENCES[kind]
        if kind == "projected":
            return _projected_reference(volume[kind])
        if kind not in _FREE_VOLUMES:
            return f"an unknown type of volume {quote(volume['name'])}"
    return ""


def _projected_reference(projected: Mapping[str, Any]) -> str:
    for source in projected.get("sources") or ():
        for kind, value in source.items():
            if value is not None and kind != "downwardAPI":
                return _PROJECTED_REFERENCES.get(kind, f"an unknown source {quote(kind)}")
    return ""


def _check_status(node: str, request: AdmissionRequest) -> None:
    node_text, old, new = quote(node), request.old or {}, request.new
    if request.operation != UPDATE:
        raise request.forbidden(f"unexpected operation {quote(request.operation)}")
    if _node_of(old) != node:
        raise request.forbidden(
            f"node {node_text} can only update pod status for pods with spec.nodeName set to itself"
        )
    labels, old_labels = (each["metadata"].get("labels") or {} for each in (new, old))
    if labels != old_labels:
        raise request.forbidden(f"node {node_text} cannot update labels through pod status")
    new_status, known = (each.get("status") or {} for each in (new, old))
    for member, words in _FIXED_STATUS.items():
        if not same({member: new_status.get(member)}, {member: known.get(member)}, _POD_STATUS):
            raise request.forbidden(f"node {node_text} cannot update {words}")


def _node_of(pod: Mapping[str, Any]) -> str:
    name: str = (pod.get("spec") or {}).get("nodeName") or ""
    return name


def _compared(claim: Mapping[str, Any]) -> Object:
    """Return the part of a claim that kubelets must not change."""
    metadata = {
        name: value
        for name, value in (claim.get("metadata") or {}).items()
        if name not in {"resourceVersion", "managedFields"}
    }
    conditions = {
        name: value
        for name, value in (claim.get("status") or {}).items()
        if name not in _OF_CLAIM_STATUS
    }
    return {**claim, "metadata": metadata, "status": conditions}
