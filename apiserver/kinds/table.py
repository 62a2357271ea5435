"""The strategies of the built-in kinds, by group and resource.

    strategy_of("", "configmaps")  → CONFIG_MAPS of kinds.core.config_maps

A module is imported when the first of its kinds is used, so that startup stays fast.
"""

from functools import cache
from importlib import import_module
from typing import Final

from kvstack.apimachinery.schema.resource import Resource
from kvstack.apiserver.apiextensions.customresources.resource import CustomResource
from kvstack.apiserver.kinds.strategy import Strategy

_ADMISSION: Final = "admissionregistration.k8s.io"
_CERTIFICATES: Final = "certificates.k8s.io"
_FLOW_CONTROL: Final = "flowcontrol.apiserver.k8s.io"
_NETWORKING: Final = "networking.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_RESOURCE: Final = "resource.k8s.io"
_STORAGE: Final = "storage.k8s.io"

_LOCATIONS: Final = {
    ("", "componentstatuses"): "core.component_statuses:COMPONENT_STATUSES",
    ("", "configmaps"): "core.config_maps:CONFIG_MAPS",
    ("", "endpoints"): "core.endpoints:ENDPOINTS",
    ("", "events"): "core.events:EVENTS",
    ("", "limitranges"): "core.limit_ranges:LIMIT_RANGES",
    ("", "namespaces"): "core.namespaces:NAMESPACES",
    ("", "nodes"): "core.nodes:NODES",
    ("", "persistentvolumeclaims"): "storage.claims:CLAIMS",
    ("", "persistentvolumes"): "storage.volumes:VOLUMES",
    ("", "pods"): "pods.strategy:PODS",
    ("", "podtemplates"): "workloads.pod_templates:POD_TEMPLATES",
    ("", "replicationcontrollers"): "workloads.replication_controllers:REPLICATION_CONTROLLERS",
    ("", "resourcequotas"): "core.resource_quotas:RESOURCE_QUOTAS",
    ("", "secrets"): "core.secrets:SECRETS",
    ("", "serviceaccounts"): "core.service_accounts:SERVICE_ACCOUNTS",
    ("", "services"): "network.services.strategy:SERVICES",
    (_ADMISSION, "mutatingadmissionpolicies"): "admissionregistration.mutating:MUTATING_POLICIES",
    (
        _ADMISSION,
        "mutatingadmissionpolicybindings",
    ): "admissionregistration.bindings:MUTATING_BINDINGS",
    (_ADMISSION, "mutatingwebhookconfigurations"): (
        "admissionregistration.webhooks:MUTATING_WEBHOOK_CONFIGURATIONS"
    ),
    (
        _ADMISSION,
        "validatingadmissionpolicies",
    ): "admissionregistration.validating:VALIDATING_POLICIES",
    (
        _ADMISSION,
        "validatingadmissionpolicybindings",
    ): "admissionregistration.bindings:VALIDATING_BINDINGS",
    (_ADMISSION, "validatingwebhookconfigurations"): (
        "admissionregistration.webhooks:VALIDATING_WEBHOOK_CONFIGURATIONS"
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"): (
        ".apiextensions.customresourcedefinitions.strategy:CUSTOM_RESOURCE_DEFINITIONS"
    ),
    ("apiregistration.k8s.io", "apiservices"): "api_services:API_SERVICES",
    ("apps", "controllerrevisions"): "workloads.controller_revisions:CONTROLLER_REVISIONS",
    ("apps", "daemonsets"): "workloads.daemon_sets:DAEMON_SETS",
    ("apps", "deployments"): "workloads.deployments:DEPLOYMENTS",
    ("apps", "replicasets"): "workloads.replica_sets:REPLICA_SETS",
    ("apps", "statefulsets"): "workloads.stateful_sets:STATEFUL_SETS",
    ("autoscaling", "horizontalpodautoscalers"): "workloads.autoscalers.strategy:AUTOSCALERS",
    ("batch", "cronjobs"): "workloads.jobs.cron_jobs:CRON_JOBS",
    ("batch", "jobs"): "workloads.jobs.strategy:JOBS",
    (_CERTIFICATES, "certificatesigningrequests"): (
        "certificates.signing_requests:SIGNING_REQUESTS"
    ),
    (_CERTIFICATES, "clustertrustbundles"): "certificates.trust_bundles:TRUST_BUNDLES",
    (_CERTIFICATES, "podcertificaterequests"): (
        "certificates.pod_requests:POD_CERTIFICATE_REQUESTS"
    ),
    ("coordination.k8s.io", "leases"): "core.leases:LEASES",
    ("discovery.k8s.io", "endpointslices"): "network.endpoint_slices:ENDPOINT_SLICES",
    ("events.k8s.io", "events"): "core.events:NEWER_EVENTS",
    (_FLOW_CONTROL, "flowschemas"): "flowcontrol.flow_schemas:FLOW_SCHEMAS",
    (_FLOW_CONTROL, "prioritylevelconfigurations"): "flowcontrol.priority_levels:PRIORITY_LEVELS",
    (_NETWORKING, "ingressclasses"): "network.ingress_classes:INGRESS_CLASSES",
    (_NETWORKING, "ingresses"): "network.ingresses:INGRESSES",
    (_NETWORKING, "ipaddresses"): "network.ip_addresses:IP_ADDRESSES",
    (_NETWORKING, "networkpolicies"): "network.network_policies:NETWORK_POLICIES",
    (_NETWORKING, "servicecidrs"): "network.service_cidrs:SERVICE_CIDRS",
    ("node.k8s.io", "runtimeclasses"): "core.runtime_classes:RUNTIME_CLASSES",
    ("policy", "poddisruptionbudgets"): "workloads.disruption_budgets:DISRUPTION_BUDGETS",
    (_RBAC, "clusterrolebindings"): "rbac.bindings:CLUSTER_ROLE_BINDINGS",
    (_RBAC, "clusterroles"): "rbac.roles:CLUSTER_ROLES",
    (_RBAC, "rolebindings"): "rbac.bindings:ROLE_BINDINGS",
    (_RBAC, "roles"): "rbac.roles:ROLES",
    (_RESOURCE, "deviceclasses"): "devices.classes:CLASSES",
    (_RESOURCE, "devicetaintrules"): "devices.taint_rules:TAINT_RULES",
    (_RESOURCE, "resourceclaims"): "devices.claims:CLAIMS",
    (_RESOURCE, "resourceclaimtemplates"): "devices.templates:CLAIM_TEMPLATES",
    (_RESOURCE, "resourceslices"): "devices.slices:SLICES",
    ("scheduling.k8s.io", "priorityclasses"): "core.priority_classes:PRIORITY_CLASSES",
    (_STORAGE, "csidrivers"): "storage.drivers:CSI_DRIVERS",
    (_STORAGE, "csinodes"): "storage.node_drivers:CSI_NODES",
    (_STORAGE, "csistoragecapacities"): "storage.capacities:CSI_STORAGE_CAPACITIES",
    (_STORAGE, "storageclasses"): "storage.classes:STORAGE_CLASSES",
    (_STORAGE, "volumeattachments"): "storage.attachments:VOLUME_ATTACHMENTS",
    (_STORAGE, "volumeattributesclasses"): "storage.attributes_classes:VOLUME_ATTRIBUTES_CLASSES",
    ("storagemigration.k8s.io", "storageversionmigrations"): "storage.migrations:MIGRATIONS",
}
"""Module, relative to this package, and name of the strategy."""


_RECHECKED: Final = frozenset(
    (
        ("", "configmaps"),
        ("", "endpoints"),
        ("", "limitranges"),
        ("", "namespaces"),
        ("", "nodes"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "pods"),
        ("", "secrets"),
        ("", "serviceaccounts"),
        ("apps", "controllerrevisions"),
        ("apps", "statefulsets"),
        ("discovery.k8s.io", "endpointslices"),
        (_FLOW_CONTROL, "flowschemas"),
        (_FLOW_CONTROL, "prioritylevelconfigurations"),
        (_NETWORKING, "ingressclasses"),
        (_NETWORKING, "ingresses"),
        (_NETWORKING, "ipaddresses"),
        (_RBAC, "clusterrolebindings"),
        (_RBAC, "clusterroles"),
        (_RBAC, "rolebindings"),
        (_RBAC, "roles"),
        (_RESOURCE, "resourceclaims"),
        (_STORAGE, "csinodes"),
        (_STORAGE, "csistoragecapacities"),
        (_STORAGE, "storageclasses"),
        (_STORAGE, "volumeattachments"),
        (_STORAGE, "volumeattributesclasses"),
        ("storagemigration.k8s.io", "storageversionmigrations"),
    )
)


def rechecks_finalizers(group: str, resource: str) -> bool:
    """Return whether an update checks names of finalizers as a create does."""
    return (group, resource) in _RECHECKED


def strategy_of_row(row: Resource) -> Strategy | None:
    """Return the strategy of a row, built-in or custom; None if it has none of its own."""
    if isinstance(row, CustomResource):
        return row.strategy
    return strategy_of(row.group, row.name)


@cache
def strategy_of(group: str, resource: str) -> Strategy | None:
    """Return the strategy of a built-in resource; None if it has none of its own."""
    entry = _LOCATIONS.get((group, resource))
    if entry is None:
        return None
    module, _, name = entry.partition(":")
    strategy = getattr(import_module(f".{module}", __package__), name)
    assert isinstance(strategy, Strategy), entry
    return strategy
