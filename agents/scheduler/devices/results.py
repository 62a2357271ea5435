"""The allocation in a claim's status: devices, configurations, node selector."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import NAMESPACE_OID, uuid5

from kvstack.agents.scheduler.devices.pools import Candidate, Counters
from kvstack.agents.scheduler.devices.requests import Request
from kvstack.agents.scheduler.snapshot.devices import Capacities
from kvstack.apimachinery.objects.json_object import Object


@dataclass(slots=True, eq=False)
class AllocatedDevice:
    """A device that a request has."""

    request: Request
    candidate: Candidate
    consumed: Capacities
    """The consumed capacity of a shared device."""
    counters: Counters


def allocation_result(
    claim: Object,
    requests: Sequence[Sequence[Request]],
    taken: Sequence[AllocatedDevice],
    node_name: str,
) -> Object:
    """Return an AllocationResult."""
    chosen = [_chosen(alternatives, taken) for alternatives in requests]
    devices: Object = {
        "results": [_device(each, claim, number) for number, each in enumerate(taken)]
    }
    if config := _configurations(claim, chosen):
        devices["config"] = config
    result: Object = {"devices": devices}
    if (selector := _node_selector(taken, node_name)) is not None:
        result["nodeSelector"] = selector
    return result


def _chosen(alternatives: Sequence[Request], taken: Sequence[AllocatedDevice]) -> Request:
    for each in taken:
        if each.request in alternatives:
            return each.request
    return alternatives[0]


def _device(taken: AllocatedDevice, claim: Object, number: int) -> Object:
    candidate, request = taken.candidate, taken.request
    result: Object = {
        "request": request.name,
        "driver": candidate.id.driver,
        "pool": candidate.id.pool,
        "device": candidate.id.name,
    }
    if request.is_admin:
        result["adminAccess"] = True
    if request.spec.get("tolerations"):
        result["tolerations"] = request.spec["tolerations"]
    for name in ("bindingConditions", "bindingFailureConditions"):
        if candidate.device.get(name):
            result[name] = candidate.device[name]
    if candidate.is_shared:
        # Another claim, or another result of this one, has another part of the device.
        part = f"{claim['metadata']['uid']}/{number}/{candidate.id}"
        result["shareID"] = str(uuid5(NAMESPACE_OID, part))
        if taken.consumed:
            result["consumedCapacity"] = {name: str(each) for name, each in taken.consumed.items()}
    return result


def _configurations(claim: Object, chosen: Sequence[Request]) -> list[Object]:
    """Return the configurations of classes, then those of the claim; no names: for all."""
    configurations: list[Object] = []
    by_class: dict[str, list[Object]] = {}
    for request in chosen:
        name = request.device_class["metadata"]["name"]
        known = by_class.get(name)
        if known is not None:
            for each in known:
                each["requests"].append(request.name)
            continue
        by_class[name] = [
            {"source": "FromClass", "requests": [request.name], **config}
            for config in request.device_class["spec"].get("config") or ()
        ]
        configurations += by_class[name]
    for config in claim["spec"]["devices"].get("config") or ():
        names = config.get("requests") or []
        if not names or any(each.is_named_by(names) for each in chosen):
            configurations.append({"source": "FromClaim", **config, "requests": list(names)})
    for each in configurations:
        names = each["requests"]
        if not names or all(request.is_named_by(names) for request in chosen):
            del each["requests"]
    return configurations


def _node_selector(taken: Sequence[AllocatedDevice], node_name: str) -> Object | None:
    """Return which nodes see all devices; None: all nodes do."""
    merged: dict[str, list[Object]] = {"matchFields": [], "matchExpressions": []}
    for each in taken:
        location = each.candidate.location
        if location.get("nodeName") or each.candidate.device.get("bindsToNode"):
            field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
            return {"nodeSelectorTerms": [{"matchFields": [field]}]}
        for term in (location.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
            for name, requirements in merged.items():
                requirements += [one for one in term.get(name) or () if one not in requirements]
    term = {name: requirements for name, requirements in merged.items() if requirements}
    return {"nodeSelectorTerms": [term]} if term else None
