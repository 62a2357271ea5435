"""Defaults and preparation of Services.

A Service is of one of several types. Clients change the type and leave the rest unchanged; a field
of the old type that the new type cannot have, and that the client did not change, is dropped. One
that the client changed stays, for validation to refuse.
"""

from collections.abc import Callable
from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.network.services.traits import (
    CLUSTER_IP,
    LOAD_BALANCER,
    NODE_PORT,
    TRAFFIC_POLICIES,
    Spec,
    has_node_ports,
    is_external_name,
    is_load_balancer,
    is_reachable_from_outside,
    needs_health_check,
    node_ports,
    same_cluster_ips,
    same_families,
    type_of,
)
from kvstack.apiserver.kinds.strategy import Context

CLIENT_IP_SECONDS: Final = 10800


def default(obj: Object) -> None:
    """Set defaults after decoding."""
    spec: Spec = obj.setdefault("spec", {})
    _default_affinity(spec)
    kind = spec.setdefault("type", CLUSTER_IP)
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
    if is_reachable_from_outside(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in {CLUSTER_IP, NODE_PORT, LOAD_BALANCER}:
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == LOAD_BALANCER:
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        status = obj.get("status", {}).get("loadBalancer") or {}
        for each in status.get("ingress") or ():
            if each.get("ip"):
                each.setdefault("ipMode", "VIP")


def prepare_create(obj: Object, _context: Context) -> None:
    """Clear the status of a new Service."""
    obj["status"] = {"loadBalancer": {}}
    _drop_internal_policy(obj["spec"])


def prepare_update(new: Object, old: Object, _context: Context) -> None:
    """Keep the status, and drop unchanged fields that the new type cannot have."""
    new["status"] = old["status"]
    spec, old_spec = new["spec"], old["spec"]
    for applies, is_same, names in _BY_TYPE:
        if applies(old_spec) and not applies(spec) and is_same(old_spec, spec):
            for each in names:
                spec.pop(each, None)
    if _allocates_node_ports(old_spec, spec):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    if type_of(spec) != LOAD_BALANCER and new["status"].get("loadBalancer"):
        new["status"] = new["status"] | {"loadBalancer": {}}
    _drop_internal_policy(spec)


def prepare_status(new: Object, old: Object, _context: Context) -> None:
    """Keep the spec on writes of the status."""
    new["spec"] = old["spec"]


def _drop_internal_policy(spec: Spec) -> None:
    """Drop the internal policy if it has no effect; invalid values stay, to be refused."""
    if is_external_name(spec) and spec.get("internalTrafficPolicy") in TRAFFIC_POLICIES:
        del spec["internalTrafficPolicy"]


def _default_affinity(spec: Spec) -> None:
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        client_ip = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if client_ip.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": CLIENT_IP_SECONDS}}


def _allocates_node_ports(old: Spec, new: Spec) -> bool:
    """Return whether the change of type removed node ports and none was added."""
    return (
        has_node_ports(old)
        and not has_node_ports(new)
        and set(node_ports(old)) >= set(node_ports(new))
    )


def _has_cluster_ip(spec: Spec) -> bool:
    return not is_external_name(spec)


def _same_addresses(old: Spec, new: Spec) -> bool:
    return old.get("clusterIP") == new.get("clusterIP") and same_cluster_ips(old, new)


def _same(name: str) -> Callable[[Spec, Spec], bool]:
    def check(old: Spec, new: Spec) -> bool:
        return bool(old.get(name) == new.get(name))

    return check


_BY_TYPE: Final = (
    (_has_cluster_ip, _same_addresses, ("clusterIP", "clusterIPs")),
    (_has_cluster_ip, same_families, ("ipFamilies",)),
    (_has_cluster_ip, _same("ipFamilyPolicy"), ("ipFamilyPolicy",)),
    (needs_health_check, _same("healthCheckNodePort"), ("healthCheckNodePort",)),
    (is_load_balancer, _same("allocateLoadBalancerNodePorts"), ("allocateLoadBalancerNodePorts",)),
    (is_load_balancer, _same("loadBalancerClass"), ("loadBalancerClass",)),
    (is_reachable_from_outside, _same("externalTrafficPolicy"), ("externalTrafficPolicy",)),
)
"""Which specs can have some fields, when they count as unchanged, and the fields."""
