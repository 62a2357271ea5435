"""All controllers, in the order in which they are started.

controllers(Options())                    those that are on by default
controllers(options, "*,-hpa,+x")         as `--controllers` says
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from kvstack.agents.controllers.options import Options
from kvstack.agents.reconcile.plan import Controller

Make: TypeAlias = Callable[[Options], Controller | None]


class Entry(NamedTuple):
    """One controller."""

    name: str
    """With its suffix `-controller`."""
    make: Make
    """Returns None where the options leave nothing to do."""
    aliases: tuple[str, ...] = ()
    is_on_by_default: bool = True


def _deployments(_options: Options) -> Controller:
    from kvstack.agents.controllers.workloads.deployments.controller import DeploymentController

    return DeploymentController()


def _replica_sets(_options: Options) -> Controller:
    from kvstack.agents.controllers.workloads.replica_sets import REPLICA_SET, ReplicaController

    return ReplicaController(REPLICA_SET)


def _replication_controllers(_options: Options) -> Controller:
    from kvstack.agents.controllers.workloads.replica_sets import (
        REPLICATION_CONTROLLER,
        ReplicaController,
    )

    return ReplicaController(REPLICATION_CONTROLLER)


def _stateful_sets(_options: Options) -> Controller:
    from kvstack.agents.controllers.workloads.stateful_sets.controller import StatefulSetController

    return StatefulSetController()


def _daemon_sets(_options: Options) -> Controller:
    from kvstack.agents.controllers.workloads.daemon_sets.controller import DaemonSetController

    return DaemonSetController()


def _jobs(_options: Options) -> Controller:
    from kvstack.agents.controllers.workloads.jobs.controller import JobController

    return JobController()


def _cron_jobs(options: Options) -> Controller:
    from zoneinfo import ZoneInfo

    from kvstack.agents.controllers.workloads.jobs.cron_jobs import CronJobController

    return CronJobController(ZoneInfo, options.local_zone)


def _ttl_after_finished(_options: Options) -> Controller:
    from kvstack.agents.controllers.workloads.jobs.ttl_after_finished import (
        TtlAfterFinishedController,
    )

    return TtlAfterFinishedController()


def _disruption(_options: Options) -> Controller:
    from kvstack.agents.controllers.workloads.disruption import DisruptionController

    return DisruptionController()


def _autoscaler(options: Options) -> Controller:
    from kvstack.agents.controllers.workloads.autoscaling.controller import AutoscalerController

    return AutoscalerController(options.autoscaler)


def _service_accounts(_options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.service_accounts import ServiceAccountController

    return ServiceAccountController()


def _root_ca(options: Options) -> Controller | None:
    from kvstack.agents.controllers.cluster.root_ca import RootCaPublisher

    return RootCaPublisher(options.root_ca) if options.root_ca else None


def _namespaces(_options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.namespaces import NamespaceController

    return NamespaceController()


def _garbage(_options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.garbage.collector import GarbageCollector

    return GarbageCollector()


def _endpoints(_options: Options) -> Controller:
    from kvstack.agents.controllers.network.endpoints import EndpointsController

    return EndpointsController()


def _service_slices(options: Options) -> Controller:
    from kvstack.agents.controllers.network.slices.service_slices import ServiceSlices

    return ServiceSlices(options.endpoints_per_slice_max)


def _mirroring(options: Options) -> Controller:
    from kvstack.agents.controllers.network.slices.mirroring import Mirroring

    return Mirroring(options.mirrored_addresses_max)


def _node_lifecycle(options: Options) -> Controller:
    from kvstack.agents.controllers.nodes.lifecycle import NodeLifecycle

    return NodeLifecycle(options.nodes)


def _taint_eviction(_options: Options) -> Controller:
    from kvstack.agents.controllers.nodes.taint_eviction import TaintEviction

    return TaintEviction()


def _pod_garbage(options: Options) -> Controller:
    from kvstack.agents.controllers.nodes.pod_garbage import PodGarbageCollector

    return PodGarbageCollector(options.terminated_pods_max)


def _ttl(_options: Options) -> Controller:
    from kvstack.agents.controllers.nodes.ttl import TtlController

    return TtlController()


def _resource_quotas(options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.resource_quotas import ResourceQuotaController

    return ResourceQuotaController(options.quota_sync_period_s)


def _account_tokens(options: Options) -> Controller | None:
    from kvstack.agents.controllers.cluster.account_tokens import AccountTokens

    key = options.service_account_key
    return AccountTokens(key, options.root_ca) if key else None


def _role_aggregation(_options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.role_aggregation import RoleAggregation

    return RoleAggregation()


def _policy_status(_options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.policy_status import PolicyStatus

    return PolicyStatus()


def _bootstrap_signer(_options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.bootstrap_tokens import BootstrapSigner

    return BootstrapSigner()


def _token_cleaner(_options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.bootstrap_tokens import TokenCleaner

    return TokenCleaner()


def _request_approver(_options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.certificates.controllers import Approver

    return Approver()


def _request_signer(options: Options) -> Controller | None:
    from kvstack.agents.controllers.cluster.certificates.controllers import Signer

    return Signer(options.signers, options.signing_duration_s) if options.signers else None


def _request_cleaner(_options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.certificates.controllers import Cleaner

    return Cleaner()


def _pod_request_cleaner(_options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.certificates.pod_requests import PodRequestCleaner

    return PodRequestCleaner()


def _volume_binder(options: Options) -> Controller:
    from kvstack.agents.controllers.storage.binder import VolumeBinder

    return VolumeBinder(options.volumes)


def _claim_protection(_options: Options) -> Controller:
    from kvstack.agents.controllers.storage.protection import ClaimProtection

    return ClaimProtection()


def _attributes_class_protection(_options: Options) -> Controller:
    from kvstack.agents.controllers.storage.attributes_classes import AttributesClassProtection

    return AttributesClassProtection()


def _volume_protection(_options: Options) -> Controller:
    from kvstack.agents.controllers.storage.protection import VolumeProtection

    return VolumeProtection()


def _ephemeral_volumes(_options: Options) -> Controller:
    from kvstack.agents.controllers.storage.ephemeral_volumes import EphemeralVolumes

    return EphemeralVolumes()


def _expander(_options: Options) -> Controller:
    from kvstack.agents.controllers.storage.expansion import Expander

    return Expander()


def _service_ranges(_options: Options) -> Controller:
    from kvstack.agents.controllers.network.service_ranges import ServiceRanges

    return ServiceRanges()


def _node_ranges(options: Options) -> Controller | None:
    from kvstack.agents.controllers.nodes.ranges import NodeRangeController

    return NodeRangeController(options.node_ranges) if options.node_ranges else None


def _storage_migration(_options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.storage_migration import StorageVersionMigrator

    return StorageVersionMigrator()


def _trust_bundles(options: Options) -> Controller | None:
    from kvstack.agents.controllers.cluster.trust_bundles import TrustBundlePublisher

    return TrustBundlePublisher(options.root_ca) if options.root_ca else None


def _legacy_tokens(options: Options) -> Controller:
    from kvstack.agents.controllers.cluster.legacy_tokens import LegacyTokenCleaner

    return LegacyTokenCleaner(options.unused_token_s)


def _resource_claims(_options: Options) -> Controller:
    from kvstack.agents.controllers.workloads.resource_claims import ResourceClaimController

    return ResourceClaimController()


CONTROLLERS: Final = (
    Entry("serviceaccount-controller", _service_accounts, ("serviceaccount",)),
    Entry(
        "root-ca-certificate-publisher-controller",
        _root_ca,
        ("root-ca-cert-publisher", "root-ca-certificate-publisher"),
    ),
    Entry("namespace-controller", _namespaces, ("namespace",)),
    Entry("garbage-collector-controller", _garbage, ("garbagecollector",)),
    Entry("endpoints-controller", _endpoints, ("endpoint", "endpoints")),
    Entry("endpointslice-controller", _service_slices, ("endpointslice",)),
    Entry(
        "endpointslice-mirroring-controller",
        _mirroring,
        ("endpointslicemirroring", "endpointslice-mirroring"),
    ),
    Entry("node-lifecycle-controller", _node_lifecycle, ("nodelifecycle", "node-lifecycle")),
    Entry("node-ipam-controller", _node_ranges, ("nodeipam", "node-ipam")),
    Entry("taint-eviction-controller", _taint_eviction, ("taint-eviction",)),
    Entry("pod-garbage-collector-controller", _pod_garbage, ("podgc", "pod-garbage-collector")),
    Entry("ttl-controller", _ttl, ("ttl",)),
    Entry("serviceaccount-token-controller", _account_tokens, ("serviceaccount-token",)),
    Entry("resourcequota-controller", _resource_quotas, ("resourcequota",)),
    Entry("clusterrole-aggregation-controller", _role_aggregation, ("clusterrole-aggregation",)),
    Entry(
        "validatingadmissionpolicy-status-controller",
        _policy_status,
        ("validatingadmissionpolicy-status",),
    ),
    Entry(
        "certificatesigningrequest-approving-controller",
        _request_approver,
        ("csrapproving", "certificatesigningrequest-approving"),
    ),
    Entry(
        "certificatesigningrequest-signing-controller",
        _request_signer,
        ("csrsigning", "certificatesigningrequest-signing"),
    ),
    Entry(
        "certificatesigningrequest-cleaner-controller",
        _request_cleaner,
        ("csrcleaner", "certificatesigningrequest-cleaner"),
    ),
    Entry("podcertificaterequest-cleaner-controller", _pod_request_cleaner),
    Entry("bootstrap-signer-controller", _bootstrap_signer, ("bootstrapsigner",), False),
    Entry("token-cleaner-controller", _token_cleaner, ("tokencleaner",), False),
    Entry("persistentvolume-binder-controller", _volume_binder, ("persistentvolume-binder",)),
    Entry(
        "persistentvolumeclaim-protection-controller",
        _claim_protection,
        ("pvc-protection", "persistentvolumeclaim-protection"),
    ),
    Entry(
        "persistentvolume-protection-controller",
        _volume_protection,
        ("pv-protection", "persistentvolume-protection"),
    ),
    Entry("volumeattributesclass-protection-controller", _attributes_class_protection),
    Entry("ephemeral-volume-controller", _ephemeral_volumes, ("ephemeral-volume",)),
    Entry("persistentvolume-expander-controller", _expander, ("persistentvolume-expander",)),
    Entry("service-cidr-controller", _service_ranges, ("service-cidr",)),
    Entry(
        "storage-version-migrator-controller",
        _storage_migration,
        ("svm", "storage-version-migrator"),
    ),
    Entry(
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        _trust_bundles,
        ("kube-apiserver-serving-clustertrustbundle-publisher",),
    ),
    Entry(
        "legacy-serviceaccount-token-cleaner-controller",
        _legacy_tokens,
        ("legacy-service-account-token-cleaner", "legacy-serviceaccount-token-cleaner"),
    ),
    Entry(
        "resourceclaim-controller", _resource_claims, ("resource-claim-controller", "resourceclaim")
    ),
    Entry("replicaset-controller", _replica_sets, ("replicaset",)),
    Entry("replicationcontroller-controller", _replication_controllers, ("replicationcontroller",)),
    Entry("deployment-controller", _deployments, ("deployment",)),
    Entry("statefulset-controller", _stateful_sets, ("statefulset",)),
    Entry("daemonset-controller", _daemon_sets, ("daemonset",)),
    Entry("job-controller", _jobs, ("job",)),
    Entry("cronjob-controller", _cron_jobs, ("cronjob",)),
    Entry("ttl-after-finished-controller", _ttl_after_finished, ("ttl-after-finished",)),
    Entry("disruption-controller", _disruption, ("disruption",)),
    Entry(
        "horizontal-pod-autoscaler-controller",
        _autoscaler,
        ("horizontal-pod-autoscaler", "horizontalpodautoscaling"),
    ),
)


class Absent(NamedTuple):
    """A controller of upstream that is not here: its names are taken, and nothing is run."""

    name: str
    why: str
    """What is missing without it, for users."""
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
    Absent(
        "persistentvolume-attach-detach-controller",
        "VolumeAttachments are not made: drivers that need them (`attachRequired`) do not attach",
        ("attachdetach",),
    ),
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
"""What controllers that are here leave out."""


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
