"""Every flag of kube-controller-manager 1.37: name, kind, default, what it does here, help.

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
"""Flag → the controller whose keys it says how many of are worked on at once, and the default."""

SIGNERS: Final = {
    "kube-apiserver-client": "kubernetes.io/kube-apiserver-client",
    "kubelet-client": "kubernetes.io/kube-apiserver-client-kubelet",
    "kubelet-serving": "kubernetes.io/kubelet-serving",
    "legacy-unknown": "kubernetes.io/legacy-unknown",
}
"""What flags call a signer → its name."""


_GENERIC_FLAGS: Final = flag_group(
    "Generic",
    ("controllers", LIST, "*", LIVE, "*: all that are on by default; name or +name: this one; -name: not this one"),
    ("kube-api-qps", FLOAT, "20", LIVE, "requests a second of each controller"),
    ("kube-api-burst", INT, "30", LIVE, "and so many at once"),
    ("use-service-account-credentials", BOOL, "false", LIVE, "each controller is a service account of its own"),
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
    ("allocate-node-cidrs", BOOL, "false", LIVE, "give every node a range of pod addresses"),
    ("cluster-cidr", TEXT, "", LIVE, "ranges of all pod addresses, comma-separated"),
    ("service-cluster-ip-range", TEXT, "", LIVE, "ranges of cluster IPs, which nodes are not given"),
    ("node-cidr-mask-size", INT, "0", LIVE, "of a node's range; default 24 or 64"),
    ("node-cidr-mask-size-ipv4", INT, "0", LIVE, "of a node's range; default 24"),
    ("node-cidr-mask-size-ipv6", INT, "0", LIVE, "of a node's range; default 64"),
    ("cidr-allocator-type", TEXT, "RangeAllocator", IGNORED, ""),
    ("node-monitor-period", DURATION, "5s", LIVE, "how often nodes are looked at"),
    ("node-monitor-grace-period", DURATION, "50s", LIVE, "how long a node may be silent"),
    ("node-startup-grace-period", DURATION, "1m0s", LIVE, "how long a new node may be silent"),
    ("node-eviction-rate", FLOAT, "0.1", LIVE, "silent nodes of a zone that are emptied a second"),
    ("secondary-node-eviction-rate", FLOAT, "0.01", LIVE, "the same, where many nodes of a large zone are silent"),
    ("large-cluster-size-threshold", INT, "50", LIVE, "nodes of a large zone"),
    ("unhealthy-zone-threshold", FLOAT, "0.55", LIVE, "share of silent nodes from which a zone is unhealthy"),
    ("terminated-pod-gc-threshold", INT, "12500", LIVE, "ended pods that are kept; 0 or less: all"),
    ("node-sync-period", DURATION, "0s", IGNORED, ""),
)  # fmt: skip

_SIGNING_FLAGS: Final = flag_group(
    "Signing",
    ("root-ca-file", TEXT, "", LIVE, "authorities that pods are to believe"),
    ("service-account-private-key-file", TEXT, "", LIVE, "key of the tokens in Secrets; empty: none are made"),
    ("cluster-signing-cert-file", TEXT, "", LIVE, "authority of all signers"),
    ("cluster-signing-key-file", TEXT, "", LIVE, "key of that authority"),
    *(
        (f'cluster-signing-{signer}-{part}-file', TEXT, "", LIVE, f'{told} of the signer {name} alone')
        for signer, name in SIGNERS.items()
        for part, told in (('cert', 'authority'), ('key', 'key of the authority'))
    ),
    ("cluster-signing-duration", DURATION, "8760h0m0s", LIVE, "how long certificates last at most"),
    ("legacy-service-account-token-clean-up-period", DURATION, "8760h0m0s", LIVE, "how long tokens in Secrets are kept that nobody uses"),
)  # fmt: skip

_OTHER_FLAGS: Final = (
    *flag_group(
        "Generic",
        ("enable-garbage-collector", BOOL, "true", LIVE, "delete what belongs to objects that are gone"),
        ("resource-quota-sync-period", DURATION, "5m0s", LIVE, "how often quotas are counted anew"),
    ),
    *flag_group(
        "Services",
        ("max-endpoints-per-slice", INT, "100", LIVE, "endpoints of a slice"),
        ("mirroring-max-endpoints-per-subset", INT, "1000", LIVE, "endpoints of a subset that are mirrored"),
        ("endpoint-updates-batch-period", DURATION, "0s", IGNORED, ""),
        ("endpointslice-updates-batch-period", DURATION, "0s", IGNORED, ""),
        ("mirroring-endpointslice-updates-batch-period", DURATION, "0s", IGNORED, ""),
    ),
    *flag_group(
        "Autoscaler",
        ("horizontal-pod-autoscaler-sync-period", DURATION, "15s", LIVE, "how often targets are looked at"),
        ("horizontal-pod-autoscaler-downscale-stabilization", DURATION, "5m0s", LIVE, "how long the highest recommendation is remembered"),
        ("horizontal-pod-autoscaler-tolerance", FLOAT, "0.1", LIVE, "difference that changes nothing"),
        ("horizontal-pod-autoscaler-cpu-initialization-period", DURATION, "5m0s", LIVE, "how long CPU samples of new pods may be left out"),
        ("horizontal-pod-autoscaler-initial-readiness-delay", DURATION, "30s", LIVE, "how long a change of readiness counts as the first"),
    ),
    *flag_group(
        "Generic",
        ("namespace-sync-period", DURATION, "5m0s", IGNORED, ""),
    ),
    *flag_group(
        "Volumes",
        ("attach-detach-reconcile-sync-period", DURATION, "1m0s", IGNORED, ""),
        ("disable-attach-detach-reconcile-sync", BOOL, "false", IGNORED, ""),
        ("disable-force-detach-on-timeout", BOOL, "false", LIVE, "volumes that an unready node has mounted stay attached to it"),
        ("enable-dynamic-provisioning", BOOL, "true", LIVE, "provisioners are asked for the volumes of claims"),
        ("enable-hostpath-provisioner", BOOL, "false", IGNORED, ""),
        ("flex-volume-plugin-dir", TEXT, "", IGNORED, ""),
        ("pv-recycler-increment-timeout-nfs", INT, "30", IGNORED, ""),
        ("pv-recycler-minimum-timeout-hostpath", INT, "60", IGNORED, ""),
        ("pv-recycler-minimum-timeout-nfs", INT, "300", IGNORED, ""),
        ("pv-recycler-pod-template-filepath-hostpath", TEXT, "", IGNORED, ""),
        ("pv-recycler-pod-template-filepath-nfs", TEXT, "", IGNORED, ""),
        ("pv-recycler-timeout-increment-hostpath", INT, "30", IGNORED, ""),
        ("pvclaimbinder-sync-period", DURATION, "15s", LIVE, "how often claims that wait are looked at"),
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
