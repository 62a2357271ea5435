"""The strategy of Services: hooks, warnings, cells. Allocation is separate."""

from typing import Any, Final

from kvstack.apimachinery.objects.addresses import cidr_warnings, ip_warnings
from kvstack.apimachinery.objects.field_errors import child, index
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import name_is_dns_label
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.well_known import TOPOLOGY_HINTS_ANNOTATION, TOPOLOGY_MODE_ANNOTATION
from kvstack.apiserver.kinds.cells import pairs_text
from kvstack.apiserver.kinds.network.load_balancers import shown_addresses, status_warnings
from kvstack.apiserver.kinds.network.services.preparation import (
    default,
    prepare_create,
    prepare_status,
    prepare_update,
)
from kvstack.apiserver.kinds.network.services.traits import (
    CLUSTER_IP,
    LOAD_BALANCER,
    NODE_PORT,
    NONE,
    Spec,
    cluster_ips,
    is_external_name,
    type_of,
)
from kvstack.apiserver.kinds.network.services.validation import (
    PREFER_CLOSE,
    PREFER_SAME_ZONE,
    validate,
    validate_status,
    validate_update,
)
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status


def _warnings(obj: Object, _context: Context) -> list[str]:
    spec: Spec = obj["spec"]
    warnings: list[str] = []
    if TOPOLOGY_HINTS_ANNOTATION in (obj["metadata"].get("annotations") or {}):
        warnings.append(
            f"annotation {TOPOLOGY_HINTS_ANNOTATION} is deprecated,"
            f" please use {TOPOLOGY_MODE_ANNOTATION} instead"
        )
    if spec.get("clusterIP") not in {None, "", NONE}:
        warnings += _address_warnings("clusterIPs", cluster_ips(spec))
    is_headless = type_of(spec) == CLUSTER_IP and spec.get("clusterIP") == NONE
    external_ips: list[str] = spec.get("externalIPs") or []
    if is_headless:
        warnings.extend(
            f"spec.{shown} is ignored for headless services"
            for shown, is_set in (
                ("loadBalancerIP", bool(spec.get("loadBalancerIP"))),
                ("externalIPs", bool(external_ips)),
                ("SessionAffinity", spec.get("sessionAffinity") != "None"),
            )
            if is_set
        )
    warnings += _address_warnings("externalIPs", external_ips)
    if external_ips and not is_headless and not is_external_name(spec):
        warnings.append(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
        )
    return warnings + _later_warnings(spec)


def _later_warnings(spec: Spec) -> list[str]:
    warnings = ip_warnings("spec.loadBalancerIP", spec.get("loadBalancerIP", ""))
    for position, each in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        warnings += cidr_warnings(index("spec.loadBalancerSourceRanges", position), each)
    if is_external_name(spec):
        if spec.get("externalIPs"):
            warnings.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    elif spec.get("externalName"):
        warnings.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == PREFER_CLOSE:
        warnings.append(
            f'spec.trafficDistribution: "{PREFER_CLOSE}" is deprecated; use "{PREFER_SAME_ZONE}"'
        )
    return warnings


def _address_warnings(name: str, ips: list[str]) -> list[str]:
    return [
        warning
        for position, each in enumerate(ips)
        for warning in ip_warnings(index(child("spec", name), position), each)
    ]


def _update_warnings(new: Object, _old: Object, context: Context) -> list[str]:
    return _warnings(new, context)


def _status_warnings(new: Object, _old: Object, _context: Context) -> list[str]:
    return status_warnings(new)


def _selectable(obj: Object) -> dict[str, str]:
    spec: Spec = obj["spec"]
    return {"spec.clusterIP": spec.get("clusterIP", ""), "spec.type": type_of(spec)}


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, spec = obj["metadata"], obj["spec"]
    return [
        metadata["name"],
        type_of(spec),
        (cluster_ips(spec) or ["<none>"])[0],
        _outside(obj),
        ",".join(map(_port_text, spec.get("ports") or ())) or "<none>",
        age(metadata.get("creationTimestamp"), now),
        pairs_text(spec.get("selector")),
    ]


def _outside(obj: Object) -> str:
    spec = obj["spec"]
    external_ips: list[str] = spec.get("externalIPs") or []
    if is_external_name(spec):
        name: str = spec.get("externalName", "")
        return name
    if type_of(spec) == LOAD_BALANCER:
        balanced = shown_addresses(obj)
        return ",".join([*filter(None, [balanced]), *external_ips]) or "<pending>"
    if type_of(spec) in {CLUSTER_IP, NODE_PORT}:
        return ",".join(external_ips) or "<none>"
    return "<unknown>"


def _port_text(port: Object) -> str:
    node_port = port.get("nodePort", 0)
    numbers = f"{port.get('port', 0)}:{node_port}" if node_port else str(port.get("port", 0))
    return f"{numbers}/{port.get('protocol', '')}"


SERVICES: Final = with_status(
    Strategy(
        default=default,
        prepare_create=prepare_create,
        prepare_update=prepare_update,
        validate=validate,
        validate_update=validate_update,
        warnings=_warnings,
        update_warnings=_update_warnings,
        check_name=name_is_dns_label,
        allows_create_on_update=True,
        selectable=_selectable,
        cells=_cells,
    ),
    prepare_update=prepare_status,
    validate_update=validate_status,
    update_warnings=_status_warnings,
)
