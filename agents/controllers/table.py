"""All controllers, one row a line, in the order in which they are started.

    controllers(Options())                    those that are on by default
    controllers(options, "*,-hpa,+x")         as `--controllers` says

A row names its controller as a text, `module:name`: only the modules of controllers that run are
imported. A test makes each of them.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from kvstack.agents.controllers.options import Options
from kvstack.agents.reconcile.plan import Controller


class Entry(NamedTuple):
    """One controller."""

    name: str
    """With its suffix `-controller`."""
    factory: str
    """The factory, in a module of this package that is imported on first use."""
    aliases: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    """Arguments of the factory: fields of `Options`, or of modules (`zoneinfo:ZoneInfo`)."""
    needs: str = ""
    """A field of `Options` without which there is nothing to do; empty: none is needed."""
    is_on_by_default: bool = True

    def make(self, options: Options) -> Controller | None:
        """Return the controller; None where the options leave nothing to do."""
        if self.needs and not getattr(options, self.needs):
            return None
        given = [_load(each) if ":" in each else getattr(options, each) for each in self.takes]
        controller: Controller = _load(f".{self.factory}")(*given)
        return controller


def _load(location: str) -> Any:  # noqa: ANN401  # rows differ in what they name
    """Return what `module:name` names; a module that begins with a dot is one of this package."""
    module, _, name = location.partition(":")
    return getattr(import_module(module, __package__), name)


CONTROLLERS: Final = (
    Entry("serviceaccount-controller", "cluster.service_accounts:ServiceAccountController", ("serviceaccount",)),
    Entry("root-ca-certificate-publisher-controller", "cluster.root_ca:RootCaPublisher", ("root-ca-cert-publisher", "root-ca-certificate-publisher"), takes=("root_ca",), needs="root_ca"),
    Entry("namespace-controller", "cluster.namespaces:NamespaceController", ("namespace",)),
    Entry("garbage-collector-controller", "cluster.garbage.collector:GarbageCollector", ("garbagecollector",), takes=("unread_kinds",)),
    Entry("endpoints-controller", "network.endpoints:EndpointsController", ("endpoint", "endpoints")),
    Entry("endpointslice-controller", "network.slices.service_slices:ServiceSlices", ("endpointslice",), takes=("endpoints_per_slice_max",)),
    Entry("endpointslice-mirroring-controller", "network.slices.mirroring:Mirroring", ("endpointslicemirroring", "endpointslice-mirroring"), takes=("mirrored_addresses_max",)),
    Entry("node-lifecycle-controller", "nodes.lifecycle:NodeLifecycle", ("nodelifecycle", "node-lifecycle"), takes=("nodes",)),
    Entry("node-ipam-controller", "nodes.ranges:NodeRangeController", ("nodeipam", "node-ipam"), takes=("node_ranges",), needs="node_ranges"),
    Entry("taint-eviction-controller", "nodes.taint_eviction:TaintEviction", ("taint-eviction",)),
    Entry("pod-garbage-collector-controller", "nodes.pod_garbage:PodGarbageCollector", ("podgc", "pod-garbage-collector"), takes=("terminated_pods_max",)),
    Entry("ttl-controller", "nodes.ttl:TtlController", ("ttl",)),
    Entry("serviceaccount-token-controller", "cluster.account_tokens:AccountTokens", ("serviceaccount-token",), takes=("service_account_key", "root_ca"), needs="service_account_key"),
    Entry("resourcequota-controller", "cluster.resource_quotas:ResourceQuotaController", ("resourcequota",), takes=("quota_sync_period_s",)),
    Entry("clusterrole-aggregation-controller", "cluster.role_aggregation:RoleAggregation", ("clusterrole-aggregation",)),
    Entry("validatingadmissionpolicy-status-controller", "cluster.policy_status:PolicyStatus", ("validatingadmissionpolicy-status",)),
    Entry("certificatesigningrequest-approving-controller", "cluster.certificates.controllers:Approver", ("csrapproving", "certificatesigningrequest-approving")),
    Entry("certificatesigningrequest-signing-controller", "cluster.certificates.controllers:Signer", ("csrsigning", "certificatesigningrequest-signing"), takes=("signers", "signing_duration_s"), needs="signers"),
    Entry("certificatesigningrequest-cleaner-controller", "cluster.certificates.controllers:Cleaner", ("csrcleaner", "certificatesigningrequest-cleaner")),
    Entry("podcertificaterequest-cleaner-controller", "cluster.certificates.pod_requests:PodRequestCleaner"),
    Entry("bootstrap-signer-controller", "cluster.bootstrap_tokens:BootstrapSigner", ("bootstrapsigner",), is_on_by_default=False),
    Entry("token-cleaner-controller", "cluster.bootstrap_tokens:TokenCleaner", ("tokencleaner",), is_on_by_default=False),
    Entry("persistentvolume-binder-controller", "storage.binder:VolumeBinder", ("persistentvolume-binder",), takes=("volumes",)),
    Entry("persistentvolumeclaim-protection-controller", "storage.protection:ClaimProtection", ("pvc-protection", "persistentvolumeclaim-protection")),
    Entry("persistentvolume-protection-controller", "storage.protection:VolumeProtection", ("pv-protection", "persistentvolume-protection")),
    Entry("volumeattributesclass-protection-controller", "storage.attributes_classes:AttributesClassProtection"),
    Entry("persistentvolume-attach-detach-controller", "storage.attachments:AttachDetach", ("attachdetach",), takes=("volumes",)),
    Entry("ephemeral-volume-controller", "storage.ephemeral_volumes:EphemeralVolumes", ("ephemeral-volume",)),
    Entry("persistentvolume-expander-controller", "storage.expansion:Expander", ("persistentvolume-expander",)),
    Entry("service-cidr-controller", "network.service_ranges:ServiceRanges", ("service-cidr",)),
    Entry("storage-version-migrator-controller", "cluster.storage_migration:StorageVersionMigrator", ("svm", "storage-version-migrator")),
    Entry("kube-apiserver-serving-clustertrustbundle-publisher-controller", "cluster.trust_bundles:TrustBundlePublisher", ("kube-apiserver-serving-clustertrustbundle-publisher",), takes=("root_ca",), needs="root_ca"),
    Entry("legacy-serviceaccount-token-cleaner-controller", "cluster.legacy_tokens:LegacyTokenCleaner", ("legacy-service-account-token-cleaner", "legacy-serviceaccount-token-cleaner"), takes=("unused_token_s",)),
    Entry("resourceclaim-controller", "workloads.resource_claims:ResourceClaimController", ("resource-claim-controller", "resourceclaim")),
    Entry("replicaset-controller", "workloads.replica_sets:ReplicaController", ("replicaset",), takes=(".workloads.replica_sets:REPLICA_SET",)),
    Entry("replicationcontroller-controller", "workloads.replica_sets:ReplicaController", ("replicationcontroller",), takes=(".workloads.replica_sets:REPLICATION_CONTROLLER",)),
    Entry("deployment-controller", "workloads.deployments.controller:DeploymentController", ("deployment",)),
    Entry("statefulset-controller", "workloads.stateful_sets.controller:StatefulSetController", ("statefulset",)),
    Entry("daemonset-controller", "workloads.daemon_sets.controller:DaemonSetController", ("daemonset",)),
    Entry("job-controller", "workloads.jobs.controller:JobController", ("job",)),
    Entry("cronjob-controller", "workloads.jobs.cron_jobs:CronJobController", ("cronjob",), takes=("zoneinfo:ZoneInfo", "local_zone")),
    Entry("ttl-after-finished-controller", "workloads.jobs.ttl_after_finished:TtlAfterFinishedController", ("ttl-after-finished",)),
    Entry("disruption-controller", "workloads.disruption:DisruptionController", ("disruption",)),
    Entry("horizontal-pod-autoscaler-controller", "workloads.autoscaling.controller:AutoscalerController", ("horizontal-pod-autoscaler", "horizontalpodautoscaling"), takes=("autoscaler",)),
)  # fmt: skip


class Absent(NamedTuple):
    """A controller of upstream that is not here: its names are taken, and nothing is run."""

    name: str
    why: str
    """What users miss without it."""
    aliases: tuple[str, ...] = ()


ABSENT: Final = (
    Absent(
        "cloud-node-lifecycle-controller",
        "of a cloud provider; runs in a cloud controller manager",
        ("cloud-node-lifecycle",),
    ),
    Absent(
        "device-taint-eviction-controller",
        "pods stay on devices that get the taint NoExecute; the scheduler heeds such taints",
    ),
    Absent("node-route-controller", "of a cloud provider", ("route",)),
    Absent("podgroup-protection-controller", "behind a feature gate that is off upstream, too"),
    Absent(
        "resourcepoolstatusrequest-controller", "behind a feature gate that is off upstream, too"
    ),
    Absent(
        "selinux-warning-controller",
        "off by default upstream; no events of pods whose SELinux labels conflict",
    ),
    Absent("service-lb-controller", "of a cloud provider", ("service",)),
    Absent(
        "storageversion-garbage-collector-controller",
        "behind a feature gate that is off upstream, too",
        ("storage-version-gc",),
    ),
)


PARTS_ABSENT: Final = (
    Absent(
        "persistentvolume-binder-controller",
        "volumes of `hostPath` below `/tmp` are not deleted, and none is recycled (`Recycle`)",
    ),
)
"""Features that the controllers here lack."""


class UnknownControllerError(ValueError):
    """`--controllers` names what is none."""


_KNOWN: Final = {
    name: entry.name for entry in CONTROLLERS for name in (entry.name, *entry.aliases)
} | {name: absent.name for absent in ABSENT for name in (absent.name, *absent.aliases)}


def check_names(chosen: str) -> list[str]:
    """Return what `--controllers` names, with its signs; raises UnknownControllerError."""
    wanted = [each.strip() for each in chosen.split(",") if each.strip()]
    for each in wanted:
        name = each.removeprefix("+") if not each.startswith("-") else each[1:]
        if each != "*" and name not in _KNOWN:
            raise UnknownControllerError(f'"{name}" is not in the list of known controllers')
    return wanted


def controllers(options: Options | None = None, chosen: str = "*") -> Sequence[Controller]:
    """Return the chosen controllers; raises UnknownControllerError."""
    options = options or Options()
    wanted = check_names(chosen)
    on = {_KNOWN[each.removeprefix("+")] for each in wanted if each[0] not in "*-"}
    off = {_KNOWN[each[1:]] for each in wanted if each.startswith("-")}
    made: list[Controller] = []
    for entry in CONTROLLERS:
        is_on = entry.name in on or ("*" in wanted and entry.is_on_by_default)
        if is_on and entry.name not in off and (controller := entry.make(options)) is not None:
            made.append(controller)
    return made
