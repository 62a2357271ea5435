"""The resource usage of a node, its pods and containers: /stats/summary, and samples of metrics.

    sampler = Sampler(kubelet, clock)
    sample = await sampler.take()          at most once a second is looked anew
    summary(sample), resource_metrics(sample), container_metrics(sample)

Values that the machine does not report are left out.
"""

import asyncio
import os
import resource
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kvstack.agents.kubelet.eviction.measures import memory_of
from kvstack.agents.kubelet.pods.sandboxes import containers_of, quantity
from kvstack.agents.kubelet.runtime.process.layer_sizes import Size, size_of
from kvstack.agents.kubelet.runtime.runtime import Usage
from kvstack.agents.kubelet.server import interfaces
from kvstack.agents.kubelet.server.interfaces import Traffic
from kvstack.agents.kubelet.volumes.volume_stats import VolumeStats
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time
from kvstack.component.clock import Clock

if TYPE_CHECKING:
    from kvstack.agents.kubelet.kubelet import Kubelet


_FRESH_S: Final = 1.0
_OWN: Final = " "
_OF_DRIVERS: Final = "kubernetes.io~csi"
_HELD: Final = ("emptyDir", "configMap", "secret", "downwardAPI", "projected")


class Machine(NamedTuple):
    """The resource usage of the machine."""

    cpu_ns: int
    memory_bytes: int
    working_set_bytes: int
    available_bytes: int
    rss_bytes: int
    traffic: Sequence[Traffic]
    """The traffic of all interfaces."""
    processes: int
    processes_max: int
    swap_total_bytes: int
    swap_bytes: int
    own: "Own"


class Own(NamedTuple):
    """What this process uses."""

    cpu_ns: int
    memory_bytes: int
    page_faults: int
    major_page_faults: int


class Sample(NamedTuple):
    """The usage at a time."""

    now_s: float
    machine: Machine
    usage: Sequence[Usage]
    rates: Mapping[str, int]
    """Nanoseconds of cores a second, by id of the container; "" is the machine's, " " ours."""
    pods: Sequence[Object]
    kubelet: "Kubelet"


class Sampler:
    """Looks what is used; all of it belongs to one loop."""

    def __init__(self, kubelet: "Kubelet", clock: Clock) -> None:
        """Look nothing yet."""
        self._kubelet = kubelet
        self._clock = clock
        self._last: Sample | None = None

    async def take(self) -> Sample:
        """Return what is used now, or was a moment ago."""
        now = self._clock.now_s()
        last = self._last
        if last is not None and now - last.now_s < _FRESH_S:
            return last
        usage = await self._kubelet.runtime.usage()
        machine = await asyncio.to_thread(_machine)
        cpu = {
            "": machine.cpu_ns,
            _OWN: machine.own.cpu_ns,
            **{each.container.id: each.cpu_ns for each in usage},
        }
        rates = {}
        if last is not None:
            before = {"": last.machine.cpu_ns, _OWN: last.machine.own.cpu_ns}
            before |= {each.container.id: each.cpu_ns for each in last.usage}
            span = now - last.now_s
            rates = {
                key: max(int((value - before[key]) / span), 0)
                for key, value in cpu.items()
                if key in before
            }
        self._last = Sample(now, machine, usage, rates, self._kubelet.pods(), self._kubelet)
        return self._last


def _machine() -> Machine:
    ticks = os.sysconf("SC_CLK_TCK")
    stat = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle = int(stat[3]) + int(stat[4])
    busy = sum(int(each) for each in stat[:8]) - idle
    memory = memory_of(Path("/proc/meminfo").read_text())
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    return Machine(
        busy * 1_000_000_000 // ticks,
        memory.used,
        memory.working_set,
        max(memory.total - memory.working_set, 0),
        memory.rss,
        interfaces.read(Path("/proc/net/dev").read_text()),
        running,
        int(Path("/proc/sys/kernel/pid_max").read_text()),
        memory.swap_total,
        memory.swap_used,
        _own(),
    )


def _own() -> Own:
    used = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    cpu_s = used.ru_utime + used.ru_stime
    size = pages * resource.getpagesize()
    return Own(int(cpu_s * 1e9), size, used.ru_minflt, used.ru_majflt)


def _cpu(sample: Sample, now: str, total_ns: int, keys: Sequence[str]) -> Object:
    found: Object = {"time": now, "usageCoreNanoSeconds": total_ns}
    if all(key in sample.rates for key in keys):
        found["usageNanoCores"] = sum(sample.rates[key] for key in keys)
    return found


def _file_system(
    now: str, path: Path, used: int | None = None, inodes: int | None = None
) -> Object:
    disk = os.statvfs(path)
    capacity = disk.f_blocks * disk.f_frsize
    available = disk.f_bavail * disk.f_frsize
    return {
        "time": now,
        "availableBytes": available,
        "capacityBytes": capacity,
        "usedBytes": capacity - disk.f_bfree * disk.f_frsize if used is None else used,
        "inodesFree": disk.f_ffree,
        "inodes": disk.f_files,
        "inodesUsed": disk.f_files - disk.f_ffree if inodes is None else inodes,
    }


def summary(sample: Sample, *, only_cpu_and_memory: bool = False) -> Object:
    """Return /stats/summary; it reads the disk."""
    now, machine = format_time(sample.now_s), sample.machine
    root, started = sample.kubelet.options.root, format_time(sample.kubelet.started_s)
    node: Object = {
        "nodeName": sample.kubelet.options.name,
        "systemContainers": [_kubelet(sample, now), _all_pods(sample, now)],
        "startTime": started,
        "cpu": _cpu(sample, now, machine.cpu_ns, [""]),
        "memory": {
            "time": now,
            "availableBytes": machine.available_bytes,
            "usageBytes": machine.memory_bytes,
            "workingSetBytes": machine.working_set_bytes,
            "rssBytes": machine.rss_bytes,
        },
        "swap": {
            "time": now,
            "swapAvailableBytes": machine.swap_total_bytes - machine.swap_bytes,
            "swapUsageBytes": machine.swap_bytes,
        },
    }
    if not only_cpu_and_memory:
        disk = _file_system(now, root)
        node |= {
            "network": _network(now, interfaces.of_node(machine.traffic)),
            "fs": disk,
            "runtime": {"imageFs": disk, "containerFs": disk},
            "rlimit": {
                "time": now,
                "maxpid": machine.processes_max,
                "curproc": machine.processes,
            },
        }
    pods = [_pod(sample, each, now, only_cpu_and_memory) for each in sample.pods]
    return {"node": node, "pods": pods}


def _network(now: str, traffic: Sequence[Traffic]) -> Object:
    shown = [
        {"name": name, "rxBytes": got, "rxErrors": bad, "txBytes": sent, "txErrors": lost}
        for name, got, bad, sent, lost, *_ in traffic
    ]
    return {"time": now, **(shown[0] if shown else {"name": ""}), "interfaces": shown}


def _pod(sample: Sample, pod: Object, now: str, only_cpu_and_memory: bool) -> Object:  # noqa: FBT001
    meta = pod["metadata"]
    used = [each for each in sample.usage if each.container.pod_uid == meta["uid"]]
    directory = sample.kubelet.pod_directory(meta["uid"])
    containers = []
    limits = _memory_limits(pod)
    for each in used:
        container_stats: Object = {
            "name": each.container.name,
            "startTime": format_time(each.container.started_s),
            "cpu": _cpu(sample, now, each.cpu_ns, [each.container.id]),
            "memory": _memory(now, [each], limits.get(each.container.name, 0)),
            **_swap(now, [each]),
        }
        if not only_cpu_and_memory and directory.is_dir():
            container_stats["rootfs"] = _file_system(
                now, directory, each.files_bytes, each.files_inodes
            )
            log = each.container.log
            size = log.stat().st_size if log.exists() else 0
            container_stats["logs"] = _file_system(now, directory, size, 1)
        containers.append(container_stats)
    summary: Object = {
        "podRef": {key: meta[key] for key in ("name", "namespace", "uid")},
        "startTime": (pod.get("status") or {}).get("startTime"),
        "containers": containers,
    }
    if used:
        ids = [each.container.id for each in used]
        summary["cpu"] = _cpu(sample, now, sum(each.cpu_ns for each in used), ids)
        summary["memory"] = _memory(now, used)
        summary |= _swap(now, used)
        summary["process_stats"] = {"process_count": sum(each.processes for each in used)}
    own = interfaces.of_pod(sample.machine.traffic, meta["uid"])
    if not only_cpu_and_memory and own is not None:
        summary["network"] = _network(now, [own])
    if not only_cpu_and_memory and directory.is_dir():
        claimed = sample.kubelet.volume_stats(meta["uid"])
        summary["volume"] = [
            *_volumes(pod, directory, now),
            *(_claimed(each, meta["namespace"], now) for each in claimed),
        ]
        taken = _own_size(directory)
        summary["ephemeral-storage"] = _file_system(now, directory, taken.bytes, taken.inodes)
    return summary


def _memory_limits(pod: Object) -> dict[str, int]:
    """Return the limits of containers that have one, by name."""
    limits = {
        each["name"]: ((each.get("resources") or {}).get("limits") or {}).get("memory")
        for each in containers_of(pod)
    }
    return {name: quantity(limit) for name, limit in limits.items() if limit is not None}


def _swap(now: str, used: Sequence[Usage]) -> Object:
    """Return what containers have on disk of their memory; nothing where that is not counted."""
    amounts = [each.counts.swap_bytes for each in used]
    known = [each for each in amounts if each is not None]
    if len(known) < len(amounts):
        return {}
    return {"swap": {"time": now, "swapUsageBytes": sum(known)}}


def _memory(now: str, used: Sequence[Usage], limit: int = 0) -> Object:
    """limit: 0: there is none."""
    free = limit - sum(each.working_set_bytes for each in used)
    return {
        "time": now,
        **({"availableBytes": max(free, 0)} if limit else {}),
        "usageBytes": sum(each.memory_bytes for each in used),
        "workingSetBytes": sum(each.working_set_bytes for each in used),
        "rssBytes": sum(each.rss_bytes for each in used),
        "pageFaults": sum(each.page_faults for each in used),
        "majorPageFaults": sum(each.major_page_faults for each in used),
    }


def _volumes(pod: Object, directory: Path, now: str) -> Iterator[Object]:
    for volume in pod["spec"].get("volumes") or ():
        if any(kind in volume for kind in _HELD):
            found = list(directory.glob(f"volumes/*/{volume['name']}"))
            if found:
                size = size_of(found[0])
                shown = _file_system(now, found[0], size.bytes, size.inodes)
                yield {"name": volume["name"], **shown}


def _claimed(stats: VolumeStats, namespace: str, now: str) -> Object:
    """Return the usage of the volume of a claim or a driver."""
    volume: Object = {"name": stats.name, "time": now}
    if stats.claim:
        volume["pvcRef"] = {"name": stats.claim, "namespace": namespace}
    if (own := stats.fill.bytes) is not None:
        volume |= {
            "availableBytes": own.available,
            "capacityBytes": own.total,
            "usedBytes": own.used,
        }
    if (own := stats.fill.inodes) is not None:
        volume |= {"inodesFree": own.available, "inodes": own.total, "inodesUsed": own.used}
    return volume


def _own_size(directory: Path) -> Size:
    """Return what a pod takes of the node's disk; what drivers have mounted is not its own."""
    parts = [each for each in directory.iterdir() if each.name not in ("volumes", "volumeDevices")]
    volumes = directory / "volumes"
    if volumes.is_dir():
        parts += [each for each in volumes.iterdir() if each.name != _OF_DRIVERS]
    sizes = [size_of(each) for each in parts]
    taken = sum(each.lstat().st_blocks * 512 for each in parts)
    return Size(
        taken + sum(each.bytes for each in sizes), len(parts) + sum(each.inodes for each in sizes)
    )


def _kubelet(sample: Sample, now: str) -> Object:
    """Return what this process uses: with `kvstack up`, all of it."""
    own = sample.machine.own
    return {
        "name": "kubelet",
        "startTime": format_time(sample.kubelet.started_s),
        "cpu": _cpu(sample, now, own.cpu_ns, [_OWN]),
        "memory": {
            "time": now,
            "usageBytes": own.memory_bytes,
            "workingSetBytes": own.memory_bytes,
            "rssBytes": own.memory_bytes,
            "pageFaults": own.page_faults,
            "majorPageFaults": own.major_page_faults,
        },
    }


def _all_pods(sample: Sample, now: str) -> Object:
    """Return what all pods use together."""
    used = list(sample.usage)
    return {
        "name": "pods",
        "startTime": format_time(sample.kubelet.started_s),
        "cpu": _cpu(
            sample, now, sum(each.cpu_ns for each in used), [each.container.id for each in used]
        ),
        "memory": _memory(now, used),
    }
