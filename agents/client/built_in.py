"""The built-in resources that agents read and write."""

from typing import Final

from kvstack.agents.client.resource_type import ResourceType

_APPS: Final = "apps"
_BATCH: Final = "batch"
_CERTIFICATES: Final = "certificates.k8s.io"
_COORDINATION: Final = "coordination.k8s.io"
_NETWORKING: Final = "networking.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_STORAGE: Final = "storage.k8s.io"

CONFIG_MAPS: Final = ResourceType("", "v1", "configmaps", "ConfigMap")
ENDPOINTS: Final = ResourceType("", "v1", "endpoints", "Endpoints")
EVENTS: Final = ResourceType("", "v1", "events", "Event")
NAMESPACES: Final = ResourceType("", "v1", "namespaces", "Namespace", is_namespaced=False)
NODES: Final = ResourceType("", "v1", "nodes", "Node", is_namespaced=False)
PERSISTENT_VOLUME_CLAIMS: Final = ResourceType(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"
)
PERSISTENT_VOLUMES: Final = ResourceType(
    "", "v1", "persistentvolumes", "PersistentVolume", is_namespaced=False
)
PODS: Final = ResourceType("", "v1", "pods", "Pod")
REPLICATION_CONTROLLERS: Final = ResourceType(
    "", "v1", "replicationcontrollers", "ReplicationController"
)
RESOURCE_QUOTAS: Final = ResourceType("", "v1", "resourcequotas", "ResourceQuota")
SECRETS: Final = ResourceType("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS: Final = ResourceType("", "v1", "serviceaccounts", "ServiceAccount")
SERVICES: Final = ResourceType("", "v1", "services", "Service")

CONTROLLER_REVISIONS: Final = ResourceType(_APPS, "v1", "controllerrevisions", "ControllerRevision")
DAEMON_SETS: Final = ResourceType(_APPS, "v1", "daemonsets", "DaemonSet")
DEPLOYMENTS: Final = ResourceType(_APPS, "v1", "deployments", "Deployment")
REPLICA_SETS: Final = ResourceType(_APPS, "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS: Final = ResourceType(_APPS, "v1", "statefulsets", "StatefulSet")

HORIZONTAL_POD_AUTOSCALERS: Final = ResourceType(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
)
CRON_JOBS: Final = ResourceType(_BATCH, "v1", "cronjobs", "CronJob")
JOBS: Final = ResourceType(_BATCH, "v1", "jobs", "Job")
CERTIFICATE_SIGNING_REQUESTS: Final = ResourceType(
    _CERTIFICATES,
    "v1",
    "certificatesigningrequests",
    "CertificateSigningRequest",
    is_namespaced=False,
)
POD_CERTIFICATE_REQUESTS: Final = ResourceType(
    _CERTIFICATES, "v1", "podcertificaterequests", "PodCertificateRequest"
)
LEASES: Final = ResourceType(_COORDINATION, "v1", "leases", "Lease")
ENDPOINT_SLICES: Final = ResourceType("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
NEW_EVENTS: Final = ResourceType("events.k8s.io", "v1", "events", "Event")
NETWORK_POLICIES: Final = ResourceType(_NETWORKING, "v1", "networkpolicies", "NetworkPolicy")
SERVICE_CIDRS: Final = ResourceType(
    _NETWORKING, "v1", "servicecidrs", "ServiceCIDR", is_namespaced=False
)
IP_ADDRESSES: Final = ResourceType(
    _NETWORKING, "v1", "ipaddresses", "IPAddress", is_namespaced=False
)
POD_DISRUPTION_BUDGETS: Final = ResourceType(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"
)
CLUSTER_ROLES: Final = ResourceType(_RBAC, "v1", "clusterroles", "ClusterRole", is_namespaced=False)
PRIORITY_CLASSES: Final = ResourceType(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", is_namespaced=False
)
CSI_DRIVERS: Final = ResourceType(_STORAGE, "v1", "csidrivers", "CSIDriver", is_namespaced=False)
CSI_NODES: Final = ResourceType(_STORAGE, "v1", "csinodes", "CSINode", is_namespaced=False)
CSI_STORAGE_CAPACITIES: Final = ResourceType(
    _STORAGE, "v1", "csistoragecapacities", "CSIStorageCapacity"
)
RUNTIME_CLASSES: Final = ResourceType(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", is_namespaced=False
)
STORAGE_CLASSES: Final = ResourceType(
    _STORAGE, "v1", "storageclasses", "StorageClass", is_namespaced=False
)
VALIDATING_ADMISSION_POLICIES: Final = ResourceType(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    is_namespaced=False,
)
VOLUME_ATTACHMENTS: Final = ResourceType(
    _STORAGE, "v1", "volumeattachments", "VolumeAttachment", is_namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS: Final = ResourceType(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    is_namespaced=False,
)
STORAGE_VERSION_MIGRATIONS: Final = ResourceType(
    "storagemigration.k8s.io",
    "v1",
    "storageversionmigrations",
    "StorageVersionMigration",
    is_namespaced=False,
)
CLUSTER_TRUST_BUNDLES: Final = ResourceType(
    "certificates.k8s.io",
    "v1",
    "clustertrustbundles",
    "ClusterTrustBundle",
    is_namespaced=False,
)
VOLUME_ATTRIBUTES_CLASSES: Final = ResourceType(
    _STORAGE, "v1", "volumeattributesclasses", "VolumeAttributesClass", is_namespaced=False
)
DEVICE_CLASSES: Final = ResourceType(
    "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", is_namespaced=False
)
DEVICE_TAINT_RULES: Final = ResourceType(
    "resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", is_namespaced=False
)
RESOURCE_SLICES: Final = ResourceType(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", is_namespaced=False
)
RESOURCE_CLAIMS: Final = ResourceType("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES: Final = ResourceType(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"
)
TOKEN_REVIEWS: Final = ResourceType(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", is_namespaced=False
)
SUBJECT_ACCESS_REVIEWS: Final = ResourceType(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    is_namespaced=False,
)
ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, ResourceType))
