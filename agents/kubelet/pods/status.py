"""The status of a pod: its phase, addresses and message.

A status is made anew each time from the pod and its containers (`container_statuses`,
`conditions`); what others own of it is kept by who writes it.
"""

from collections.abc import Mapping, Sequence

from kvstack.agents.kubelet.pods.conditions import conditions_of
from kvstack.agents.kubelet.pods.container_statuses import (
    Seen,
    ephemeral_statuses,
    init_statuses,
    regular_statuses,
    shorten_messages,
)
from kvstack.agents.kubelet.pods.environment import Addresses
from kvstack.agents.kubelet.pods.sandboxes import qos_of
from kvstack.agents.kubelet.pods.worker import Memory, begins_again, newest
from kvstack.agents.kubelet.runtime.runtime import Container
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.core.pod_status import ENDED_PHASES
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time


def status_of(
    pod: Object,
    containers: Sequence[Container],
    memory: Memory,
    addresses: Addresses,
    runtime: str,
    now_s: float,
    *,
    is_over: bool = False,
) -> Object:
    """Return the status of a pod that was admitted; is_over: nothing runs, and nothing will.

    addresses: without any of the pod: it has none yet, or it had some and is over.
    """
    old = pod.get("status") or {}
    seen = Seen(pod, _history(containers), memory, runtime)
    inits = init_statuses(seen)
    regular = regular_statuses(seen, is_over=is_over)
    shorten_messages([*inits, *regular])
    phase = _phase(pod, newest(containers), memory, is_over=is_over)
    now = format_time(now_s)
    status: Object = {
        "phase": phase,
        "observedGeneration": pod["metadata"].get("generation", 1),
        "startTime": old.get("startTime") or now,
        "hostIP": addresses.hosts[0],
        "hostIPs": [{"ip": each} for each in addresses.hosts],
        "conditions": conditions_of(pod, phase, inits, regular, memory, now),
        "containerStatuses": sorted(regular, key=lambda each: each["name"]),
    }
    if addresses.pods:
        pod_ips = [{"ip": each} for each in addresses.pods]
        status |= {"podIP": addresses.pods[0], "podIPs": pod_ips}
    elif old.get("podIP"):
        status |= {"podIP": old["podIP"], "podIPs": old.get("podIPs") or [{"ip": old["podIP"]}]}
    if inits:
        status["initContainerStatuses"] = inits
    if ephemeral := ephemeral_statuses(seen):
        status["ephemeralContainerStatuses"] = ephemeral
    if memory.reason:
        status |= {"reason": memory.reason, "message": memory.message}
    return status


def _history(containers: Sequence[Container]) -> dict[str, list[Container]]:
    found: dict[str, list[Container]] = {}
    for each in containers:
        found.setdefault(each.name, []).append(each)
    return found


def refused_status(pod: Object, reason: str, message: str, now_s: float) -> Object:
    """Return the status of a pod that the node does not take."""
    old = pod.get("status") or {}
    return {
        "phase": "Failed",
        "observedGeneration": pod["metadata"].get("generation", 1),
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "qosClass": qos_of(pod),
        "startTime": old.get("startTime") or format_time(now_s),
    }


# Phase.


def _phase(
    pod: Object, containers_by_name: Mapping[str, Container], memory: Memory, *, is_over: bool
) -> str:
    """Return the phase of a pod; one that has ended stays so."""
    old: str = (pod.get("status") or {}).get("phase", "Pending")
    if old in ENDED_PHASES:
        return old
    if memory.has_failed:
        return "Failed" if is_over else old
    return _phase_of_containers(pod, containers_by_name, memory, is_over=is_over)


def _phase_of_containers(
    pod: Object, containers_by_name: Mapping[str, Container], memory: Memory, *, is_over: bool
) -> str:
    regular = pod["spec"]["containers"]
    # Regular containers start after the init containers.
    if any(each["name"] not in containers_by_name for each in regular):
        return "Failed" if is_over else "Pending"
    started = [(each, containers_by_name[each["name"]]) for each in regular]
    if any(found.is_running for _, found in started):
        return "Running"
    if not is_over and any(begins_again(pod, each, found, memory) for each, found in started):
        return "Running"
    if not is_over and _sidecar_runs(pod["spec"], containers_by_name):
        return "Running"
    return "Failed" if any(found.exit_code for _, found in started) else "Succeeded"


def _sidecar_runs(spec: Object, known: Mapping[str, Container]) -> bool:
    names = [each["name"] for each in spec.get("initContainers") or () if is_sidecar(each)]
    return any(name in known and known[name].is_running for name in names)
