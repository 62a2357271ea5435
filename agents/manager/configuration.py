"""The flags of a controller manager as /configz shows them, a KubeControllerManagerConfiguration.

    --node-monitor-period=5s    →  KubeCloudShared.NodeMonitorPeriod: "5s"

The kind is kubecontrollermanager.config.k8s.io/v1alpha1, whose fields have the names of upstream's
structs. Fields of upstream's without a flag are left out.
"""

from typing import Any, Final

from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.flags.flag_table import Kind

NAME: Final = "kubecontrollermanager.config.k8s.io"

_SIGNER: Final = "CSRSigningController.{}SignerConfiguration.{}File"
_AUTOSCALER: Final = "HPAController.HorizontalPodAutoscaler"
_VOLUMES: Final = "PersistentVolumeBinderController.VolumeConfiguration"
_RECYCLER: Final = f"{_VOLUMES}.PersistentVolumeRecyclerConfiguration"
_SIGNERS: Final = {
    "KubeletServing": "kubelet-serving",
    "KubeletClient": "kubelet-client",
    "KubeAPIServerClient": "kube-apiserver-client",
    "LegacyUnknown": "legacy-unknown",
}
FIELDS: Final = {
    "Generic.MinResyncPeriod": "min-resync-period",
    "Generic.ClientConnection.kubeconfig": "kubeconfig",
    "Generic.ClientConnection.contentType": "kube-api-content-type",
    "Generic.ClientConnection.qps": "kube-api-qps",
    "Generic.ClientConnection.burst": "kube-api-burst",
    "Generic.ControllerStartInterval": "controller-start-interval",
    "Generic.LeaderElection.leaderElect": "leader-elect",
    "Generic.LeaderElection.leaseDuration": "leader-elect-lease-duration",
    "Generic.LeaderElection.renewDeadline": "leader-elect-renew-deadline",
    "Generic.LeaderElection.retryPeriod": "leader-elect-retry-period",
    "Generic.LeaderElection.resourceLock": "leader-elect-resource-lock",
    "Generic.LeaderElection.resourceName": "leader-elect-resource-name",
    "Generic.LeaderElection.resourceNamespace": "leader-elect-resource-namespace",
    "Generic.Controllers": "controllers",
    "Generic.Debugging.enableProfiling": "profiling",
    "Generic.Debugging.enableContentionProfiling": "contention-profiling",
    "Generic.LeaderMigrationEnabled": "enable-leader-migration",
    "KubeCloudShared.CloudProvider.Name": "cloud-provider",
    "KubeCloudShared.CloudProvider.CloudConfigFile": "cloud-config",
    "KubeCloudShared.ExternalCloudVolumePlugin": "external-cloud-volume-plugin",
    "KubeCloudShared.UseServiceAccountCredentials": "use-service-account-credentials",
    "KubeCloudShared.AllowUntaggedCloud": "allow-untagged-cloud",
    "KubeCloudShared.RouteReconciliationPeriod": "route-reconciliation-period",
    "KubeCloudShared.NodeMonitorPeriod": "node-monitor-period",
    "KubeCloudShared.ClusterName": "cluster-name",
    "KubeCloudShared.ClusterCIDR": "cluster-cidr",
    "KubeCloudShared.AllocateNodeCIDRs": "allocate-node-cidrs",
    "KubeCloudShared.CIDRAllocatorType": "cidr-allocator-type",
    "KubeCloudShared.ConfigureCloudRoutes": "configure-cloud-routes",
    "KubeCloudShared.NodeSyncPeriod": "node-sync-period",
    "AttachDetachController.DisableAttachDetachReconcilerSync": (
        "disable-attach-detach-reconcile-sync"
    ),
    "AttachDetachController.ReconcilerSyncLoopPeriod": "attach-detach-reconcile-sync-period",
    "AttachDetachController.DisableForceDetachOnTimeout": "disable-force-detach-on-timeout",
    "CSRSigningController.ClusterSigningCertFile": "cluster-signing-cert-file",
    "CSRSigningController.ClusterSigningKeyFile": "cluster-signing-key-file",
    "CSRSigningController.ClusterSigningDuration": "cluster-signing-duration",
    **{
        _SIGNER.format(name, part.title()): f"cluster-signing-{flag}-{part}-file"
        for name, flag in _SIGNERS.items()
        for part in ("cert", "key")
    },
    "DaemonSetController.ConcurrentDaemonSetSyncs": "concurrent-daemonset-syncs",
    "DeploymentController.ConcurrentDeploymentSyncs": "concurrent-deployment-syncs",
    "StatefulSetController.ConcurrentStatefulSetSyncs": "concurrent-statefulset-syncs",
    "EndpointController.ConcurrentEndpointSyncs": "concurrent-endpoint-syncs",
    "EndpointController.EndpointUpdatesBatchPeriod": "endpoint-updates-batch-period",
    "EndpointSliceController.ConcurrentServiceEndpointSyncs": "concurrent-service-endpoint-syncs",
    "EndpointSliceController.MaxEndpointsPerSlice": "max-endpoints-per-slice",
    "EndpointSliceController.EndpointUpdatesBatchPeriod": "endpointslice-updates-batch-period",
    "EndpointSliceMirroringController.MirroringConcurrentServiceEndpointSyncs": (
        "mirroring-concurrent-service-endpoint-syncs"
    ),
    "EndpointSliceMirroringController.MirroringMaxEndpointsPerSubset": (
        "mirroring-max-endpoints-per-subset"
    ),
    "EndpointSliceMirroringController.MirroringEndpointUpdatesBatchPeriod": (
        "mirroring-endpointslice-updates-batch-period"
    ),
    "EphemeralVolumeController.ConcurrentEphemeralVolumeSyncs": "concurrent-ephemeralvolume-syncs",
    "GarbageCollectorController.EnableGarbageCollector": "enable-garbage-collector",
    "GarbageCollectorController.ConcurrentGCSyncs": "concurrent-gc-syncs",
    "HPAController.ConcurrentHorizontalPodAutoscalerSyncs": (
        "concurrent-horizontal-pod-autoscaler-syncs"
    ),
    f"{_AUTOSCALER}SyncPeriod": "horizontal-pod-autoscaler-sync-period",
    f"{_AUTOSCALER}DownscaleStabilizationWindow": (
        "horizontal-pod-autoscaler-downscale-stabilization"
    ),
    f"{_AUTOSCALER}Tolerance": "horizontal-pod-autoscaler-tolerance",
    f"{_AUTOSCALER}CPUInitializationPeriod": "horizontal-pod-autoscaler-cpu-initialization-period",
    f"{_AUTOSCALER}InitialReadinessDelay": "horizontal-pod-autoscaler-initial-readiness-delay",
    "JobController.ConcurrentJobSyncs": "concurrent-job-syncs",
    "CronJobController.ConcurrentCronJobSyncs": "concurrent-cron-job-syncs",
    "LegacySATokenCleaner.CleanUpPeriod": "legacy-service-account-token-clean-up-period",
    "NamespaceController.NamespaceSyncPeriod": "namespace-sync-period",
    "NamespaceController.ConcurrentNamespaceSyncs": "concurrent-namespace-syncs",
    "NodeIPAMController.ServiceCIDR": "service-cluster-ip-range",
    "NodeIPAMController.NodeCIDRMaskSize": "node-cidr-mask-size",
    "NodeIPAMController.NodeCIDRMaskSizeIPv4": "node-cidr-mask-size-ipv4",
    "NodeIPAMController.NodeCIDRMaskSizeIPv6": "node-cidr-mask-size-ipv6",
    "NodeLifecycleController.NodeEvictionRate": "node-eviction-rate",
    "NodeLifecycleController.SecondaryNodeEvictionRate": "secondary-node-eviction-rate",
    "NodeLifecycleController.NodeStartupGracePeriod": "node-startup-grace-period",
    "NodeLifecycleController.NodeMonitorGracePeriod": "node-monitor-grace-period",
    "NodeLifecycleController.LargeClusterSizeThreshold": "large-cluster-size-threshold",
    "NodeLifecycleController.UnhealthyZoneThreshold": "unhealthy-zone-threshold",
    "PersistentVolumeBinderController.PVClaimBinderSyncPeriod": "pvclaimbinder-sync-period",
    f"{_VOLUMES}.EnableHostPathProvisioning": "enable-hostpath-provisioner",
    f"{_VOLUMES}.EnableDynamicProvisioning": "enable-dynamic-provisioning",
    f"{_VOLUMES}.FlexVolumePluginDir": "flex-volume-plugin-dir",
    f"{_RECYCLER}.MinimumTimeoutNFS": "pv-recycler-minimum-timeout-nfs",
    f"{_RECYCLER}.PodTemplateFilePathNFS": "pv-recycler-pod-template-filepath-nfs",
    f"{_RECYCLER}.IncrementTimeoutNFS": "pv-recycler-increment-timeout-nfs",
    f"{_RECYCLER}.PodTemplateFilePathHostPath": "pv-recycler-pod-template-filepath-hostpath",
    f"{_RECYCLER}.MinimumTimeoutHostPath": "pv-recycler-minimum-timeout-hostpath",
    f"{_RECYCLER}.IncrementTimeoutHostPath": "pv-recycler-timeout-increment-hostpath",
    "PodGCController.TerminatedPodGCThreshold": "terminated-pod-gc-threshold",
    "ReplicaSetController.ConcurrentRSSyncs": "concurrent-replicaset-syncs",
    "ReplicationController.ConcurrentRCSyncs": "concurrent-rc-syncs",
    "ResourceQuotaController.ResourceQuotaSyncPeriod": "resource-quota-sync-period",
    "ResourceQuotaController.ConcurrentResourceQuotaSyncs": "concurrent-resource-quota-syncs",
    "SAController.ServiceAccountKeyFile": "service-account-private-key-file",
    "SAController.ConcurrentSATokenSyncs": "concurrent-serviceaccount-token-syncs",
    "SAController.RootCAFile": "root-ca-file",
    "TTLAfterFinishedController.ConcurrentTTLSyncs": "concurrent-ttl-after-finished-syncs",
    "ValidatingAdmissionPolicyStatusController.ConcurrentPolicySyncs": (
        "concurrent-validating-admission-policy-status-syncs"
    ),
}
"""Field, by its path from the root → the flag with its value."""


def configz(command_line: CommandLine) -> Object:
    """Return what /configz shows, by name."""
    kinds = {flag.name: flag.kind for flag in command_line.table.flags}
    root: Object = {"kind": "KubeControllerManagerConfiguration", "apiVersion": f"{NAME}/v1alpha1"}
    for field, flag in FIELDS.items():
        *path, last = field.split(".")
        place = root
        for each in path:
            place = place.setdefault(each, {})
        value: Any = command_line[flag]
        place[last] = durations.text(value) if kinds[flag] is Kind.DURATION else value
    return {NAME: root}
