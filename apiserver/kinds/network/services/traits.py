"""Predicates on the spec of a Service, for defaults, preparation and validation."""

from typing import Any, Final

from kvstack.apimachinery.objects.addresses import parse_ip
from kvstack.apimachinery.schema.load import enum_values

Spec = dict[str, Any]

CLUSTER_IP: Final = "ClusterIP"
NODE_PORT: Final = "NodePort"
LOAD_BALANCER: Final = "LoadBalancer"
EXTERNAL_NAME: Final = "ExternalName"
NONE: Final = "None"
"""The cluster IP of a headless Service."""
TRAFFIC_POLICIES: Final = enum_values("io.k8s.api.core.v1.ServiceSpec", "internalTrafficPolicy")

IPV4: Final = "IPv4"
IPV6: Final = "IPv6"
SINGLE: Final = "SingleStack"
PREFERRED: Final = "PreferDualStack"
REQUIRED: Final = "RequireDualStack"


def type_of(spec: Spec) -> str:
    """Return the type, "" if absent."""
    kind: str = spec.get("type", "")
    return kind


def cluster_ips(spec: Spec) -> list[str]:
    """Return the cluster IPs, possibly only `None`."""
    return spec.get("clusterIPs") or []


def ip_families(spec: Spec) -> list[str]:
    """Return the families of the cluster IPs."""
    return spec.get("ipFamilies") or []


def is_headless(spec: Spec) -> bool:
    """Return whether the Service has no cluster IP."""
    return cluster_ips(spec) == [NONE]


def is_external_name(spec: Spec) -> bool:
    """Return whether the Service is an alias for an external name."""
    return type_of(spec) == EXTERNAL_NAME


def has_node_ports(spec: Spec) -> bool:
    """Return whether the type can have node ports."""
    return type_of(spec) in {NODE_PORT, LOAD_BALANCER}


def is_load_balancer(spec: Spec) -> bool:
    """Return whether the type is LoadBalancer."""
    return type_of(spec) == LOAD_BALANCER


def is_reachable_from_outside(spec: Spec) -> bool:
    """Return whether the Service takes traffic from outside the cluster."""
    return has_node_ports(spec) or (type_of(spec) == CLUSTER_IP and bool(spec.get("externalIPs")))


def needs_health_check(spec: Spec) -> bool:
    """Return whether load balancers check each node at a health check node port."""
    return is_load_balancer(spec) and spec.get("externalTrafficPolicy") == "Local"


def node_ports(spec: Spec) -> list[int]:
    """Return the node ports that are set, in order, including duplicates."""
    return [each["nodePort"] for each in spec.get("ports") or () if each.get("nodePort")]


def family_of(text: str) -> str:
    """Return the family of an address, "unknown" for anything else."""
    address = parse_ip(text)
    if address is None:
        return "unknown"
    return IPV4 if address.is_ipv4 else IPV6


def same_cluster_ips(one: Spec, other: Spec) -> bool:
    """Return whether both have the same list of cluster IPs."""
    return cluster_ips(one) == cluster_ips(other)


def same_families(one: Spec, other: Spec) -> bool:
    """Return whether both have the same list of families."""
    return ip_families(one) == ip_families(other)
