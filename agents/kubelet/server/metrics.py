"""Metrics of a node in Prometheus' text format.

/metrics            the kubelet's own
/metrics/resource   what metrics-server reads: each sample with its time
/metrics/cadvisor   of containers, by the names that dashboards know
/metrics/probes     results of probes
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kvstack.agents.kubelet.disk.mount_table import source_of
from kvstack.agents.kubelet.pods.sandboxes import containers_of, quantity
from kvstack.agents.kubelet.runtime.runtime import Counts
from kvstack.agents.kubelet.server import interfaces
from kvstack.agents.kubelet.server.interfaces import Traffic
from kvstack.agents.kubelet.server.stats import Sample
from kvstack.agents.kubelet.volumes.volume_stats import Fill
from kvstack.agents.process.own_metrics import own_metrics
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.component.metrics.exposition import render
from kvstack.component.metrics.histograms import Histogram

if TYPE_CHECKING:
    from kvstack.agents.kubelet.kubelet import Kubelet

_PERIOD_US: Final = 100_000
_SHARES_MIN: Final = 2
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Page:
    """Families of samples, in the order of their first use."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}

    def add(
        self,
        name: str,
        kind: str,
        value: float,
        labels: Mapping[str, str] | None = None,
        time_ms: int | None = None,
    ) -> None:
        lines = self._families.setdefault(name, [f"# TYPE {name} {kind}"])
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in (labels or {}).items())
        stamp = "" if time_ms is None else f" {time_ms}"
        lines.append(f"{name}{{{shown}}} {value}{stamp}" if shown else f"{name} {value}{stamp}")

    def add_histogram(self, name: str, found: Histogram, labels: Mapping[str, str]) -> None:
        lines = self._families.setdefault(name, [f"# TYPE {name} histogram"])
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        own, first = (f"{{{shown}}}", f"{shown},") if shown else ("", "")
        counts = list(accumulate(found.counts))
        for bound, count in zip((*found.bounds, "+Inf"), counts, strict=True):
            lines.append(f'{name}_bucket{{{first}le="{bound}"}} {count}')
        lines.append(f"{name}_sum{own} {found.total}")
        lines.append(f"{name}_count{own} {counts[-1]}")

    def text(self) -> str:
        return "".join(f"{line}\n" for lines in self._families.values() for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_metrics(sample: Sample) -> str:
    """Return /metrics/resource."""
    page, now = _Page(), int(sample.now_s * 1000)
    page.add("node_cpu_usage_seconds_total", "counter", sample.machine.cpu_ns / 1e9, None, now)
    memory = sample.machine.working_set_bytes
    page.add("node_memory_working_set_bytes", "gauge", memory, None, now)
    page.add("node_swap_usage_bytes", "gauge", sample.machine.swap_bytes, None, now)
    names = _names(sample)
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    swapped: dict[tuple[str, str], int] = {}
    for each in sample.usage:
        pod = names.get(each.container.pod_uid)
        if pod is None:
            continue
        labels = {"container": each.container.name, "namespace": pod[0], "pod": pod[1]}
        cpu, used = each.cpu_ns, each.working_set_bytes
        page.add("container_cpu_usage_seconds_total", "counter", cpu / 1e9, labels, now)
        page.add("container_memory_working_set_bytes", "gauge", used, labels, now)
        started = each.container.started_s
        page.add("container_start_time_seconds", "gauge", started, labels, now)
        if (swap := each.counts.swap_bytes) is not None:
            page.add("container_swap_usage_bytes", "gauge", swap, labels, now)
            swapped[pod] = swapped.get(pod, 0) + swap
        before = totals.get(pod, (0, 0))
        totals[pod] = (before[0] + cpu, before[1] + used)
    for (namespace, name), (cpu, used) in totals.items():
        labels = {"namespace": namespace, "pod": name}
        page.add("pod_cpu_usage_seconds_total", "counter", cpu / 1e9, labels, now)
        page.add("pod_memory_working_set_bytes", "gauge", used, labels, now)
        if (namespace, name) in swapped:
            amount = swapped[namespace, name]
            page.add("pod_swap_usage_bytes", "gauge", amount, labels, now)
    page.add("resource_scrape_error", "gauge", 0)
    return page.text()


def container_metrics(sample: Sample) -> str:
    """Return /metrics/cadvisor."""
    page = _Page()
    names = _names(sample)
    specs = _container_specs(sample)
    machine = sample.kubelet.machine
    page.add("machine_cpu_cores", "gauge", machine.cores)
    page.add("machine_memory_bytes", "gauge", machine.memory_kib * 1024)
    root = {"container": "", "id": "/", "image": "", "name": "", "namespace": "", "pod": ""}
    page.add("container_cpu_usage_seconds_total", "counter", sample.machine.cpu_ns / 1e9, root)
    memory = sample.machine.working_set_bytes
    page.add("container_memory_working_set_bytes", "gauge", memory, root)
    page.add("container_memory_usage_bytes", "gauge", sample.machine.memory_bytes, root)
    page.add("container_memory_rss", "gauge", sample.machine.rss_bytes, root)
    disk = _Disk.of(sample.kubelet.options.root)
    page.add("container_fs_usage_bytes", "gauge", disk.used, {**root, "device": disk.device})
    _add_disk(page, root, disk)
    for one in interfaces.of_node(sample.machine.traffic):
        _add_traffic(page, root, one)
    for uid, (namespace, pod) in names.items():
        own = interfaces.of_pod(sample.machine.traffic, uid)
        if own is not None:
            labels = {"id": f"/kubepods/pod{uid}", "namespace": namespace, "pod": pod}
            _add_traffic(page, {**root, **labels}, own)
    for usage in sample.usage:
        container = usage.container
        namespace, pod = names.get(container.pod_uid, ("", ""))
        labels = {
            "container": container.name,
            "id": f"/kubepods/pod{container.pod_uid}/{container.name}-{container.attempt}",
            "image": container.image,
            "name": container.id,
            "namespace": namespace,
            "pod": pod,
        }
        for measure, kind, amount in (
            ("cpu_usage_seconds_total", "counter", usage.cpu_ns / 1e9),
            ("memory_usage_bytes", "gauge", usage.memory_bytes),
            ("memory_working_set_bytes", "gauge", usage.working_set_bytes),
            ("memory_rss", "gauge", usage.rss_bytes),
            ("start_time_seconds", "gauge", container.started_s),
            ("last_seen", "gauge", sample.now_s),
        ):
            page.add(f"container_{measure}", kind, amount, labels)
        on_disk = {**labels, "device": disk.device}
        page.add("container_fs_usage_bytes", "gauge", usage.files_bytes, on_disk)
        _add_disk(page, labels, disk)
        spec = specs.get((container.pod_uid, container.name))
        if spec is not None:
            _add_spec(page, labels, spec)
        _add_counts(page, labels, on_disk, usage.counts)
    _add_pods(page, root, sample, names)
    return page.text()


class _Disk(NamedTuple):
    """The disk of a node's directory, on which are the layers of containers."""

    device: str
    capacity: int
    used: int
    inodes: int
    inodes_free: int

    @classmethod
    def of(cls, path: Path) -> "_Disk":
        disk = os.statvfs(path)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        capacity = disk.f_blocks * disk.f_frsize
        return cls(source_of(path), capacity, used, disk.f_files, disk.f_ffree)


def _add_disk(page: "_Page", labels: Mapping[str, str], disk: _Disk) -> None:
    """Tell how much there is: a container may write until the disk is full."""
    named = {**labels, "device": disk.device}
    page.add("container_fs_limit_bytes", "gauge", disk.capacity, named)
    page.add("container_fs_inodes_total", "gauge", disk.inodes, named)
    page.add("container_fs_inodes_free", "gauge", disk.inodes_free, named)


def _add_counts(
    page: "_Page", labels: Mapping[str, str], on_disk: Mapping[str, str], counts: Counts
) -> None:
    """Tell what the kernel counts; what it does not is left out."""
    throttled_s = None if counts.throttled_ns is None else counts.throttled_ns / 1e9
    for measure, kind, amount, named in (
        ("cpu_cfs_periods_total", "counter", counts.cpu_periods, labels),
        ("cpu_cfs_throttled_periods_total", "counter", counts.throttled_periods, labels),
        ("cpu_cfs_throttled_seconds_total", "counter", throttled_s, labels),
        ("memory_max_usage_bytes", "gauge", counts.memory_max_bytes, labels),
        ("memory_cache", "gauge", counts.cache_bytes, labels),
        ("memory_swap", "gauge", counts.swap_bytes, labels),
        ("memory_failcnt", "counter", counts.limit_hits, labels),
        ("oom_events_total", "counter", counts.oom_kills, labels),
        ("fs_reads_bytes_total", "counter", counts.read_bytes, on_disk),
        ("fs_writes_bytes_total", "counter", counts.written_bytes, on_disk),
    ):
        if amount is not None:
            page.add(f"container_{measure}", kind, amount, named)


def _add_pods(
    page: "_Page",
    root: Mapping[str, str],
    sample: Sample,
    names: Mapping[str, tuple[str, str]],
) -> None:
    """Add the sums of pods: samples without a container."""
    totals: dict[str, list[int]] = {}
    for each in sample.usage:
        total = totals.setdefault(each.container.pod_uid, [0, 0, 0, 0])
        amounts = each.cpu_ns, each.memory_bytes, each.working_set_bytes, each.rss_bytes
        totals[each.container.pod_uid] = [a + b for a, b in zip(total, amounts, strict=True)]
    for uid, (cpu_ns, memory, working_set, rss) in totals.items():
        if uid not in names:
            continue
        namespace, pod = names[uid]
        labels = {**root, "id": f"/kubepods/pod{uid}", "namespace": namespace, "pod": pod}
        page.add("container_cpu_usage_seconds_total", "counter", cpu_ns / 1e9, labels)
        page.add("container_memory_usage_bytes", "gauge", memory, labels)
        page.add("container_memory_working_set_bytes", "gauge", working_set, labels)
        page.add("container_memory_rss", "gauge", rss, labels)


def _add_spec(page: "_Page", labels: Mapping[str, str], resources: Mapping[str, Any]) -> None:
    """Add the limits of a container; no limit is 0, as for memory, or is left out."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    shares = quantity(requests.get("cpu", limits.get("cpu", "0")), -3) * 1024 // 1000
    page.add("container_spec_cpu_period", "gauge", _PERIOD_US, labels)
    page.add("container_spec_cpu_shares", "gauge", max(shares, _SHARES_MIN), labels)
    if "cpu" in limits:
        quota = quantity(limits["cpu"], -3) * _PERIOD_US // 1000
        page.add("container_spec_cpu_quota", "gauge", quota, labels)
    memory = quantity(limits.get("memory", "0"))
    page.add("container_spec_memory_limit_bytes", "gauge", memory, labels)


def _add_traffic(page: "_Page", labels: Mapping[str, str], traffic: Traffic) -> None:
    named = {**labels, "interface": traffic.name}
    for what, value in (
        ("receive_bytes", traffic.received_bytes),
        ("receive_packets", traffic.received_packets),
        ("receive_packets_dropped", traffic.received_dropped),
        ("receive_errors", traffic.received_errors),
        ("transmit_bytes", traffic.sent_bytes),
        ("transmit_packets", traffic.sent_packets),
        ("transmit_packets_dropped", traffic.sent_dropped),
        ("transmit_errors", traffic.sent_errors),
    ):
        page.add(f"container_network_{what}_total", "counter", value, named)


def kubelet_metrics(kubelet: "Kubelet") -> str:
    """Return /metrics."""
    page = _Page()
    uids = kubelet.runtime.pod_uids()
    running = [each for uid in uids for each in kubelet.runtime.of_pod(uid) if each.is_running]
    exited = sum(1 for uid in uids for each in kubelet.runtime.of_pod(uid) if not each.is_running)
    page.add("kubelet_node_name", "gauge", 1, {"node": kubelet.options.name})
    page.add("kubelet_running_pods", "gauge", len({each.pod_uid for each in running}))
    state = "container_state"
    page.add("kubelet_running_containers", "gauge", len(running), {state: "running"})
    page.add("kubelet_running_containers", "gauge", exited, {state: "exited"})
    active = sum(1 for each in kubelet.pods() if not is_ended(each))
    page.add("kubelet_active_pods", "gauge", active, {"static": ""})
    started = kubelet.start_times.histogram
    page.add_histogram("kubelet_pod_start_sli_duration_seconds", started, {})
    for signal, count in sorted(kubelet.evictions.items()):
        page.add("kubelet_evictions", "counter", count, {"eviction_signal": signal})
    _add_claims(page, kubelet)
    return page.text() + render(own_metrics()).decode()


def _add_claims(page: _Page, kubelet: "Kubelet") -> None:
    """Add the usage of the volumes of claims, each once."""
    sums: set[tuple[str, str]] = set()
    for pod in kubelet.pods():
        namespace = pod["metadata"]["namespace"]
        for stats in kubelet.volume_stats(pod["metadata"]["uid"]):
            if not stats.claim or (namespace, stats.claim) in sums:
                continue
            sums.add((namespace, stats.claim))
            labels = {"namespace": namespace, "persistentvolumeclaim": stats.claim}
            for suffix, value in _fill(stats.fill):
                page.add(f"kubelet_volume_stats_{suffix}", "gauge", value, labels)


def _fill(fill: Fill) -> Iterator[tuple[str, int]]:
    if fill.bytes is not None:
        yield "capacity_bytes", fill.bytes.total
        yield "available_bytes", fill.bytes.available
        yield "used_bytes", fill.bytes.used
    if fill.inodes is not None:
        yield "inodes", fill.inodes.total
        yield "inodes_free", fill.inodes.available
        yield "inodes_used", fill.inodes.used


def probe_metrics(kubelet: "Kubelet") -> str:
    """Return /metrics/probes."""
    page = _Page()
    names = ("probe_type", "result", "container", "pod", "namespace", "pod_uid")
    for key, count in kubelet.prober.counts.items():
        page.add("prober_probe_total", "counter", count, dict(zip(names, key, strict=True)))
    # Without the uid: of two pods of a name the later one is reported.
    sums = {key[:4]: seconds for key, seconds in kubelet.prober.durations.items()}
    for (kind, container, pod, namespace), seconds in sums.items():
        labels = {"probe_type": kind, "container": container, "pod": pod, "namespace": namespace}
        page.add_histogram("prober_probe_duration_seconds", seconds, labels)
    return page.text()


def _container_specs(sample: Sample) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the resources of containers, by uid of the pod and name."""
    return {
        (pod["metadata"]["uid"], each["name"]): each.get("resources") or {}
        for pod in sample.pods
        for each in containers_of(pod)
    }


def _names(sample: Sample) -> dict[str, tuple[str, str]]:
    metas: Iterable[Mapping[str, str]] = (each["metadata"] for each in sample.pods)
    return {each["uid"]: (each["namespace"], each["name"]) for each in metas}
