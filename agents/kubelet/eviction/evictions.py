"""Which pod is evicted first under pressure (`pressures`), and the messages.

    victim = first_to_go(pods, usage, signal)

A threshold is an amount, or a share of what the machine has ("10%"). Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kvstack.agents.kubelet.pods.sandboxes import is_critical, quantity, requests_of
from kvstack.apimachinery.objects.json_object import Object

LOCAL_STORAGE: Final = "localStorage.available"
"""What is left of the limit of all pods' disk usage (`EvictionOptions`); the kubelet has none."""
HARD_THRESHOLDS: Final = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
}
"""What a node keeps available unless something else is configured."""
CONDITIONS: Final = {
    "memory.available": "MemoryPressure",
    "nodefs.available": "DiskPressure",
    "nodefs.inodesFree": "DiskPressure",
    "imagefs.available": "DiskPressure",
    "imagefs.inodesFree": "DiskPressure",
    "pid.available": "PIDPressure",
    LOCAL_STORAGE: "DiskPressure",
}
RESOURCES: Final = {
    "memory.available": "memory",
    "nodefs.available": "ephemeral-storage",
    "nodefs.inodesFree": "inodes",
    "imagefs.available": "ephemeral-storage",
    "imagefs.inodesFree": "inodes",
    "pid.available": "pids",
    LOCAL_STORAGE: "ephemeral-storage",
}


class Measure(NamedTuple):
    """The available amount and the capacity of a signal."""

    available: int
    capacity: int


class Shortage(NamedTuple):
    """A signal below its threshold."""

    signal: str
    threshold: str
    available: int
    is_soft: bool = False


def amount_of(threshold: str, capacity: int) -> int:
    """Return a threshold as an amount."""
    if threshold.endswith("%"):
        return int(capacity * float(threshold[:-1]) / 100)
    return quantity(threshold)


def first_to_go(pods: Iterable[Object], used: Mapping[str, int], signal: str) -> Object | None:
    """Return the pod that is evicted; used: of what is short, by uid; None: none may be."""
    resource = RESOURCES[signal]

    def order(pod: Object) -> tuple[bool, int, int]:
        asked = requests_of(pod).get(resource, 0)
        over = used.get(pod["metadata"]["uid"], 0) - asked
        return (over <= 0, pod["spec"].get("priority") or 0, -over)

    candidates = [each for each in pods if not is_critical(each)]
    return min(candidates, key=order, default=None)


def message(shortage: Shortage, pod: Object, used: Mapping[str, int]) -> str:
    """Return what is said of a pod that is evicted; used: by name of the container."""
    resource = RESOURCES[shortage.signal]
    parts = [
        f"The node was low on resource: {resource}. "
        f"Threshold quantity: {shortage.threshold}, available: {amount_text(shortage.available)}. "
    ]
    for container in pod["spec"]["containers"]:
        taken = used.get(container["name"])
        requests = (container.get("resources") or {}).get("requests") or {}
        asked = requests.get(resource, "0")
        if taken is not None and taken > quantity(asked):
            parts.append(
                f"Container {container['name']} was using {amount_text(taken)}, "
                f"request is {asked}, "
                f"has larger consumption of {resource}. "
            )
    return "".join(parts)


def offenders(shortage: Shortage, pod: Object, used: Mapping[str, int]) -> dict[str, str]:
    """Return annotations of the event of an eviction; used: by name of the container."""
    resource = RESOURCES[shortage.signal]
    containers = []
    for container in pod["spec"]["containers"]:
        taken = used.get(container["name"])
        requests = (container.get("resources") or {}).get("requests") or {}
        if taken is not None and taken > quantity(requests.get(resource, "0")):
            containers.append((container["name"], amount_text(taken)))
    return {
        "offending_containers": ",".join(name for name, _ in containers),
        "offending_containers_usage": ",".join(taken for _, taken in containers),
        "starved_resource": resource,
    }


def amount_text(number: int) -> str:
    """Return an amount as quantities show it."""
    for unit, name in ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")):
        if number and number % unit == 0:
            return f"{number // unit}{name}"
    return str(number)


def over_local_limits(pod: Object, volumes: Mapping[str, int], layers: Mapping[str, int]) -> str:
    """Return why a pod takes more of the disk than it may; empty: it does not.

    volumes: bytes of emptyDirs by name; layers: bytes of containers by name.
    """
    spec = pod["spec"]
    for volume in spec.get("volumes") or ():
        limit = (volume.get("emptyDir") or {}).get("sizeLimit")
        if limit and quantity(limit) and volumes.get(volume["name"], 0) > quantity(limit):
            return f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{limit}". '
    limits = []
    for container in spec["containers"]:
        limit = ((container.get("resources") or {}).get("limits") or {}).get("ephemeral-storage")
        limits.append(limit)
        if limit and layers.get(container["name"], 0) > quantity(limit):
            name = container["name"]
            return f'Container {name} exceeded its local ephemeral storage limit "{limit}". '
    total = sum(quantity(each) for each in limits if each)
    if limits and all(limits) and sum(layers.values()) + sum(volumes.values()) > total:
        return (
            "Pod ephemeral local storage usage exceeds the total limit of containers "
            f"{amount_text(total)}. "
        )
    return ""
