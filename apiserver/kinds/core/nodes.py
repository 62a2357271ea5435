"""Nodes. A new node keeps its status; later only /status changes it.

`spec.configSource` and `status.config` belong to a removed feature: only existing values stay.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.addresses import cidr_warnings, parse_cidr, validate_legacy_cidr
from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.core.node_status import READY
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    forbidden,
    index,
    internal,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    DNS_SUBDOMAIN_MAX,
    check_label_key,
    check_label_value,
    length,
)
from kvstack.apimachinery.objects.text.go_text import JsonText, quote
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.amounts import round_up_amounts
from kvstack.apiserver.kinds.core.node_config import check_config_source, check_config_status
from kvstack.apiserver.kinds.pods.scheduling import TAINT_EFFECTS
from kvstack.apiserver.kinds.resource_names import check_amount
from kvstack.apiserver.kinds.rules import Errors, add_invalid, check_positive
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status

ROLE_PREFIX: Final = "node-role.kubernetes.io/"
ROLE_LABEL: Final = "kubernetes.io/role"

_FIXED_CIDR: Final = 'node updates may not change podCIDR except from "" to valid'


def _default(obj: Object) -> None:
    _join_pod_cidrs(obj.get("spec") or {})
    status = obj.get("status")
    if not status:
        return
    capacity = status.get("capacity")
    round_up_amounts(capacity)
    if "allocatable" in status:
        round_up_amounts(status["allocatable"])
    elif capacity:
        status["allocatable"] = dict(capacity)


def _join_pod_cidrs(spec: Object) -> None:
    """Fill podCIDR and podCIDRs from each other; podCIDR wins."""
    single, several = spec.get("podCIDR"), spec.get("podCIDRs")
    if single and (not several or several[0] != single):
        spec["podCIDRs"] = [single]
    elif several:
        spec["podCIDR"] = several[0]


def _prepare_create(obj: Object, _context: Context) -> None:
    _drop_gated(obj, {})
    obj.get("status", {}).pop("config", None)


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    new["status"] = old["status"]
    _drop_gated(new, old)


def _drop_gated(new: Object, old: Object) -> None:
    spec: Object = new.get("spec", {})
    for each in ("configSource", "podPreemptionPolicy"):
        if each not in old.get("spec", {}):
            spec.pop(each, None)


def _prepare_status(new: Object, old: Object, _context: Context) -> None:
    new["spec"] = old["spec"]
    if "config" not in old["status"]:
        new["status"].pop("config", None)


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    spec, status = obj.get("spec", {}), obj.get("status", {})
    _check_taints(errors, spec)
    _check_resources(errors, status)
    swap = (status.get("nodeInfo") or {}).get("swap")
    if swap is not None and swap.get("capacity") is not None:
        check_positive(errors, "metadata.nodeSwapStatus.capacity", swap["capacity"])
    _check_features(errors, status)
    _check_pod_cidrs(errors, spec.get("podCIDRs") or [])
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    return _validate(new, context) + _validate_status(new, old, context)


def _validate_status(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    spec, old_spec, status = new.get("spec", {}), old.get("spec", {}), new.get("status", {})
    _check_resources(errors, status)
    _check_features(errors, status)
    _check_addresses(errors, status)
    _check_fixed(errors, spec, old_spec)
    source, config = spec.get("configSource"), status.get("config")
    if source is not None:
        check_config_source(errors, "spec.configSource", source)
    if config is not None:
        check_config_status(errors, "status.config", config)
    _check_taints(errors, spec)
    if spec.get("externalID", "") != old_spec.get("externalID", ""):
        errors.append(forbidden("spec.externalID", "may not be updated"))
    return errors


def _check_taints(errors: Errors, spec: Object) -> None:
    seen: set[tuple[str, str]] = set()
    for position, taint in enumerate(spec.get("taints") or ()):
        path = index("metadata.taints", position)
        key, effect = taint.get("key", ""), taint.get("effect", "")
        add_invalid(errors, child(path, "key"), key, check_label_key(key))
        value = taint.get("value", "")
        wrong = check_label_value(value)
        if wrong:
            errors.append(invalid(child(path, "value"), value, ";".join(wrong)))
        if not effect:
            errors.append(required(child(path, "effect")))
        elif effect not in TAINT_EFFECTS:
            path_of_effect = child(path, "effect")
            errors.append(not_supported(path_of_effect, JsonText(effect), TAINT_EFFECTS))
        if (effect, key) in seen:
            repeated = duplicate(path, _internal_taint(taint))
            detail = "taints must be unique by key and effect pair"
            errors.append(repeated._replace(body=f"{repeated.body}: {detail}"))
        seen.add((effect, key))


def _internal_taint(taint: Object) -> Object:
    """Return the taint with the names of Go's fields, as in errors."""
    return {
        "Key": taint.get("key", ""),
        "Value": taint.get("value", ""),
        "Effect": taint.get("effect", ""),
        "TimeAdded": taint.get("timeAdded"),
    }


def _check_resources(errors: Errors, status: Object) -> None:
    for each in ("capacity", "allocatable"):
        for name, amount in (status.get(each) or {}).items():
            check_amount(errors, child("status", each, name), name, amount)


def _check_features(errors: Errors, status: Object) -> None:
    before = None
    for position, name in enumerate(status.get("declaredFeatures") or ()):
        path = index("status.declaredFeatures", position)
        if before is not None and name == before:
            errors.append(duplicate(path, name))
        elif before is not None and name < before:
            errors.append(invalid(path, name, "list must be sorted alphabetically"))
        before = name
        problem = _feature_problem(name)
        if problem:
            errors.append(invalid(path, name, f"invalid feature name {quote(name)}: {problem}"))


def _feature_problem(name: str) -> str:
    if length(name) > DNS_SUBDOMAIN_MAX:
        return f"must be no more than {DNS_SUBDOMAIN_MAX} characters"
    segments = name.split("/")
    is_good = (
        all(each.isascii() and each.isalnum() and each[0].isalpha() for each in segments)
        and name[:1].isupper()
    )
    if is_good:
        return ""
    return (
        "must start with an UpperCamelCase segment, with subsequent segments separated by '/'"
        " (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and"
        " slashes"
    )


def _check_pod_cidrs(errors: Errors, cidrs: list[str]) -> None:
    path = "spec.podCIDRs"
    for position, each in enumerate(cidrs):
        errors.extend(validate_legacy_cidr(index(path, position), each))
    if len(cidrs) < 2:
        return
    networks = [parse_cidr(each) for each in cidrs]
    if None in networks:
        bad = networks.index(None)
        text = f"invalid CIDR[{bad}]: <nil> (invalid CIDR address: {cidrs[bad]})"
        problem = f"invalid PodCIDRs. failed to check with dual stack with error:{text}"
        errors.append(internal(path, problem))
    families = {each.address.is_ipv4 for each in networks if each is not None}
    if None in networks or len(families) < 2 or len(cidrs) > 2:
        detail = "may specify no more than one CIDR for each IP family"
        errors.append(invalid(path, cidrs, detail))


def _check_addresses(errors: Errors, status: Object) -> None:
    seen: set[tuple[str, str]] = set()
    for position, each in enumerate(status.get("addresses") or ()):
        address = (each.get("type", ""), each.get("address", ""))
        if address in seen:
            shown = {"Type": address[0], "Address": address[1]}
            errors.append(duplicate(index("status.addresses", position), shown))
        seen.add(address)


def _check_fixed(errors: Errors, spec: Object, old_spec: Object) -> None:
    cidrs, old_cidrs = spec.get("podCIDRs") or [], old_spec.get("podCIDRs") or []
    if old_cidrs and len(cidrs) != len(old_cidrs):
        errors.append(forbidden("spec.podCIDRs", _FIXED_CIDR))
    elif old_cidrs:
        errors.extend(
            forbidden("spec.podCIDRs", _FIXED_CIDR)
            for one, other in zip(cidrs, old_cidrs, strict=True)
            if one != other
        )
    provider, old_provider = spec.get("providerID", ""), old_spec.get("providerID", "")
    if old_provider and provider != old_provider:
        done = "modified" if provider else "cleared"
        errors.append(invalid("spec.providerID", None, f"field cannot be {done} once set"))


def _warnings(obj: Object, _context: Context) -> list[str]:
    warnings: list[str] = []
    spec = obj.get("spec", {})
    if "configSource" in spec:
        warnings.append("spec.configSource: the feature is removed")
    if spec.get("externalID"):
        warnings.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
    for position, each in enumerate(spec.get("podCIDRs") or ()):
        warnings.extend(cidr_warnings(index("spec.podCIDRs", position), each))
    return warnings


def _update_warnings(new: Object, _old: Object, context: Context) -> list[str]:
    return _warnings(new, context)


def _selectable(obj: Object) -> dict[str, str]:
    is_closed = obj.get("spec", {}).get("unschedulable", False)
    return {"spec.unschedulable": "true" if is_closed else "false"}


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, status = obj["metadata"], obj.get("status", {})
    info = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or "<unknown>"
    architecture = info.get("architecture")
    return [
        metadata["name"],
        _state(obj),
        ",".join(_roles(metadata.get("labels") or {})) or "<none>",
        age(metadata.get("creationTimestamp"), now),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        f"{kernel} ({architecture})" if architecture else kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _state(obj: Object) -> str:
    # Of several the last one counts, as upstream.
    ready = find(reversed(obj.get("status", {}).get("conditions") or ()), READY)
    state = "Unknown"
    if ready is not None:
        state = READY if ready.get("status") == "True" else "NotReady"
    is_closed = obj.get("spec", {}).get("unschedulable", False)
    return f"{state},SchedulingDisabled" if is_closed else state


def _roles(labels: dict[str, str]) -> list[str]:
    roles = {each.removeprefix(ROLE_PREFIX) for each in labels if each.startswith(ROLE_PREFIX)}
    roles.add(labels.get(ROLE_LABEL, ""))
    return sorted(each for each in roles if each)


def _address(status: Object, kind: str) -> str:
    for each in status.get("addresses") or ():
        if each.get("type") == kind:
            address: str = each.get("address", "")
            return address
    return "<none>"


NODES: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        update_warnings=_update_warnings,
        selectable=_selectable,
        cells=_cells,
    ),
    prepare_update=_prepare_status,
    validate_update=_validate_status,
)
