"""Well-known labels, annotations, taints, finalizers, signers and types that several modules know.

A name that one module alone needs is stated there. What is here is stated nowhere else:
`tests/unit/test_shared_names.py`.
"""

from typing import Final

# Labels and an annotation of nodes.
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
OS_LABEL: Final = "kubernetes.io/os"
ARCH_LABEL: Final = "kubernetes.io/arch"
INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
CONTROL_PLANE_LABEL: Final = "node-role.kubernetes.io/control-plane"
BETA_OS_LABEL: Final = "beta.kubernetes.io/os"
BETA_ARCH_LABEL: Final = "beta.kubernetes.io/arch"
BETA_INSTANCE_TYPE_LABEL: Final = "beta.kubernetes.io/instance-type"
BETA_ZONE_LABEL: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION_LABEL: Final = "failure-domain.beta.kubernetes.io/region"
MASTER_LABEL: Final = "node-role.kubernetes.io/master"
"""The name of CONTROL_PLANE_LABEL before Kubernetes 1.20."""
ATTACHED_BY_CONTROLLER_ANNOTATION: Final = "volumes.kubernetes.io/controller-managed-attach-detach"
"""Of a node whose volumes the controller attaches."""

# Taints of nodes.
NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
MEMORY_PRESSURE_TAINT: Final = "node.kubernetes.io/memory-pressure"
DISK_PRESSURE_TAINT: Final = "node.kubernetes.io/disk-pressure"
PID_PRESSURE_TAINT: Final = "node.kubernetes.io/pid-pressure"
NETWORK_UNAVAILABLE_TAINT: Final = "node.kubernetes.io/network-unavailable"
OUT_OF_SERVICE_TAINT: Final = "node.kubernetes.io/out-of-service"

# Annotations of pods.
CONFIG_SOURCE_ANNOTATION: Final = "kubernetes.io/config.source"
CONFIG_HASH_ANNOTATION: Final = "kubernetes.io/config.hash"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""Of a pod that a kubelet runs from a file and only shows here: the uid that it has there."""
DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
SECCOMP_POD_ANNOTATION: Final = "seccomp.security.alpha.kubernetes.io/pod"

# Services and what belongs to them.
SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
"""Of an EndpointSlice: the name of its Service."""
HEADLESS_LABEL: Final = "service.kubernetes.io/headless"
"""Of headless Services, and of their slices."""
TOPOLOGY_MODE_ANNOTATION: Final = "service.kubernetes.io/topology-mode"
TOPOLOGY_HINTS_ANNOTATION: Final = "service.kubernetes.io/topology-aware-hints"
SLICE_MANAGED_BY_LABEL: Final = "endpointslice.kubernetes.io/managed-by"
SKIP_MIRROR_LABEL: Final = "endpointslice.kubernetes.io/skip-mirror"
ENDPOINTS_MANAGED_BY_LABEL: Final = "endpoints.kubernetes.io/managed-by"
ENDPOINTS_TRIGGER_TIME_ANNOTATION: Final = "endpoints.kubernetes.io/last-change-trigger-time"
"""When the change came for which an EndpointSlice or Endpoints was written."""
ENDPOINTS_LEADER_ANNOTATION: Final = "control-plane.alpha.kubernetes.io/leader"
IP_ADDRESS_MANAGED_BY_LABEL: Final = "ipaddress.kubernetes.io/managed-by"
INGRESS_CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
DEFAULT_INGRESS_CLASS_ANNOTATION: Final = "ingressclass.kubernetes.io/is-default-class"

# Storage and devices.
STORAGE_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
DEFAULT_STORAGE_CLASS_ANNOTATION: Final = "storageclass.kubernetes.io/is-default-class"
BETA_DEFAULT_STORAGE_CLASS_ANNOTATION: Final = "storageclass.beta.kubernetes.io/is-default-class"
STORAGE_PROVISIONER_ANNOTATION: Final = "volume.kubernetes.io/storage-provisioner"
"""Of a claim: the provisioner that the binder has chosen."""
SELECTED_NODE_ANNOTATION: Final = "volume.kubernetes.io/selected-node"
BIND_COMPLETED_ANNOTATION: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER_ANNOTATION: Final = "pv.kubernetes.io/bound-by-controller"

# Finalizers.
ORPHAN_FINALIZER: Final = "orphan"
FOREGROUND_FINALIZER: Final = "foregroundDeletion"
CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER: Final = "kubernetes.io/pv-protection"
ATTRIBUTES_CLASS_FINALIZER: Final = "kubernetes.io/vac-protection"
DEVICE_CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"

# Credentials and certificates.
SERVICE_ACCOUNT_TOKEN_TYPE: Final = "kubernetes.io/service-account-token"
BOOTSTRAP_TOKEN_TYPE: Final = "bootstrap.kubernetes.io/token"
SERVICE_ACCOUNT_NAME_ANNOTATION: Final = "kubernetes.io/service-account.name"
SERVICE_ACCOUNT_UID_ANNOTATION: Final = "kubernetes.io/service-account.uid"
TOKEN_LAST_USED_LABEL: Final = "kubernetes.io/legacy-token-last-used"
TOKEN_INVALID_SINCE_LABEL: Final = "kubernetes.io/legacy-token-invalid-since"
MOUNTABLE_SECRETS_ANNOTATION: Final = "kubernetes.io/enforce-mountable-secrets"
NODE_NAME_EXTRA: Final = "authentication.kubernetes.io/node-name"
CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
LEGACY_SIGNER: Final = "kubernetes.io/legacy-unknown"

# Any object.
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
LAST_APPLIED_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
INITIAL_EVENTS_END_ANNOTATION: Final = "k8s.io/initial-events-end"
"""Of the bookmark that ends the initial events of a watch."""
