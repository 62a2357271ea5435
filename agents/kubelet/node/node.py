"""The object and the status of a real node, from the facts of its machine.

machine = look(root)                    reads files of the system, once
new_node(…), conditions(…), status(machine, Self(…), …)
"""

import os
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.agents.client.built_in import NODES
from kvstack.agents.kubelet.eviction.evictions import HARD_THRESHOLDS, amount_of, amount_text
from kvstack.agents.kubelet.runtime.runtime import Abilities
from kvstack.apimachinery.objects.core.conditions import transition_time
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse as parse_quantity
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.well_known import (
    ARCH_LABEL,
    ATTACHED_BY_CONTROLLER_ANNOTATION,
    BETA_ARCH_LABEL,
    BETA_INSTANCE_TYPE_LABEL,
    BETA_OS_LABEL,
    BETA_REGION_LABEL,
    BETA_ZONE_LABEL,
    HOSTNAME_LABEL,
    INSTANCE_TYPE_LABEL,
    OS_LABEL,
    REGION_LABEL,
    ZONE_LABEL,
)

VERSION: Final = "v1.37.1"
_FEATURES: Final = ("ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits")
"""The declared features, in this order."""
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_PRESSURES: Final = (
    # Type; reason and message of the good and of the bad status.
    (
        "MemoryPressure",
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    ),
    (
        "DiskPressure",
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    ),
    (
        "PIDPressure",
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    ),
)


class Machine(NamedTuple):
    """Facts of the machine."""

    architecture: str
    cores: int
    memory_kib: int
    disk_bytes: int
    machine_id: str
    system_uuid: str
    boot_id: str
    kernel: str
    os_image: str
    huge_pages: Mapping[str, int] = {}
    """Bytes of pages that are kept, by size: 2Mi, 1Gi."""
    swap_bytes: int = 0
    is_in_user_namespace: bool = False


@dataclass(frozen=True, slots=True)
class Self:
    """Other facts of a node."""

    name: str
    ips: tuple[str, ...]
    port: int
    pods_max: int
    runtime: str
    """Its name and version: `name://version`."""
    reserved: Mapping[str, str] = field(default_factory=dict)
    """The resources that are reserved for the system."""
    evictions: Mapping[str, str] = field(default_factory=lambda: HARD_THRESHOLDS)
    """Hard thresholds."""


def look(root: Path) -> Machine:
    """Read the facts of the machine; root: a directory of the disk that pods use."""
    disk = os.statvfs(root)
    release = dict(
        line.partition("=")[::2] for line in _read("/etc/os-release").splitlines() if "=" in line
    )
    architecture = platform.machine()
    return Machine(
        _ARCHITECTURES.get(architecture, architecture),
        os.cpu_count() or 1,
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024,
        disk.f_blocks * disk.f_frsize,
        _read("/etc/machine-id") or _read("/var/lib/dbus/machine-id"),
        _read("/sys/class/dmi/id/product_uuid"),
        _read("/proc/sys/kernel/random/boot_id"),
        platform.release(),
        release.get("PRETTY_NAME", "Linux").strip('"'),
        huge_pages(_HUGE_PAGES),
        _swap_bytes(_read("/proc/meminfo")),
        _read("/proc/self/uid_map").split() != ["0", "0", str((1 << 32) - 1)],
    )


_HUGE_PAGES: Final = Path("/sys/kernel/mm/hugepages")


def huge_pages(directory: Path) -> dict[str, int]:
    """Return bytes of pages by their size, of each size that the kernel has."""
    if not directory.is_dir():
        return {}
    found = {}
    for each in sorted(directory.glob("hugepages-*kB")):
        size = int(each.name.removeprefix("hugepages-").removesuffix("kB")) * 1024
        found[amount_text(size)] = size * int(_read(str(each / "nr_hugepages")) or 0)
    return found


def _swap_bytes(memory: str) -> int:
    found = (line.split() for line in memory.splitlines() if line.startswith("SwapTotal:"))
    return next((int(words[1]) * 1024 for words in found), 0)


def _read(path: str) -> str:
    """Return what a file of the system says; not every system has every one."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def new_node(
    name: str,
    machine: Machine,
    labels: Mapping[str, str],
    taints: Sequence[Object] = (),
    provider_id: str = "",
) -> Object:
    """Return a node as it registers itself."""
    own = {
        HOSTNAME_LABEL: name,
        OS_LABEL: "linux",
        ARCH_LABEL: machine.architecture,
        BETA_OS_LABEL: "linux",
        BETA_ARCH_LABEL: machine.architecture,
    }
    spec: Object = {}
    if taints:
        spec["taints"] = list(taints)
    if provider_id:
        spec["providerID"] = provider_id
    return {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "metadata": {
            "name": name,
            "labels": {**own, **labels},
            "annotations": {ATTACHED_BY_CONTROLLER_ANNOTATION: "true"},
        },
        "spec": spec,
    }


LOCAL_PATH: Final = "kvstack.io/local-path"
"""A label of a node on whose disk directories are made as volumes, with the value `true`."""
_ASSERTED: Final = (
    OS_LABEL,
    ARCH_LABEL,
    BETA_OS_LABEL,
    BETA_ARCH_LABEL,
    HOSTNAME_LABEL,
    INSTANCE_TYPE_LABEL,
    ZONE_LABEL,
    REGION_LABEL,
    BETA_ZONE_LABEL,
    BETA_REGION_LABEL,
    BETA_INSTANCE_TYPE_LABEL,
    LOCAL_PATH,
)
"""Labels that the kubelet enforces; all others may be changed by anybody."""


def asserted(fresh: Object, found: Object) -> Object:
    """Return what is missing of a node's metadata; found: the node as it is."""
    missing: Object = {}
    for group in ("labels", "annotations"):
        known = found["metadata"].get(group) or {}
        wanted = {
            key: value
            for key, value in fresh["metadata"][group].items()
            if (group == "annotations" or key in _ASSERTED) and known.get(key) != value
        }
        if wanted:
            missing[group] = wanted
    return missing


def label_problem(name: str) -> str:
    """Return why a node may not give itself a label; empty: it may."""
    space = name.partition("/")[0] if "/" in name else ""
    is_reserved = any(
        space == each or space.endswith(f".{each}") for each in ("kubernetes.io", "k8s.io")
    )
    own = ("kubelet.kubernetes.io", "node.kubernetes.io")
    is_own = any(space == each or space.endswith(f".{each}") for each in own)
    if not is_reserved or is_own or name in _ASSERTED:
        return ""
    return f"unknown 'kubernetes.io' or 'k8s.io' label specified with --node-labels: {name}"


def capacity(machine: Machine, pods_max: int) -> dict[str, str]:
    """Return what a machine has."""
    return {
        "cpu": str(machine.cores),
        "memory": f"{machine.memory_kib}Ki",
        "ephemeral-storage": f"{machine.disk_bytes // 1024}Ki",
        "pods": str(pods_max),
        **_huge_pages(machine),
    }


def _huge_pages(machine: Machine) -> dict[str, str]:
    return {f"hugepages-{size}": amount_text(each) for size, each in machine.huge_pages.items()}


def allocatable(
    machine: Machine,
    pods_max: int,
    reserved: Mapping[str, str] | None = None,
    evictions: Mapping[str, str] = HARD_THRESHOLDS,
) -> dict[str, str]:
    """Return what pods may use.

    reserved: for the system; evictions: hard thresholds, of which nothing is used.
    """
    reserved_amounts = reserved or {}
    cpu_milli = (
        machine.cores * 1000 - parse_quantity(reserved_amounts.get("cpu", "0")).milli_value()
    )
    memory = machine.memory_kib
    memory -= amount_of(evictions.get("memory.available", "0"), machine.memory_kib * 1024) // 1024
    memory -= parse_quantity(reserved_amounts.get("memory", "0")).value() // 1024
    memory -= sum(machine.huge_pages.values()) // 1024
    disk = machine.disk_bytes
    disk -= amount_of(evictions.get("nodefs.available", "0"), machine.disk_bytes)
    disk -= parse_quantity(reserved_amounts.get("ephemeral-storage", "0")).value()
    whole = cpu_milli % 1000 == 0
    return {
        "cpu": str(cpu_milli // 1000) if whole else f"{max(cpu_milli, 0)}m",
        "memory": f"{max(memory, 0)}Ki",
        "ephemeral-storage": str(max(disk, 0)),
        "pods": str(pods_max),
        **_huge_pages(machine),
    }


def conditions(
    old: Sequence[Object], pressures: Collection[str], problem: str, now_s: float
) -> list[Object]:
    """Return the conditions of a node; pressures: types that hold; problem: why it is not ready."""
    now = format_time(now_s)
    before = {each["type"]: each for each in old}
    rows = []
    for type_, good, bad in _PRESSURES:
        holds = type_ in pressures
        rows.append((type_, "True" if holds else "False", *(bad if holds else good)))
    if problem:
        rows.append(("Ready", "False", "KubeletNotReady", problem))
    else:
        rows.append(("Ready", "True", "KubeletReady", "kubelet is posting ready status"))
    updated = []
    for type_, value, reason, message in rows:
        updated.append(
            {
                "type": type_,
                "status": value,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": transition_time(before.get(type_), value, now),
            }
        )
    return updated


def status(
    machine: Machine,
    own: Self,
    images: Sequence[Object],
    conditions: Sequence[Object],
    abilities: Abilities | None = None,
) -> Object:
    """Return the status of a node; images and conditions: as it shows them.

    abilities: of its runtime.
    """
    node_status: Object = {
        "capacity": capacity(machine, own.pods_max),
        "allocatable": allocatable(machine, own.pods_max, own.reserved, own.evictions),
        "addresses": [
            *({"type": "InternalIP", "address": each} for each in own.ips),
            {"type": "Hostname", "address": own.name},
        ],
        "conditions": list(conditions),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": own.port}},
        "declaredFeatures": list(_FEATURES),
        "images": list(images),
        "nodeInfo": {
            "machineID": machine.machine_id,
            "systemUUID": machine.system_uuid,
            "bootID": machine.boot_id,
            "kernelVersion": machine.kernel,
            "osImage": machine.os_image,
            "containerRuntimeVersion": own.runtime,
            "kubeletVersion": VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": machine.architecture,
            **({"swap": {"capacity": machine.swap_bytes}} if machine.swap_bytes else {}),
            "runningInUserNamespace": machine.is_in_user_namespace,
        },
    }
    if abilities is not None and abilities.handlers:
        node_status["runtimeHandlers"] = [
            {"name": name, "features": dict(features)}
            for name, features in sorted(abilities.handlers.items())
        ]
    if abilities is not None and abilities.keeps_to_groups is not None:
        node_status["features"] = {"supplementalGroupsPolicy": abilities.keeps_to_groups}
    return node_status


def same(one: Object, other: Object) -> bool:
    """Whether two statuses differ only in their heartbeats."""
    return _timeless(one) == _timeless(other)


def _timeless(status: Object) -> Object:
    sorted_conditions = sorted(
        (
            {key: value for key, value in each.items() if key != "lastHeartbeatTime"}
            for each in status.get("conditions") or ()
        ),
        key=lambda each: str(each["type"]),
    )
    return {**status, "conditions": sorted_conditions}
