"""The object and the status of a hollow node.

Nodes have numbers from 1 on, in the order in which they were seen. Addresses follow from numbers:
127.0.0.11 for the first node of the process, 127.0.0.20 + number for a node that others made.
"""

from ipaddress import IPv4Address
from typing import Final

from kvstack.agents.client.built_in import NODES
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_subdomain
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.well_known import ARCH_LABEL, HOSTNAME_LABEL, OS_LABEL, ZONE_LABEL

LABEL: Final = "hollow"
"""A node with this label set to `true` is hollow, regardless of who created it."""
CAPACITY: Final = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"}
KUBELET_PORT: Final = 10250

_NODES_MAX: Final = 10_000
_ZONES: Final = ("zone-a", "zone-b", "zone-c")
_LOOPBACK: Final = IPv4Address("127.0.0.0")
_OWN_OFFSET: Final = 10
_ADOPTED_OFFSET: Final = 20
_INFO: Final = {
    "machineID": "",
    "systemUUID": "",
    "bootID": "",
    "kernelVersion": "6.1.0-hollow",
    "osImage": "Hollow Linux",
    "containerRuntimeVersion": "hollow://1.0",
    "kubeletVersion": "v1.37.1",
    "kubeProxyVersion": "",
    "operatingSystem": "linux",
    "architecture": "amd64",
}
_CONDITIONS: Final = (
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
"""Type, status, reason, message."""


def named(count: int, prefix: str = "hollow-") -> tuple[str, ...]:
    """Return names of nodes, from 1 on."""
    return tuple(f"{prefix}{number}" for number in range(1, count + 1))


def names_of(text: str) -> tuple[str, ...]:
    """Return the names of nodes that a flag asks for, by count or by name; ValueError."""
    if text.isdecimal():
        if int(text) > _NODES_MAX:
            raise ValueError(f"{text}: a number from 0 to {_NODES_MAX}")
        return named(int(text))
    names = tuple(each.strip() for each in text.split(","))
    for name in names:
        if wrong := check_dns_subdomain(name):
            raise ValueError(f"{name}: {wrong[0]}")
    return names


def new_node(name: str, number: int) -> Object:
    """Return a node as it registers itself; zones take turns."""
    labels = {
        LABEL: "true",
        HOSTNAME_LABEL: name,
        OS_LABEL: "linux",
        ARCH_LABEL: "amd64",
        ZONE_LABEL: _ZONES[(number - 1) % len(_ZONES)],
    }
    return {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "metadata": {"name": name, "labels": labels},
    }


def is_hollow(node: Object) -> bool:
    """Whether a node is marked as hollow."""
    return (node["metadata"].get("labels") or {}).get(LABEL) == "true"


def address(number: int, *, is_own: bool) -> str:
    """Return the internal IP of a node; is_own: this process made it."""
    return str(_LOOPBACK + number + (_OWN_OFFSET if is_own else _ADOPTED_OFFSET))


def has_conditions(node: Object) -> bool:
    """Whether the status of a node was written."""
    return bool((node.get("status") or {}).get("conditions"))


def internal_ip(node: Object) -> str:
    """Return the address that a node says it has; empty: none."""
    addresses = (node.get("status") or {}).get("addresses") or ()
    return next((str(each["address"]) for each in addresses if each["type"] == "InternalIP"), "")


def status(node_ip: str, now_s: float) -> Object:
    """Return the status of a ready node."""
    return {
        "capacity": CAPACITY,
        "allocatable": CAPACITY,
        "addresses": [{"type": "InternalIP", "address": node_ip}],
        "conditions": conditions(now_s),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        "nodeInfo": _INFO,
    }


def conditions(now_s: float) -> list[Object]:
    """Return the conditions of a ready node."""
    now = format_time(now_s)
    return [
        {
            "type": type_,
            "status": value,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for type_, value, reason, message in _CONDITIONS
    ]


def is_given_up(node: Object) -> bool:
    """Whether the cluster has declared a node dead: its leases came too late."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition.get("reason") == "NodeStatusUnknown" for condition in conditions)
