"""The usage of one object in the resources that quotas limit.

    measure_of(GroupResource("", "services")).usage(service, now)
    → {"services": "1", "count/services": "1", "services.nodeports": "2", …}

A `Measure` knows of one resource which names of quotas it is about, and which scopes its objects
are in. What has no measure of its own is counted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from kvstack.apimachinery.objects import resources
from kvstack.apimachinery.objects.core.group_resources import CLAIMS, DEVICE_CLAIMS, PODS, SERVICES
from kvstack.apimachinery.objects.core.pod_resources import (
    HUGE_PAGES_PREFIX,
    LIMITS,
    REQUESTS,
    is_native,
    pod_limits,
    pod_requests,
)
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.core.storage_class_names import class_of_claim
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import Quantity, parse
from kvstack.apimachinery.objects.times import parse_time
from kvstack.apimachinery.quota.scopes import (
    IsIn,
    is_claim_in,
    is_in_none,
    is_pod_in,
)

Amounts: TypeAlias = dict[str, str]

_ALIASES: Final = {
    GroupResource("", "configmaps"): "configmaps",
    GroupResource("", "replicationcontrollers"): "replicationcontrollers",
    GroupResource("", "resourcequotas"): "resourcequotas",
    GroupResource("", "secrets"): "secrets",
}
"""Names that quotas had before everything could be counted."""

_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_OF_PODS: Final = frozenset(
    (
        "pods",
        "count/pods",
        *_COMPUTE,
        *(f"{kind}.{name}" for kind in (REQUESTS, LIMITS) for name in _COMPUTE),
    )
)
_DEMANDED: Final = frozenset(
    ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
)
_DEVICE_CLASS_REQUEST: Final = "requests.deviceclass.resource.kubernetes.io/"
_DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
_DEVICES: Final = ".deviceclass.resource.k8s.io/devices"
_DEVICES_MAX: Final = 32
_STORAGE_CLASS: Final = ".storageclass.storage.k8s.io/"
_OF_CLAIMS: Final = ("persistentvolumeclaims", "requests.storage")
_OF_SERVICES: Final = frozenset(
    ("services", "count/services", "services.nodeports", "services.loadbalancers")
)


def _no_demands(_names: Iterable[str], _obj: Object) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """The function that measures one resource."""

    names: Callable[[Sequence[str]], list[str]]
    """Return those of a quota's names that it is about."""
    usage: Callable[[Object, float], Amounts]
    """(object, now in seconds): return what it uses."""
    is_in: IsIn = is_in_none
    demands: Callable[[Iterable[str], Object], str] = _no_demands
    """(names of a quota, object): return what the object has to say and does not; or ""."""


@cache
def measure_of(resource: GroupResource) -> Measure:
    """Return how a resource is measured."""
    found = _MEASURES.get(resource)
    return found or _counting(resource)


# Everything is counted.


def _counting(resource: GroupResource) -> Measure:
    counted = [f"count/{resource}"]
    if alias := _ALIASES.get(resource):
        counted.append(alias)
    usage = dict.fromkeys(counted, "1")
    return Measure(
        names=lambda names: [each for each in names if each in usage],
        usage=lambda _obj, _now: dict(usage),
    )


# Pods.


def _names_of_pods(names: Sequence[str]) -> list[str]:
    return [each for each in names if each in _OF_PODS or _is_of_pods(each)]


def _is_of_pods(name: str) -> bool:
    if name.startswith((HUGE_PAGES_PREFIX, f"{REQUESTS}.{HUGE_PAGES_PREFIX}")):
        return True
    is_extended = not is_native(name) or name.startswith(_DEVICE_CLASS_REQUEST)
    return is_extended and name.startswith(f"{REQUESTS}.")


def _use_of_pod(pod: Object, now: float) -> Amounts:
    if _has_ended(pod, now):
        return {"count/pods": "1"}
    spec = pod.get("spec") or {}
    return {"count/pods": "1", **_compute(pod_requests(spec), pod_limits(spec))}


def _has_ended(pod: Object, now: float) -> bool:
    if is_ended(pod):
        return True
    metadata = pod.get("metadata") or {}
    deleted, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if deleted is None or grace is None:
        return False
    return now > parse_time(deleted).seconds + int(grace)


def _compute(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Amounts:
    use: Amounts = {"pods": "1"}
    for name, amount in requests.items():
        text = str(amount)
        if name in _COMPUTE or name.startswith(HUGE_PAGES_PREFIX):
            use[name] = text
            use[f"{REQUESTS}.{name}"] = text
        elif not is_native(name) or name.startswith(_DEVICE_CLASS):
            use[f"{REQUESTS}.{name}"] = text
    use |= {f"{LIMITS}.{name}": str(limits[name]) for name in _COMPUTE if name in limits}
    return use


def _demands_of_pod(names: Iterable[str], pod: Object) -> str:
    """Return what a quota of cpu or memory makes every container say."""
    demanded = _DEMANDED.intersection(names)
    spec = pod.get("spec") or {}
    if not demanded or _covers_all(spec):
        return ""
    missing: dict[str, set[str]] = {}
    for member in ("containers", "initContainers"):
        for container in spec.get(member) or ():
            said = container.get("resources") or {}
            there = _resource_names(said)
            for name in demanded - there:
                missing.setdefault(name, set()).add(container.get("name", ""))
    if not missing:
        return ""
    texts = (f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))
    return f"must specify {'; '.join(texts)}"


def _resource_names(resources_of_container: Object) -> set[str]:
    requests = (resources_of_container.get(REQUESTS) or {}).keys()
    limits = (resources_of_container.get(LIMITS) or {}).keys()
    return {*requests, *(f"{REQUESTS}.{name}" for name in requests)} | {
        f"{LIMITS}.{name}" for name in limits
    }


def _covers_all(spec: Object) -> bool:
    of_pod = spec.get("resources") or {}
    names = (of_pod.get(REQUESTS) or {}).keys() | (of_pod.get(LIMITS) or {}).keys()
    return any(each in {"cpu", "memory"} or each.startswith(HUGE_PAGES_PREFIX) for each in names)


# Services.


def _use_of_service(service: Object, _now: float) -> Amounts:
    spec = service.get("spec") or {}
    ports = spec.get("ports") or ()
    kind = spec.get("type")
    is_balanced = kind == "LoadBalancer"
    node_ports = len(ports) if kind in {"NodePort", "LoadBalancer"} else 0
    if is_balanced and spec.get("allocateLoadBalancerNodePorts") is False:
        node_ports = sum(1 for each in ports if each.get("nodePort"))
    return {
        "services": "1",
        "count/services": "1",
        "services.nodeports": str(node_ports),
        "services.loadbalancers": "1" if is_balanced else "0",
    }


# Claims of storage.


def allocated_storage(claim: Object) -> str | None:
    """Return the capacity that was given to a claim, or is being given."""
    allocated = (claim.get("status") or {}).get("allocatedResources") or {}
    storage: str | None = allocated.get("storage")
    return storage


def _names_of_claims(names: Sequence[str]) -> list[str]:
    suffixes = tuple(f"{_STORAGE_CLASS}{each}" for each in _OF_CLAIMS)
    return [
        each
        for each in names
        if each in _OF_CLAIMS or each == "count/persistentvolumeclaims" or each.endswith(suffixes)
    ]


def _use_of_claim(claim: Object, _now: float) -> Amounts:
    use = {"persistentvolumeclaims": "1", "count/persistentvolumeclaims": "1"}
    of_spec = (claim.get("spec") or {}).get("resources") or {}
    wanted = (of_spec.get(REQUESTS) or {}).get("storage")
    if wanted is not None:
        storage, allocated = parse(wanted), allocated_storage(claim)
        if allocated is not None:
            storage = max(storage, parse(allocated))
        use["requests.storage"] = str(storage.round_up(0))
    storage_class = class_of_claim(claim)
    if storage_class:
        for name in _OF_CLAIMS:
            if name in use:
                use[f"{storage_class}{_STORAGE_CLASS}{name}"] = use[name]
    return use


# Claims of devices.


def _names_of_device_claims(names: Sequence[str]) -> list[str]:
    counted = f"count/{DEVICE_CLAIMS}"
    return [each for each in names if each == counted or each.endswith(_DEVICES)]


def _use_of_device_claim(claim: Object, _now: float) -> Amounts:
    use: Amounts = {f"count/{DEVICE_CLAIMS}": "1"}
    devices = (claim.get("spec") or {}).get("devices") or {}
    for request in devices.get("requests") or ():
        # Of alternatives the largest of each class may be taken.
        alternatives = request.get("firstAvailable") or [request.get("exactly") or {}]
        largest: Amounts = {}
        for each in alternatives:
            if name := each.get("deviceClassName"):
                largest = resources.maximum(largest, {f"{name}{_DEVICES}": _device_count(each)})
        use = resources.add(use, largest)
    return use


def _device_count(request: Object) -> str:
    mode = request.get("allocationMode")
    if mode == "All":
        return str(_DEVICES_MAX)
    return str(request.get("count", 0)) if mode == "ExactCount" else "0"


_MEASURES: Final = {
    CLAIMS: Measure(names=_names_of_claims, usage=_use_of_claim, is_in=is_claim_in),
    PODS: Measure(
        names=_names_of_pods,
        usage=_use_of_pod,
        is_in=is_pod_in,
        demands=_demands_of_pod,
    ),
    SERVICES: Measure(
        names=lambda names: [each for each in names if each in _OF_SERVICES],
        usage=_use_of_service,
    ),
    DEVICE_CLAIMS: Measure(names=_names_of_device_claims, usage=_use_of_device_claim),
}
