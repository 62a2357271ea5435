"""Validation of Services."""

from typing import Any, Final

from kvstack.apimachinery.objects.addresses import validate_legacy_cidr, validate_legacy_ip
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    key,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.metadata import validate_labels
from kvstack.apimachinery.objects.names import (
    IMMUTABLE,
    check_dns_label,
    check_dns_subdomain,
    check_label_key,
    check_port_name,
    check_port_number,
)
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apimachinery.well_known import TOPOLOGY_HINTS_ANNOTATION, TOPOLOGY_MODE_ANNOTATION
from kvstack.apiserver.kinds.core.endpoints import PROTOCOLS
from kvstack.apiserver.kinds.endpoint_addresses import check_endpoint_address
from kvstack.apiserver.kinds.network.load_balancers import check_load_balancer_status
from kvstack.apiserver.kinds.network.services.addresses import (
    check_address_changes,
    check_addresses,
    check_family_changes,
)
from kvstack.apiserver.kinds.network.services.traits import (
    CLUSTER_IP,
    EXTERNAL_NAME,
    LOAD_BALANCER,
    NODE_PORT,
    TRAFFIC_POLICIES,
    Spec,
    cluster_ips,
    has_node_ports,
    ip_families,
    is_headless,
    is_load_balancer,
    is_reachable_from_outside,
    needs_health_check,
    type_of,
)
from kvstack.apiserver.kinds.rules import Errors, Rule, add_invalid, needs_one_of, one_of
from kvstack.apiserver.kinds.strategy import Context

SOURCE_RANGES: Final = "service.beta.kubernetes.io/load-balancer-source-ranges"
PREFER_CLOSE: Final = "PreferClose"
PREFER_SAME_ZONE: Final = "PreferSameZone"

_AFFINITIES: Final = enum_values("io.k8s.api.core.v1.ServiceSpec", "sessionAffinity")
_TYPES: Final = enum_values("io.k8s.api.core.v1.ServiceSpec", "type")
_DISTRIBUTIONS: Final = (PREFER_CLOSE, PREFER_SAME_ZONE, "PreferSameNode")
_AFFINITY_SECONDS_MAX: Final = 86400
_ONLY_BALANCED: Final = "may only be used when `type` is 'LoadBalancer'"


def validate(obj: Object, _context: Context) -> list[FieldError]:
    """Return all errors of a new Service."""
    errors: list[FieldError] = []
    _check_service(errors, obj, None)
    return errors


def validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    """Return all errors of a changed Service."""
    errors: list[FieldError] = []
    spec, old_spec = new["spec"], old["spec"]
    check_address_changes(errors, spec, old_spec)
    check_family_changes(errors, spec, old_spec)
    _check_class_change(errors, spec, old_spec)
    _check_class(errors, spec)
    if (
        needs_health_check(spec)
        and needs_health_check(old_spec)
        and spec.get("healthCheckNodePort") != old_spec.get("healthCheckNodePort")
    ):
        errors.append(forbidden("spec.healthCheckNodePort", IMMUTABLE))
    _check_service(errors, new, old)
    return errors


def validate_status(new: Object, old: Object, _context: Context) -> list[FieldError]:
    """Return all errors of a changed status."""
    errors: list[FieldError] = []
    status, before = new["status"].get("loadBalancer") or {}, old["status"].get("loadBalancer")
    path = "status.loadBalancer"
    if status.get("ingress") and not is_load_balancer(new["spec"]):
        detail = "may only be used when `spec.type` is 'LoadBalancer'"
        return [forbidden(child(path, "ingress"), detail)]
    check_load_balancer_status(errors, path, status, before or {}, has_modes=True)
    return errors


def _check_service(errors: Errors, obj: Object, old: Object | None) -> None:
    spec: Spec = obj["spec"]
    old_spec: Spec | None = None if old is None else old["spec"]
    annotations: dict[str, str] = obj["metadata"].get("annotations") or {}
    _check_topology(errors, annotations)
    _check_type_fields(errors, spec)
    _check_ports(errors, spec)
    if spec.get("selector"):
        errors.extend(validate_labels("spec.selector", spec["selector"]))
    _check_affinity(errors, spec)
    check_addresses(errors, spec, old_spec)
    _check_external_ips(errors, spec, old_spec)
    _check_type(spec, "spec", errors)
    _check_node_ports(errors, spec)
    _check_repeated_ports(errors, spec)
    _check_source_ranges(errors, spec, annotations, old)
    _check_allocation(errors, spec)
    _check_class(errors, spec)
    _check_traffic(errors, spec)


def _check_topology(errors: Errors, annotations: dict[str, str]) -> None:
    mode = annotations.get(TOPOLOGY_MODE_ANNOTATION)
    hints = annotations.get(TOPOLOGY_HINTS_ANNOTATION)
    if mode is not None and hints is not None and mode != hints:
        detail = f"must match annotations[{TOPOLOGY_HINTS_ANNOTATION}] when both are specified"
        errors.append(invalid(key("metadata.annotations", TOPOLOGY_MODE_ANNOTATION), mode, detail))


def _check_type_fields(errors: Errors, spec: Spec) -> None:
    kind = type_of(spec)
    if not spec.get("ports") and not is_headless(spec) and kind != EXTERNAL_NAME:
        errors.append(required("spec.ports"))
    if has_node_ports(spec) and is_headless(spec):
        detail = f"may not be set to 'None' for {kind} services"
        errors.append(invalid("spec.clusterIPs[0]", "None", detail))
    if kind == EXTERNAL_NAME:
        _check_external_name(errors, spec)


def _check_external_name(errors: Errors, spec: Spec) -> None:
    for name, is_set in (
        ("clusterIPs", bool(cluster_ips(spec))),
        ("ipFamilies", bool(ip_families(spec))),
        ("ipFamilyPolicy", spec.get("ipFamilyPolicy") is not None),
    ):
        if is_set:
            detail = "may not be set for ExternalName services"
            errors.append(forbidden(child("spec", name), detail))
    path, name = "spec.externalName", spec.get("externalName", "").removesuffix(".")
    if name:
        add_invalid(errors, path, name, check_dns_subdomain(name))
    else:
        errors.append(required(path))


def _check_ports(errors: Errors, spec: Spec) -> None:
    ports: list[Object] = spec.get("ports") or []
    names: set[str] = set()
    for position, port in enumerate(ports):
        path = index("spec.ports", position)
        name = port.get("name", "")
        if name:
            add_invalid(errors, child(path, "name"), name, check_dns_label(name))
            if name in names:
                errors.append(duplicate(child(path, "name"), name))
            names.add(name)
        elif len(ports) > 1:
            errors.append(required(child(path, "name")))
        number = port.get("port", 0)
        add_invalid(errors, child(path, "port"), number, check_port_number(number))
        _check_protocol(port, path, errors)
        target = port.get("targetPort", 0)
        wrong = check_port_name(target) if isinstance(target, str) else check_port_number(target)
        add_invalid(errors, child(path, "targetPort"), target, wrong)
        protocol = port.get("appProtocol")
        if protocol is not None:
            add_invalid(errors, child(path, "appProtocol"), protocol, check_label_key(protocol))


def _check_affinity(errors: Errors, spec: Spec) -> None:
    _check_session_affinity(spec, "spec", errors)
    affinity, config = spec.get("sessionAffinity"), spec.get("sessionAffinityConfig")
    path = "spec.sessionAffinityConfig"
    if affinity == "ClientIP":
        _check_client_ip(errors, path, config)
    elif affinity == "None" and config is not None:
        errors.append(forbidden(path, "must not be set when session affinity is None"))


def _check_client_ip(errors: Errors, path: str, config: Object | None) -> None:
    value: Any = config
    for name in ("clientIP", "timeoutSeconds", ""):
        if value is None:
            errors.append(required(path, "when session affinity type is ClientIP"))
            return
        if name:
            path, value = child(path, name), value.get(name)
    if not 0 < value <= _AFFINITY_SECONDS_MAX:
        detail = f"must be greater than 0 and less than {_AFFINITY_SECONDS_MAX}"
        errors.append(invalid(path, value, detail))


def _check_external_ips(errors: Errors, spec: Spec, old_spec: Spec | None) -> None:
    accepted = (old_spec or {}).get("externalIPs") or []
    for position, ip in enumerate(spec.get("externalIPs") or ()):
        path = index("spec.externalIPs", position)
        wrong = validate_legacy_ip(path, ip, accepted=accepted)
        errors.extend(wrong)
        if not wrong:
            check_endpoint_address(errors, path, ip)


def _check_node_ports(errors: Errors, spec: Spec) -> None:
    seen: set[tuple[str, int]] = set()
    ports = spec.get("ports") or ()
    paths = [child(index("spec.ports", position), "nodePort") for position in range(len(ports))]
    if type_of(spec) == CLUSTER_IP:
        errors.extend(
            forbidden(path, "may not be used when `type` is 'ClusterIP'")
            for path, port in zip(paths, ports, strict=True)
            if port.get("nodePort")
        )
    for path, port in zip(paths, ports, strict=True):
        pair = (port.get("protocol", ""), port.get("nodePort", 0))
        if pair[1] and pair in seen:
            errors.append(duplicate(path, pair[1]))
        seen.add(pair)


def _check_repeated_ports(errors: Errors, spec: Spec) -> None:
    seen: set[tuple[str, int]] = set()
    for position, port in enumerate(spec.get("ports") or ()):
        pair = (port.get("protocol", ""), port.get("port", 0))
        if pair in seen:
            errors.append(duplicate(index("spec.ports", position), _internal_port(*pair)))
        seen.add(pair)


def _internal_port(protocol: str, number: int) -> Object:
    """Return a port with the names of Go's fields, as in errors."""
    return {
        "Name": "",
        "Protocol": protocol,
        "AppProtocol": None,
        "Port": number,
        "TargetPort": 0,
        "NodePort": 0,
    }


def _check_source_ranges(
    errors: Errors, spec: Spec, annotations: dict[str, str], old: Object | None
) -> None:
    ranges: list[str] = spec.get("loadBalancerSourceRanges") or []
    text = annotations.get(SOURCE_RANGES)
    if not ranges and text is None:
        return
    path = "spec.LoadBalancerSourceRanges" if ranges else key("metadata.annotations", SOURCE_RANGES)
    if not is_load_balancer(spec):
        errors.append(forbidden(path, _ONLY_BALANCED))
    if ranges:
        old_ranges = (old or {}).get("spec", {}).get("loadBalancerSourceRanges") or ()
        accepted = {each.strip() for each in old_ranges}
        for position, cidr in enumerate(ranges):
            field = index(path, position)
            errors.extend(validate_legacy_cidr(field, cidr.strip(), accepted=accepted))
        return
    old_annotations = (old or {}).get("metadata", {}).get("annotations") or {}
    if text and text.strip() and (old is None or old_annotations.get(SOURCE_RANGES, "") != text):
        for cidr in text.strip().split(","):
            errors.extend(validate_legacy_cidr(path, cidr.strip()))


def _check_allocation(errors: Errors, spec: Spec) -> None:
    allocates = spec.get("allocateLoadBalancerNodePorts")
    if allocates is not None and not is_load_balancer(spec):
        errors.append(forbidden("spec.allocateLoadBalancerNodePorts", _ONLY_BALANCED))
    if allocates is None and is_load_balancer(spec):
        errors.append(required("allocateLoadBalancerNodePorts"))


def _check_class_change(errors: Errors, spec: Spec, old_spec: Spec) -> None:
    name = spec.get("loadBalancerClass")
    if (
        is_load_balancer(spec)
        and is_load_balancer(old_spec)
        and name != old_spec.get("loadBalancerClass")
    ):
        shown = None if name is None else JsonText(name)
        errors.append(invalid("spec.loadBalancerClass", shown, "may not change once set"))


def _check_class(errors: Errors, spec: Spec) -> None:
    path, name = "spec.loadBalancerClass", spec.get("loadBalancerClass")
    if name is None:
        return
    if is_load_balancer(spec):
        add_invalid(errors, path, name, check_label_key(name))
    else:
        errors.append(forbidden(path, _ONLY_BALANCED))


def _check_traffic(errors: Errors, spec: Spec) -> None:
    if is_reachable_from_outside(spec):
        _check_external_traffic(spec, "spec", errors)
    elif spec.get("externalTrafficPolicy"):
        policy = JsonText(spec["externalTrafficPolicy"])
        detail = "may only be set for externally-accessible services"
        errors.append(invalid("spec.externalTrafficPolicy", policy, detail))
    _check_health_port(errors, spec)
    internal_policy = spec.get("internalTrafficPolicy")
    if internal_policy is None and type_of(spec) in {CLUSTER_IP, NODE_PORT, LOAD_BALANCER}:
        errors.append(required("spec.internalTrafficPolicy"))
    _check_internal_traffic(spec, "spec", errors)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        errors.append(not_supported("spec.trafficDistribution", distribution, _DISTRIBUTIONS))


def _check_health_port(errors: Errors, spec: Spec) -> None:
    path, port = "spec.healthCheckNodePort", spec.get("healthCheckNodePort", 0)
    if not needs_health_check(spec):
        if port:
            detail = (
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is"
                " 'Local'"
            )
            errors.append(invalid(path, port, detail))
    elif not port:
        errors.append(required(path))
    else:
        add_invalid(errors, path, port, check_port_number(port))


_check_protocol: Final[Rule] = needs_one_of("protocol", PROTOCOLS)
_check_session_affinity: Final[Rule] = needs_one_of("sessionAffinity", _AFFINITIES)
_check_type: Final[Rule] = needs_one_of("type", _TYPES)
_check_external_traffic: Final[Rule] = needs_one_of("externalTrafficPolicy", TRAFFIC_POLICIES)
_check_internal_traffic: Final[Rule] = one_of("internalTrafficPolicy", TRAFFIC_POLICIES)
