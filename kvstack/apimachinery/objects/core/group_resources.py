"""Resources that plugins are about."""

from typing import Final

from kvstack.apimachinery.objects.groups import GroupResource

CLAIMS: Final = GroupResource("", "persistentvolumeclaims")
LIMIT_RANGES: Final = GroupResource("", "limitranges")
NAMESPACES: Final = GroupResource("", "namespaces")
NODES: Final = GroupResource("", "nodes")
PODS: Final = GroupResource("", "pods")
QUOTAS: Final = GroupResource("", "resourcequotas")
SERVICES: Final = GroupResource("", "services")
SERVICE_ACCOUNTS: Final = GroupResource("", "serviceaccounts")
VOLUMES: Final = GroupResource("", "persistentvolumes")

ATTRIBUTES_CLASSES: Final = GroupResource("storage.k8s.io", "volumeattributesclasses")
INGRESSES: Final = GroupResource("networking.k8s.io", "ingresses")
INGRESS_CLASSES: Final = GroupResource("networking.k8s.io", "ingressclasses")
PRIORITY_CLASSES: Final = GroupResource("scheduling.k8s.io", "priorityclasses")
RUNTIME_CLASSES: Final = GroupResource("node.k8s.io", "runtimeclasses")
SIGNING_REQUESTS: Final = GroupResource("certificates.k8s.io", "certificatesigningrequests")
STORAGE_CLASSES: Final = GroupResource("storage.k8s.io", "storageclasses")
TRUST_BUNDLES: Final = GroupResource("certificates.k8s.io", "clustertrustbundles")

CSI_NODES: Final = GroupResource("storage.k8s.io", "csinodes")
LEASES: Final = GroupResource("coordination.k8s.io", "leases")
POD_CERTIFICATES: Final = GroupResource("certificates.k8s.io", "podcertificaterequests")
RESOURCE_SLICES: Final = GroupResource("resource.k8s.io", "resourceslices")
DEVICE_CLAIMS: Final = GroupResource("resource.k8s.io", "resourceclaims")
