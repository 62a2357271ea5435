"""The strategies of the built-in kinds, by group and resource.

    strategy_of("", "configmaps")  → CONFIG_MAPS of kinds.core.config_maps

A family is imported when the first of its kinds is asked for, so that starting stays quick.
"""

from functools import cache
from importlib import import_module
from typing import Final

from kvstack.apiserver.kinds.strategy import Strategy

_NETWORKING: Final = "networking.k8s.io"
_STORAGE: Final = "storage.k8s.io"

_PLACES: Final = {
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
    ("apps", "controllerrevisions"): "workloads.controller_revisions:CONTROLLER_REVISIONS",
    ("apps", "daemonsets"): "workloads.daemon_sets:DAEMON_SETS",
    ("apps", "deployments"): "workloads.deployments:DEPLOYMENTS",
    ("apps", "replicasets"): "workloads.replica_sets:REPLICA_SETS",
    ("apps", "statefulsets"): "workloads.stateful_sets:STATEFUL_SETS",
    ("autoscaling", "horizontalpodautoscalers"): "workloads.autoscalers.strategy:AUTOSCALERS",
    ("batch", "cronjobs"): "workloads.jobs.cron_jobs:CRON_JOBS",
    ("batch", "jobs"): "workloads.jobs.strategy:JOBS",
    ("coordination.k8s.io", "leases"): "core.leases:LEASES",
    ("discovery.k8s.io", "endpointslices"): "network.endpoint_slices:ENDPOINT_SLICES",
    ("events.k8s.io", "events"): "core.events:NEWER_EVENTS",
    (_NETWORKING, "ingressclasses"): "network.ingress_classes:INGRESS_CLASSES",
    (_NETWORKING, "ingresses"): "network.ingresses:INGRESSES",
    (_NETWORKING, "ipaddresses"): "network.ip_addresses:IP_ADDRESSES",
    (_NETWORKING, "networkpolicies"): "network.network_policies:NETWORK_POLICIES",
    (_NETWORKING, "servicecidrs"): "network.service_cidrs:SERVICE_CIDRS",
    ("node.k8s.io", "runtimeclasses"): "core.runtime_classes:RUNTIME_CLASSES",
    ("policy", "poddisruptionbudgets"): "workloads.disruption_budgets:DISRUPTION_BUDGETS",
    ("scheduling.k8s.io", "priorityclasses"): "core.priority_classes:PRIORITY_CLASSES",
    (_STORAGE, "csidrivers"): "storage.drivers:CSI_DRIVERS",
    (_STORAGE, "csinodes"): "storage.node_drivers:CSI_NODES",
    (_STORAGE, "csistoragecapacities"): "storage.capacities:CSI_STORAGE_CAPACITIES",
    (_STORAGE, "storageclasses"): "storage.classes:STORAGE_CLASSES",
    (_STORAGE, "volumeattachments"): "storage.attachments:VOLUME_ATTACHMENTS",
    (_STORAGE, "volumeattributesclasses"): "storage.attributes_classes:VOLUME_ATTRIBUTES_CLASSES",
}
"""Module within this package and name of the strategy."""


@cache
def strategy_of(group: str, resource: str) -> Strategy | None:
    """Return the strategy of a built-in resource; None if it has none of its own."""
    place = _PLACES.get((group, resource))
    if place is None:
        return None
    module, _, name = place.partition(":")
    strategy = getattr(import_module(f"{__package__}.{module}"), name)
    assert isinstance(strategy, Strategy), place
    return strategy
