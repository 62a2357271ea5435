"""Admission of pods by a node: resources, ports, and fields that its runtime does not support.

    refusal(pod, node, others, unsupported)     reason and message, or None


What a runtime cannot do is refused, never ignored. The tables below name such fields; the runtime
says which of them it does not honour.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from kvstack.agents.kubelet.pods.resizes import DEFERRED, INFEASIBLE
from kvstack.agents.kubelet.pods.sandboxes import (
    containers_of,
    in_units,
    is_critical,
    is_static,
    qos_of,
    requests_of,
)
from kvstack.agents.kubelet.runtime.runtime import ID
from kvstack.apimachinery.objects.core.pod_resources import COMPUTE
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.core.quality_of_service import CLASSES
from kvstack.apimachinery.objects.core.tolerations import (
    NO_EXECUTE,
    NO_SCHEDULE,
    Taint,
    is_tolerated,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.node_rules import selects, untolerated
from kvstack.apimachinery.well_known import MEMORY_PRESSURE_TAINT, OS_LABEL

Refusal: TypeAlias = tuple[str, str]

_IDS: Final = ("runAsUser", "runAsGroup", "fsGroup")
REASON: Final = "PodFeatureUnsupported"
NODE_AFFINITY: Final = "NodeAffinity"
OUT_OF: Final = "OutOf"
_ANY: Final = "0.0.0.0"
_MEMORY_PRESSURE: Final = Taint(MEMORY_PRESSURE_TAINT, "", NO_SCHEDULE)
_SAFE_SYSCTLS: Final = frozenset(
    (
        "kernel.shm_rmid_forced",
        *(
            f"net.ipv4.{name}"
            for name in (
                "ip_local_port_range",
                "tcp_syncookies",
                "ping_group_range",
                "ip_unprivileged_port_start",
                "ip_local_reserved_ports",
                "tcp_keepalive_time",
                "tcp_keepalive_intvl",
                "tcp_keepalive_probes",
                "tcp_fin_timeout",
                "tcp_rmem",
                "tcp_wmem",
                "tcp_slow_start_after_idle",
                "tcp_notsent_lowat",
            )
        ),
    )
)
_VOLUMES: Final = frozenset(
    (
        *("emptyDir", "configMap", "secret", "downwardAPI", "projected", "hostPath"),
        *("persistentVolumeClaim", "ephemeral", "image", "csi"),
    )
)
_PROJECTED: Final = frozenset(
    (
        *("configMap", "secret", "downwardAPI", "serviceAccountToken"),
        *("clusterTrustBundle", "podCertificate"),
    )
)
_SECURITY: Final = ("seLinuxOptions", "appArmorProfile", "sysctls", "procMount", "windowsOptions")
_DEFAULTS: Final = {"procMount": "Default"}
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")
_OF_IPC: Final = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


def refusal(
    pod: Object,
    node: Object,
    others: Sequence[Object],
    unsupported: Callable[[str], bool],
    *,
    ignores_limits: bool = False,
    allowed_sysctls: Sequence[str] = (),
) -> Refusal | None:
    """Return reason and message of why a node cannot take a pod; None: it can.

    others: the pods that it has taken already. ignores_limits: limits are taken, though nothing
    enforces them. allowed_sysctls: besides those that are safe; `net.*` means all that begin so.
    """
    if (found := _pressed(pod, node)) is not None:
        return found
    if (found := _forbidden_sysctl(pod, allowed_sysctls)) is not None:
        return found
    if (found := _other_system(pod, node, unsupported)) is not None:
        return found
    if (found := _does_not_fit(pod, node, others)) is not None:
        return found
    for field in _unsupported(pod, unsupported, ignores_limits=ignores_limits):
        return (REASON, f"{field} is not supported by the runtime of this node")
    return None


def resize_refusal(pod: Object, node: Object, others: Sequence[Object]) -> Refusal | None:
    """Return why a pod cannot have what it asks for now: Infeasible or Deferred, and a message.

    others: the pods that the node has taken besides.
    """
    if is_static(pod):
        return (INFEASIBLE, "In-place resize of static-pods is not supported")
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    requests = requests_of(pod)
    for name in COMPUTE:
        capacity = in_units(name, allocatable.get(name, 0))
        if name in allocatable and requests.get(name, 0) > capacity:
            text = (
                f"Node didn't have enough capacity: {name}, requested: {requests[name]}, "
                f"capacity: {capacity}"
            )
            return (INFEASIBLE, text)
    used = [requests_of(each) for each in others if not is_ended(each)]
    amounts = {name: requests.get(name, 0) for name in COMPUTE}
    found = _lacks(amounts, used, allocatable)
    return None if found is None else (DEFERRED, found[1])


def victims(pod: Object, node: Object, others: Sequence[Object]) -> list[Object] | None:
    """Return the pods that make room for a critical one; None: there is not enough of them.

    By class, and of a class first what leaves least missing; none is taken that is not needed.
    """
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    active = [each for each in others if not is_ended(each)]
    chosen: list[Object] = []

    def missing(without: Sequence[Object]) -> dict[str, int]:
        rest = [each for each in active if not any(each is one for one in without)]
        return _missing(pod, allocatable, rest)

    for name in reversed(CLASSES):
        waiting = [each for each in active if qos_of(each) == name and not is_critical(each)]
        while waiting and (before := missing(chosen)):
            best = min(
                waiting,
                key=lambda each: (
                    sum(missing([*chosen, each]).values()),
                    sum(_count(each).values()),
                ),
            )
            waiting = [each for each in waiting if each is not best]
            if missing([*chosen, best]) != before:
                chosen.append(best)
    if missing(chosen):
        return None
    for each in list(chosen):
        fewer = [one for one in chosen if one is not each]
        if not missing(fewer):
            chosen = fewer
    return chosen


def _missing(
    pod: Object, allocatable: Mapping[str, str], others: Sequence[Object]
) -> dict[str, int]:
    """Return of what there is too little for a pod beside others."""
    counts = [_count(each) for each in (pod, *others)]
    return {
        name: over
        for name in _count(pod)
        if name in allocatable
        and (over := sum(each.get(name, 0) for each in counts) - in_units(name, allocatable[name]))
        > 0
    }


def _count(pod: Object) -> dict[str, int]:
    return {**requests_of(pod), "pods": 1}


def _pressed(pod: Object, node: Object) -> Refusal | None:
    """Refuse what a node under pressure does not take."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    pressures = [
        each["type"]
        for each in conditions
        if each["type"] in _PRESSURES and each["status"] == "True"
    ]
    if not pressures or is_critical(pod):
        return None
    if pressures == ["MemoryPressure"]:
        tolerations = pod["spec"].get("tolerations") or ()
        if qos_of(pod) != "BestEffort" or is_tolerated(_MEMORY_PRESSURE, tolerations):
            return None
    return ("Evicted", f"The node had condition: [{' '.join(pressures)}]. ")


def _does_not_fit(pod: Object, node: Object, others: Sequence[Object]) -> Refusal | None:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    active = [each for each in others if not is_ended(each)]
    limit = int(allocatable.get("pods", 0))
    if allocatable and len(active) + 1 > limit:
        return (
            f"{OUT_OF}pods",
            f"Node didn't have enough resource: pods, requested: 1, used: {len(active)}, "
            f"capacity: {limit}",
        )
    used = [requests_of(each) for each in active]
    if (found := _lacks(requests_of(pod), used, allocatable)) is not None:
        return found
    return _does_not_match(pod, node) or _ports_taken(pod, active) or _is_kept_away(pod, node)


def _lacks(
    asked: Mapping[str, int], used: Sequence[Mapping[str, int]], allocatable: Mapping[str, str]
) -> Refusal | None:
    """Return of what there is too little."""
    for name, wanted in asked.items():
        if not wanted or name not in allocatable:
            continue  # what a node does not know of is left to the scheduler
        capacity = in_units(name, allocatable[name])
        taken = sum(each.get(name, 0) for each in used)
        if taken + wanted > capacity:
            return (
                f"{OUT_OF}{name}",
                f"Node didn't have enough resource: {name}, requested: {wanted}, "
                f"used: {taken}, capacity: {capacity}",
            )
    return None


def _does_not_match(pod: Object, node: Object) -> Refusal | None:
    spec = pod["spec"]
    # A node that is not known yet has no labels.
    if (node.get("metadata") or {}).get("labels") and not selects(spec, node):
        text = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        return (NODE_AFFINITY, text)
    return None


def _other_system(pod: Object, node: Object, unsupported: Callable[[str], bool]) -> Refusal | None:
    """Refuse pods of other systems, and groups that the runtime cannot keep to."""
    spec = pod["spec"]
    labels = (node.get("metadata") or {}).get("labels") or {}
    selected = (spec.get("nodeSelector") or {}).get(OS_LABEL)
    if selected and selected != labels.get(OS_LABEL, selected):
        text = f"Failed to admit pod as the `{OS_LABEL}` label doesn't match node label"
        return ("PodOSSelectorNodeLabelDoesNotMatch", text)
    system = (spec.get("os") or {}).get("name")
    if system and system != "linux":
        text = "Failed to admit pod as the OS field doesn't match node OS"
        return ("PodOSNotSupported", text)
    groups = (spec.get("securityContext") or {}).get("supplementalGroupsPolicy")
    if groups == "Strict" and unsupported("supplementalGroupsPolicy"):
        text = "SupplementalGroupsPolicy=Strict is not supported in this node"
        return ("SupplementalGroupsPolicyNotSupported", text)
    return None


def _forbidden_sysctl(pod: Object, allowed: Sequence[str]) -> Refusal | None:
    spec = pod["spec"]
    for each in (spec.get("securityContext") or {}).get("sysctls") or ():
        name = each["name"].replace("/", ".")
        is_allowed = name in _SAFE_SYSCTLS or any(
            name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in allowed
        )
        problem = "" if is_allowed else "not allowlisted"
        if spec.get("hostNetwork") and name.startswith("net."):
            problem = "not allowed with host net enabled"
        elif spec.get("hostIPC") and name.startswith(_OF_IPC):
            problem = "not allowed with host ipc enabled"
        if problem:
            return ("SysctlForbidden", f'forbidden sysctl: "{each["name"]}" {problem}')
    return None


def _is_kept_away(pod: Object, node: Object) -> Refusal | None:
    if is_static(pod) or NO_EXECUTE not in untolerated(pod["spec"], node):
        return None
    text = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    return ("TaintToleration", text)


def _host_ports(pod: Object) -> set[tuple[str, int, str]]:
    return {
        (each.get("protocol", "TCP"), each["hostPort"], each.get("hostIP") or _ANY)
        for container in containers_of(pod)
        for each in container.get("ports") or ()
        if each.get("hostPort")
    }


def _ports_taken(pod: Object, others: Sequence[Object]) -> Refusal | None:
    wanted = _host_ports(pod)
    taken = {port for other in others for port in _host_ports(other)} if wanted else set()
    if any(one[:2] == two[:2] and _meet(one[2], two[2]) for one in wanted for two in taken):
        text = (
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
        )
        return ("NodePorts", text)
    return None


def _meet(one: str, other: str) -> bool:
    """Whether the same port at two addresses conflicts."""
    return one == other or _ANY in (one, other)


def _unsupported(
    pod: Object, unsupported: Callable[[str], bool], *, ignores_limits: bool
) -> Iterator[str]:
    """Give what this node cannot do of what a pod asks for."""
    spec = pod["spec"]
    for name in ("runtimeClassName", "dnsConfig", "hostPID"):
        if spec.get(name) and unsupported(name):
            yield f"spec.{name}"
    if spec.get("hostUsers") is False and unsupported("hostUsers"):
        yield "spec.hostUsers: false"
    if spec.get("resourceClaims"):
        yield "spec.resourceClaims"
    context = spec.get("securityContext") or {}
    yield from _of_security(context, unsupported, "spec.securityContext.")
    for volume in spec.get("volumes") or ():
        yield from _of_volume(volume)
    for container in containers_of(pod):
        prefix = f'container "{container["name"]}": '
        own = container.get("securityContext") or {}
        yield from _of_security(own, unsupported, f"{prefix}securityContext.")
        limits = (container.get("resources") or {}).get("limits")
        if limits and unsupported("limits") and not ignores_limits:
            yield f"{prefix}resources.limits"
        for name in limits or ():
            if name.startswith("hugepages-") and unsupported("hugepages"):
                yield f"{prefix}resources.limits.{name}"
        for mount in container.get("volumeMounts") or ():
            if mount.get("recursiveReadOnly") == "Enabled" and unsupported("recursiveReadOnly"):
                yield f"{prefix}volumeMounts.recursiveReadOnly"


def _of_ids(context: Object, unsupported: Callable[[str], bool], prefix: str) -> Iterator[str]:
    """Yield the ids that a pod requests and that are not mapped on a node without root."""
    for name in _IDS:
        if (number := context.get(name)) is not None and unsupported(f"{ID}{number}"):
            yield f"{prefix}{name}: {number} (a node without root, whose user has no such id)"
    for number in context.get("supplementalGroups") or ():
        if unsupported(f"{ID}{number}"):
            yield f"{prefix}supplementalGroups: {number}"


def _of_security(context: Object, unsupported: Callable[[str], bool], prefix: str) -> Iterator[str]:
    for name in _SECURITY:
        given = context.get(name)
        if given and given != _DEFAULTS.get(name) and unsupported(name):
            yield f"{prefix}{name}"
    yield from _of_ids(context, unsupported, prefix)
    profile = (context.get("seccompProfile") or {}).get("type")
    if profile in ("Localhost", "RuntimeDefault") and unsupported(profile):
        yield f"{prefix}seccompProfile: {profile}"


def _of_volume(volume: Object) -> Iterator[str]:
    name = volume["name"]
    kinds = [each for each in volume if each != "name"]
    yield from (f'volume "{name}": {each}' for each in kinds if each not in _VOLUMES)
    medium = (volume.get("emptyDir") or {}).get("medium") or "Memory"
    if medium != "Memory":
        yield f'volume "{name}": emptyDir.medium: {medium}'
    for source in (volume.get("projected") or {}).get("sources") or ():
        yield from (f'volume "{name}": {each}' for each in source if each not in _PROJECTED)
