"""Every flag of kube-controller-manager 1.37: name, kind, default, effect, help.

No checking across flags here; see `manager.settings`.
"""

from typing import Final

from kvstack.agents.process.flag_rows import (
    AUTHENTICATION,
    AUTHORIZATION,
    CLIENT,
    OBSERVATION,
    leader_election,
    page_flags,
)
from kvstack.apimachinery.well_known import (
    CLIENT_SIGNER,
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
    LEGACY_SIGNER,
)
from kvstack.component.flags.component_flags import SHORT
from kvstack.component.flags.flag_table import (
    BOOL,
    DURATION,
    FLOAT,
    IGNORED,
    INT,
    LIST,
    LIVE,
    TEXT,
    FlagTable,
    flag_group,
)

WORKERS: Final = {
    "concurrent-cron-job-syncs": ("cronjob-controller", 5),
    "concurrent-daemonset-syncs": ("daemonset-controller", 2),
    "concurrent-deployment-syncs": ("deployment-controller", 5),
    "concurrent-disruption-syncs": ("disruption-controller", 1),
    "concurrent-endpoint-syncs": ("endpoints-controller", 5),
    "concurrent-ephemeralvolume-syncs": ("ephemeral-volume-controller", 5),
    "concurrent-gc-syncs": ("garbage-collector-controller", 20),
    "concurrent-horizontal-pod-autoscaler-syncs": ("horizontal-pod-autoscaler-controller", 5),
    "concurrent-job-syncs": ("job-controller", 5),
    "concurrent-namespace-syncs": ("namespace-controller", 10),
    "concurrent-rc-syncs": ("replicationcontroller-controller", 5),
    "concurrent-replicaset-syncs": ("replicaset-controller", 5),
    "concurrent-resource-quota-syncs": ("resourcequota-controller", 5),
    "concurrent-resourceclaim-syncs": ("resourceclaim-controller", 50),
    "concurrent-service-endpoint-syncs": ("endpointslice-controller", 5),
    "concurrent-serviceaccount-token-syncs": ("serviceaccount-token-controller", 5),
    "concurrent-statefulset-syncs": ("statefulset-controller", 5),
    "concurrent-ttl-after-finished-syncs": ("ttl-after-finished-controller", 5),
    "concurrent-validating-admission-policy-status-syncs": (
        "validatingadmissionpolicy-status-controller",
        5,
    ),
    "mirroring-concurrent-service-endpoint-syncs": ("endpointslice-mirroring-controller", 5),
}
"""Flag → the controller whose number of workers it sets, and the default."""

SIGNERS: Final = {
    "kube-apiserver-client": CLIENT_SIGNER,
    "kubelet-client": KUBELET_CLIENT_SIGNER,
    "kubelet-serving": KUBELET_SERVING_SIGNER,
    "legacy-unknown": LEGACY_SIGNER,
}
"""Signers as flags name them → the signer's name."""


_GENERIC_FLAGS: Final = flag_group(
    "Generic",
    ("controllers", LIST, "*", LIVE, "controllers to run: * all that are on by default, name this one, -name not this one"),
    ("kube-api-qps", FLOAT, "20", LIVE, "requests per second of each controller"),
    ("kube-api-burst", INT, "30", LIVE, "burst of requests of each controller"),
    ("use-service-account-credentials", BOOL, "false", LIVE, "run each controller with its own service account"),
    ("kube-api-content-type", TEXT, "application/vnd.kubernetes.protobuf", IGNORED, ""),
    ("controller-start-interval", DURATION, "0s", IGNORED, ""),
    ("enable-leader-migration", BOOL, "false", IGNORED, ""),
    ("leader-migration-config", TEXT, "", IGNORED, ""),
    ("min-resync-period", DURATION, "12h0m0s", IGNORED, ""),
    ("cluster-name", TEXT, "kubernetes", IGNORED, ""),
    ("allow-untagged-cloud", BOOL, "false", IGNORED, ""),
    ("cloud-config", TEXT, "", IGNORED, ""),
    ("cloud-provider", TEXT, "", IGNORED, ""),
    ("configure-cloud-routes", BOOL, "true", IGNORED, ""),
    ("external-cloud-volume-plugin", TEXT, "", IGNORED, ""),
    ("route-reconciliation-period", DURATION, "10s", IGNORED, ""),
)  # fmt: skip

_NODE_FLAGS: Final = flag_group(
    "Nodes",
    ("allocate-node-cidrs", BOOL, "false", LIVE, "allocate a range of pod addresses to each node"),
    ("cluster-cidr", TEXT, "", LIVE, "ranges of pod addresses, comma-separated"),
    ("service-cluster-ip-range", TEXT, "", LIVE, "ranges of cluster IPs; never allocated to nodes"),
    ("node-cidr-mask-size", INT, "0", LIVE, "mask size of a node's range; default 24 or 64"),
    ("node-cidr-mask-size-ipv4", INT, "0", LIVE, "mask size of a node's IPv4 range; default 24"),
    ("node-cidr-mask-size-ipv6", INT, "0", LIVE, "mask size of a node's IPv6 range; default 64"),
    ("cidr-allocator-type", TEXT, "RangeAllocator", IGNORED, ""),
    ("node-monitor-period", DURATION, "5s", LIVE, "interval of checks of node status"),
    ("node-monitor-grace-period", DURATION, "50s", LIVE, "time without a heartbeat after which a node is not ready"),
    ("node-startup-grace-period", DURATION, "1m0s", LIVE, "the same for a node that has just started"),
    ("node-eviction-rate", FLOAT, "0.1", LIVE, "unready nodes per second and zone whose pods are evicted"),
    ("secondary-node-eviction-rate", FLOAT, "0.01", LIVE, "the same in a large zone with many unready nodes"),
    ("large-cluster-size-threshold", INT, "50", LIVE, "number of nodes from which a zone is large"),
    ("unhealthy-zone-threshold", FLOAT, "0.55", LIVE, "fraction of unready nodes from which a zone is unhealthy"),
    ("terminated-pod-gc-threshold", INT, "12500", LIVE, "number of terminated pods that are kept; 0 or less: all"),
    ("node-sync-period", DURATION, "0s", IGNORED, ""),
)  # fmt: skip

_SIGNING_FLAGS: Final = flag_group(
    "Signing",
    ("root-ca-file", TEXT, "", LIVE, "CA certificates for the ConfigMaps kube-root-ca.crt"),
    ("service-account-private-key-file", TEXT, "", LIVE, "key that signs tokens of Secrets; empty: none are made"),
    ("cluster-signing-cert-file", TEXT, "", LIVE, "CA certificate of all signers"),
    ("cluster-signing-key-file", TEXT, "", LIVE, "key of that CA certificate"),
    *(
        (f'cluster-signing-{signer}-{part}-file', TEXT, "", LIVE, f'{about} of the signer {name}')
        for signer, name in SIGNERS.items()
        for part, about in (('cert', 'CA certificate'), ('key', 'key of the CA certificate'))
    ),
    ("cluster-signing-duration", DURATION, "8760h0m0s", LIVE, "maximum lifetime of certificates"),
    ("legacy-service-account-token-clean-up-period", DURATION, "8760h0m0s", LIVE, "time after which unused tokens of Secrets are deleted"),
)  # fmt: skip

_OTHER_FLAGS: Final = (
    *flag_group(
        "Generic",
        ("enable-garbage-collector", BOOL, "true", LIVE, "delete objects whose owners are gone"),
        ("resource-quota-sync-period", DURATION, "5m0s", LIVE, "interval of full recounts of quotas"),
    ),
    *flag_group(
        "Services",
        ("max-endpoints-per-slice", INT, "100", LIVE, "maximum number of endpoints in a slice"),
        ("mirroring-max-endpoints-per-subset", INT, "1000", LIVE, "maximum number of mirrored endpoints of a subset"),
        ("endpoint-updates-batch-period", DURATION, "0s", IGNORED, ""),
        ("endpointslice-updates-batch-period", DURATION, "0s", IGNORED, ""),
        ("mirroring-endpointslice-updates-batch-period", DURATION, "0s", IGNORED, ""),
    ),
    *flag_group(
        "Autoscaler",
        ("horizontal-pod-autoscaler-sync-period", DURATION, "15s", LIVE, "interval of autoscaling"),
        ("horizontal-pod-autoscaler-downscale-stabilization", DURATION, "5m0s", LIVE, "time for which the highest recommendation is kept before scaling down"),
        ("horizontal-pod-autoscaler-tolerance", FLOAT, "0.1", LIVE, "relative difference that does not cause scaling"),
        ("horizontal-pod-autoscaler-cpu-initialization-period", DURATION, "5m0s", LIVE, "time after a pod's start in which its CPU samples may be ignored"),
        ("horizontal-pod-autoscaler-initial-readiness-delay", DURATION, "30s", LIVE, "time after a pod's start in which a change of readiness is its initial one"),
    ),
    *flag_group(
        "Generic",
        ("namespace-sync-period", DURATION, "5m0s", IGNORED, ""),
    ),
    *flag_group(
        "Volumes",
        ("attach-detach-reconcile-sync-period", DURATION, "1m0s", IGNORED, ""),
        ("disable-attach-detach-reconcile-sync", BOOL, "false", IGNORED, ""),
        ("disable-force-detach-on-timeout", BOOL, "false", LIVE, "do not force-detach volumes from unready nodes"),
        ("enable-dynamic-provisioning", BOOL, "true", LIVE, "provision volumes for claims dynamically"),
        ("enable-hostpath-provisioner", BOOL, "false", IGNORED, ""),
        ("flex-volume-plugin-dir", TEXT, "", IGNORED, ""),
        ("pv-recycler-increment-timeout-nfs", INT, "30", IGNORED, ""),
        ("pv-recycler-minimum-timeout-hostpath", INT, "60", IGNORED, ""),
        ("pv-recycler-minimum-timeout-nfs", INT, "300", IGNORED, ""),
        ("pv-recycler-pod-template-filepath-hostpath", TEXT, "", IGNORED, ""),
        ("pv-recycler-pod-template-filepath-nfs", TEXT, "", IGNORED, ""),
        ("pv-recycler-timeout-increment-hostpath", INT, "30", IGNORED, ""),
        ("pvclaimbinder-sync-period", DURATION, "15s", LIVE, "interval of checks of pending claims"),
    ),
)  # fmt: skip

_WORKER_FLAGS: Final = flag_group(
    "Workers",
    *(
        (name, INT, str(default), LIVE, f'keys of the {controller} at once')
        for name, (controller, default) in WORKERS.items()
    ),
    ("concurrent-device-taint-eviction-syncs", INT, "8", IGNORED, ""),
)  # fmt: skip

TABLE: Final = FlagTable(
    (
        *_GENERIC_FLAGS,
        *CLIENT,
        *page_flags(10257),
        *AUTHENTICATION,
        *AUTHORIZATION,
        *leader_election("kube-controller-manager"),
        *_NODE_FLAGS,
        *_SIGNING_FLAGS,
        *_OTHER_FLAGS,
        *_WORKER_FLAGS,
        *OBSERVATION,
    ),
    SHORT,
)
