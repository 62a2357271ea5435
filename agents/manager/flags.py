"""Every flag of kube-controller-manager 1.37: name, type, default, what it does here, help.

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
from kvstack.apiserver.server.settings.component_flags import SHORT
from kvstack.apiserver.server.settings.flag_table import Effect, Flag, FlagTable, Kind

_GENERIC: Final = "Generic"
_NODES: Final = "Nodes"
_SIGNING: Final = "Signing"
_VOLUMES: Final = "Volumes"
_AUTOSCALER: Final = "Autoscaler"

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


def _live(name: str, group: str, kind: Kind, default: str, told: str) -> Flag:
    return Flag(name, group, kind, default, Effect.LIVE, told)


def _ignored(name: str, group: str, kind: Kind, default: str = "") -> Flag:
    return Flag(name, group, kind, default, Effect.IGNORED)


_GENERIC_FLAGS: Final = (
    _live(
        "controllers",
        _GENERIC,
        Kind.LIST,
        "*",
        "*: all that are on by default; name or +name: this one; -name: not this one",
    ),
    _live("kube-api-qps", _GENERIC, Kind.FLOAT, "20", "requests a second of each controller"),
    _live("kube-api-burst", _GENERIC, Kind.INT, "30", "and so many at once"),
    _live(
        "use-service-account-credentials",
        _GENERIC,
        Kind.BOOL,
        "false",
        "each controller is a service account of its own",
    ),
    _ignored("kube-api-content-type", _GENERIC, Kind.TEXT, "application/vnd.kubernetes.protobuf"),
    _ignored("controller-start-interval", _GENERIC, Kind.DURATION, "0s"),
    _ignored("enable-leader-migration", _GENERIC, Kind.BOOL, "false"),
    _ignored("leader-migration-config", _GENERIC, Kind.TEXT),
    _ignored("min-resync-period", _GENERIC, Kind.DURATION, "12h0m0s"),
    _ignored("cluster-name", _GENERIC, Kind.TEXT, "kubernetes"),
    _ignored("allow-untagged-cloud", _GENERIC, Kind.BOOL, "false"),
    _ignored("cloud-config", _GENERIC, Kind.TEXT),
    _ignored("cloud-provider", _GENERIC, Kind.TEXT),
    _ignored("configure-cloud-routes", _GENERIC, Kind.BOOL, "true"),
    _ignored("external-cloud-volume-plugin", _GENERIC, Kind.TEXT),
    _ignored("route-reconciliation-period", _GENERIC, Kind.DURATION, "10s"),
)

_NODE_FLAGS: Final = (
    _live(
        "allocate-node-cidrs",
        _NODES,
        Kind.BOOL,
        "false",
        "give every node a range of pod addresses",
    ),
    _live("cluster-cidr", _NODES, Kind.TEXT, "", "ranges of all pod addresses, comma-separated"),
    _live(
        "service-cluster-ip-range",
        _NODES,
        Kind.TEXT,
        "",
        "ranges of cluster IPs, which nodes are not given",
    ),
    _live("node-cidr-mask-size", _NODES, Kind.INT, "0", "of a node's range; default 24 or 64"),
    _live("node-cidr-mask-size-ipv4", _NODES, Kind.INT, "0", "of a node's range; default 24"),
    _live("node-cidr-mask-size-ipv6", _NODES, Kind.INT, "0", "of a node's range; default 64"),
    _ignored("cidr-allocator-type", _NODES, Kind.TEXT, "RangeAllocator"),
    _live("node-monitor-period", _NODES, Kind.DURATION, "5s", "how often nodes are looked at"),
    _live(
        "node-monitor-grace-period",
        _NODES,
        Kind.DURATION,
        "50s",
        "how long a node may be silent",
    ),
    _live(
        "node-startup-grace-period",
        _NODES,
        Kind.DURATION,
        "1m0s",
        "how long a new node may be silent",
    ),
    _live(
        "node-eviction-rate",
        _NODES,
        Kind.FLOAT,
        "0.1",
        "silent nodes of a zone that are emptied a second",
    ),
    _live(
        "secondary-node-eviction-rate",
        _NODES,
        Kind.FLOAT,
        "0.01",
        "the same, where many nodes of a large zone are silent",
    ),
    _live("large-cluster-size-threshold", _NODES, Kind.INT, "50", "nodes of a large zone"),
    _live(
        "unhealthy-zone-threshold",
        _NODES,
        Kind.FLOAT,
        "0.55",
        "share of silent nodes from which a zone is unhealthy",
    ),
    _live(
        "terminated-pod-gc-threshold",
        _NODES,
        Kind.INT,
        "12500",
        "ended pods that are kept; 0 or less: all",
    ),
    _ignored("node-sync-period", _NODES, Kind.DURATION, "0s"),
)

_SIGNING_FLAGS: Final = (
    _live("root-ca-file", _SIGNING, Kind.TEXT, "", "authorities that pods are to believe"),
    _live(
        "service-account-private-key-file",
        _SIGNING,
        Kind.TEXT,
        "",
        "key of the tokens in Secrets; empty: none are made",
    ),
    _live("cluster-signing-cert-file", _SIGNING, Kind.TEXT, "", "authority of all signers"),
    _live("cluster-signing-key-file", _SIGNING, Kind.TEXT, "", "key of that authority"),
    *(
        _live(
            f"cluster-signing-{signer}-{part}-file",
            _SIGNING,
            Kind.TEXT,
            "",
            f"{told} of the signer {name} alone",
        )
        for signer, name in SIGNERS.items()
        for part, told in (("cert", "authority"), ("key", "key of the authority"))
    ),
    _live(
        "cluster-signing-duration",
        _SIGNING,
        Kind.DURATION,
        "8760h0m0s",
        "how long certificates last at most",
    ),
    _live(
        "legacy-service-account-token-clean-up-period",
        _SIGNING,
        Kind.DURATION,
        "8760h0m0s",
        "how long tokens in Secrets are kept that nobody uses",
    ),
)

_OTHER_FLAGS: Final = (
    _live(
        "enable-garbage-collector",
        _GENERIC,
        Kind.BOOL,
        "true",
        "delete what belongs to objects that are gone",
    ),
    _live(
        "resource-quota-sync-period",
        _GENERIC,
        Kind.DURATION,
        "5m0s",
        "how often quotas are counted anew",
    ),
    _live("max-endpoints-per-slice", "Services", Kind.INT, "100", "endpoints of a slice"),
    _live(
        "mirroring-max-endpoints-per-subset",
        "Services",
        Kind.INT,
        "1000",
        "endpoints of a subset that are mirrored",
    ),
    _ignored("endpoint-updates-batch-period", "Services", Kind.DURATION, "0s"),
    _ignored("endpointslice-updates-batch-period", "Services", Kind.DURATION, "0s"),
    _ignored("mirroring-endpointslice-updates-batch-period", "Services", Kind.DURATION, "0s"),
    _live(
        "horizontal-pod-autoscaler-sync-period",
        _AUTOSCALER,
        Kind.DURATION,
        "15s",
        "how often targets are looked at",
    ),
    _live(
        "horizontal-pod-autoscaler-downscale-stabilization",
        _AUTOSCALER,
        Kind.DURATION,
        "5m0s",
        "how long the highest recommendation is remembered",
    ),
    _live(
        "horizontal-pod-autoscaler-tolerance",
        _AUTOSCALER,
        Kind.FLOAT,
        "0.1",
        "difference that changes nothing",
    ),
    _live(
        "horizontal-pod-autoscaler-cpu-initialization-period",
        _AUTOSCALER,
        Kind.DURATION,
        "5m0s",
        "how long CPU samples of new pods may be left out",
    ),
    _live(
        "horizontal-pod-autoscaler-initial-readiness-delay",
        _AUTOSCALER,
        Kind.DURATION,
        "30s",
        "how long a change of readiness counts as the first",
    ),
    _ignored("namespace-sync-period", _GENERIC, Kind.DURATION, "5m0s"),
    _ignored("attach-detach-reconcile-sync-period", _VOLUMES, Kind.DURATION, "1m0s"),
    _ignored("disable-attach-detach-reconcile-sync", _VOLUMES, Kind.BOOL, "false"),
    _ignored("disable-force-detach-on-timeout", _VOLUMES, Kind.BOOL, "false"),
    _live(
        "enable-dynamic-provisioning",
        _VOLUMES,
        Kind.BOOL,
        "true",
        "provisioners are asked for the volumes of claims",
    ),
    _ignored("enable-hostpath-provisioner", _VOLUMES, Kind.BOOL, "false"),
    _ignored("flex-volume-plugin-dir", _VOLUMES, Kind.TEXT),
    _ignored("pv-recycler-increment-timeout-nfs", _VOLUMES, Kind.INT, "30"),
    _ignored("pv-recycler-minimum-timeout-hostpath", _VOLUMES, Kind.INT, "60"),
    _ignored("pv-recycler-minimum-timeout-nfs", _VOLUMES, Kind.INT, "300"),
    _ignored("pv-recycler-pod-template-filepath-hostpath", _VOLUMES, Kind.TEXT),
    _ignored("pv-recycler-pod-template-filepath-nfs", _VOLUMES, Kind.TEXT),
    _ignored("pv-recycler-timeout-increment-hostpath", _VOLUMES, Kind.INT, "30"),
    _live(
        "pvclaimbinder-sync-period",
        _VOLUMES,
        Kind.DURATION,
        "15s",
        "how often claims that wait are looked at",
    ),
)

_WORKER_FLAGS: Final = (
    *(
        _live(name, "Workers", Kind.INT, str(default), f"keys of the {controller} at once")
        for name, (controller, default) in WORKERS.items()
    ),
    _ignored("concurrent-device-taint-eviction-syncs", "Workers", Kind.INT, "8"),
)

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
