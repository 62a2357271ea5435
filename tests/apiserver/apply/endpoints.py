"""The endpoints of built-in kinds, with the fields that writes to them never own."""

from kvstack.apimachinery.schema.resource import Resource
from kvstack.apiserver.apply.endpoint import Endpoint

SPEC_BESIDE_STATUS = frozenset(
    [
        "CronJob",
        "DaemonSet",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Job",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "ReplicaSet",
        "ReplicationController",
        "ResourceQuota",
        "Service",
        "StatefulSet",
    ]
)
ALL_BESIDE_STATUS = frozenset(
    [
        "APIService",
        "CustomResourceDefinition",
        "DeviceTaintRule",
        "FlowSchema",
        "PodCertificateRequest",
        "PodGroup",
        "PriorityLevelConfiguration",
        "ResourceClaim",
        "ServiceCIDR",
        "StorageVersion",
        "StorageVersionMigration",
        "ValidatingAdmissionPolicy",
        "VolumeAttachment",
        "Workload",
    ]
)
RESET = {
    ("Deployment", "status"): (("spec",), ("metadata", "labels")),
    ("Pod", "status"): (
        ("spec",),
        ("metadata", "deletionTimestamp"),
        ("metadata", "ownerReferences"),
    ),
    ("CertificateSigningRequest", ""): (("status",), ("spec",)),
    ("CertificateSigningRequest", "status"): (("spec",), ("status", "conditions")),
    ("CertificateSigningRequest", "approval"): (("spec",), ("status", "certificate")),
}


def endpoint_of(row: Resource, subresource: str) -> Endpoint:
    """Return the endpoint of a built-in resource or subresource."""
    kind, type_ = row.kind, row.type
    if subresource == "scale":
        below = row.subresources[subresource]
        assert below.type is not None
        kind, type_ = below.kind, below.type
    return Endpoint(
        type_,
        kind.api_version,
        kind.kind,
        subresource=subresource,
        reset_fields=_reset(row, subresource),
    )


def _reset(row: Resource, subresource: str) -> tuple[tuple[str, ...], ...]:
    kind = row.kind.kind
    if (kind, subresource) in RESET:
        return RESET[kind, subresource]
    if not subresource:
        return (("status",),) if "status" in row.subresources else ()
    if subresource == "status" and kind in SPEC_BESIDE_STATUS:
        return (("spec",),)
    if subresource == "status" and kind in ALL_BESIDE_STATUS:
        return (("spec",), ("metadata",))
    return ()
