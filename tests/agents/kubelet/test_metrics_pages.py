"""Metrics of a node by name, type and labels, as dashboards and metrics-server read them.

For containers that are processes, those of an engine, and those that only seem to run.
"""

import re
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from kvstack.agents.client.built_in import PODS
from kvstack.agents.kubelet.hollow.hollow_runtime import HollowRuntime
from kvstack.agents.kubelet.kubelet import Kubelet
from kvstack.agents.kubelet.runtime.cgroups import ROOT
from kvstack.agents.kubelet.runtime.cri import answers
from kvstack.agents.kubelet.runtime.cri.gen import api_pb2 as cri
from kvstack.agents.kubelet.runtime.runtime import Usage
from kvstack.agents.kubelet.server import metrics, stats
from kvstack.agents.kubelet.sync.start_times import StartTimes
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.kubelet import test_kubelet, test_kubelet_alone
from tests.agents.support.cluster import TestCluster
from tests.agents.support.namespaces import has_namespaces
from tests.support.waiting import eventually

Table = dict[str, tuple[str, tuple[str, ...]]]
"""Types and labels of families, by name."""
POD: Final = ("namespace", "pod")
CONTAINER: Final = ("container", "namespace", "pod")
OF_ENGINE: Final = ("container", "id", "image", "name", "namespace", "pod")
ON_DISK: Final = (*OF_ENGINE, "device")
ON_NET: Final = (*OF_ENGINE, "interface")
RESOURCE: Final[Table] = {
    "node_cpu_usage_seconds_total": ("counter", ()),
    "node_memory_working_set_bytes": ("gauge", ()),
    "node_swap_usage_bytes": ("gauge", ()),
    "container_cpu_usage_seconds_total": ("counter", CONTAINER),
    "container_memory_working_set_bytes": ("gauge", CONTAINER),
    "container_start_time_seconds": ("gauge", CONTAINER),
    "container_swap_usage_bytes": ("gauge", CONTAINER),
    "pod_cpu_usage_seconds_total": ("counter", POD),
    "pod_memory_working_set_bytes": ("gauge", POD),
    "pod_swap_usage_bytes": ("gauge", POD),
    "resource_scrape_error": ("gauge", ()),
}
CADVISOR: Final[Table] = {
    "machine_cpu_cores": ("gauge", ()),
    "machine_memory_bytes": ("gauge", ()),
    "container_cpu_usage_seconds_total": ("counter", OF_ENGINE),
    "container_memory_working_set_bytes": ("gauge", OF_ENGINE),
    "container_memory_usage_bytes": ("gauge", OF_ENGINE),
    "container_memory_rss": ("gauge", OF_ENGINE),
    "container_start_time_seconds": ("gauge", OF_ENGINE),
    "container_last_seen": ("gauge", OF_ENGINE),
    "container_spec_cpu_period": ("gauge", OF_ENGINE),
    "container_spec_cpu_quota": ("gauge", OF_ENGINE),
    "container_spec_cpu_shares": ("gauge", OF_ENGINE),
    "container_spec_memory_limit_bytes": ("gauge", OF_ENGINE),
    "container_fs_usage_bytes": ("gauge", ON_DISK),
    "container_fs_limit_bytes": ("gauge", ON_DISK),
    "container_fs_inodes_total": ("gauge", ON_DISK),
    "container_fs_inodes_free": ("gauge", ON_DISK),
}
COUNTED: Final[Table] = {
    "container_cpu_cfs_periods_total": ("counter", OF_ENGINE),
    "container_cpu_cfs_throttled_periods_total": ("counter", OF_ENGINE),
    "container_cpu_cfs_throttled_seconds_total": ("counter", OF_ENGINE),
    "container_memory_max_usage_bytes": ("gauge", OF_ENGINE),
    "container_memory_cache": ("gauge", OF_ENGINE),
    "container_memory_failcnt": ("counter", OF_ENGINE),
    "container_oom_events_total": ("counter", OF_ENGINE),
}
ON_DISKS: Final[Table] = {
    "container_fs_reads_bytes_total": ("counter", ON_DISK),
    "container_fs_writes_bytes_total": ("counter", ON_DISK),
}
NETWORK: Final[Table] = {
    f"container_network_{way}_{what}_total": ("counter", ON_NET)
    for way in ("receive", "transmit")
    for what in ("bytes", "packets", "errors", "packets_dropped")
}
BUILD: Final = (
    *("build_date", "compiler", "git_commit", "git_tree_state", "git_version", "go_version"),
    *("major", "minor", "platform"),
)
KUBELET: Final[Table] = {
    "kubelet_node_name": ("gauge", ("node",)),
    "kubelet_running_pods": ("gauge", ()),
    "kubelet_running_containers": ("gauge", ("container_state",)),
    "kubelet_active_pods": ("gauge", ("static",)),
    "kubelet_evictions": ("counter", ("eviction_signal",)),
    "kubelet_pod_start_sli_duration_seconds": ("histogram", ()),
    "process_start_time_seconds": ("gauge", ()),
    "kubernetes_build_info": ("gauge", BUILD),
    "rest_client_requests_total": ("counter", ("code", "host", "method")),
    "rest_client_request_duration_seconds": ("histogram", ("host", "verb")),
}
OF_PROBE: Final = ("probe_type", "container", "pod", "namespace")
PROBES: Final[Table] = {
    "prober_probe_total": ("counter", (*OF_PROBE, "result", "pod_uid")),
    "prober_probe_duration_seconds": ("histogram", OF_PROBE),
}
LINE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)(?: (\d+))?")
LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
LIMITS: Final = {"cpu": "500m", "memory": "64Mi"}


class Read(NamedTuple):
    """One sample of a page."""

    labels: dict[str, str]
    value: float
    has_time: bool


class Page:
    """A page that was read."""

    def __init__(self, text: str) -> None:
        self.types: dict[str, str] = {}
        self.samples: dict[str, list[Read]] = {}
        assert not text or text.endswith("\n")
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                assert name not in self.types, f"{name} is told in two places"
                self.types[name] = kind
                continue
            if line.startswith("# HELP "):
                continue
            match = LINE.fullmatch(line)
            assert match is not None, line
            name, labels, value, stamp = match.groups()
            read = Read(dict(LABEL.findall(labels or "")), float(value), stamp is not None)
            self.samples.setdefault(name, []).append(read)

    def check(self, table: Table) -> None:
        """Check that families are there, with their types, and labels of each of their samples."""
        for name, (kind, labels) in table.items():
            assert self.types.get(name) == kind, name
            parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            for part in parts:
                found = self.samples[name + part]
                expected = {*labels, "le"} if part == "_bucket" else set(labels)
                assert all(set(each.labels) == expected for each in found), (name, found[0])

    def value(self, name: str, **labels: str) -> float:
        (found,) = [
            each.value
            for each in self.samples[name]
            if all(each.labels[key] == value for key, value in labels.items())
        ]
        return found


class Pages(NamedTuple):
    """The pages of one node, of a moment."""

    resource: Page
    cadvisor: Page
    kubelet: Page
    probes: Page
    summary: Object


async def pages_of(kubelet: Kubelet, sampler: stats.Sampler) -> Pages:
    sample = await sampler.take()
    return Pages(
        Page(metrics.resource_metrics(sample)),
        Page(metrics.container_metrics(sample)),
        Page(metrics.kubelet_metrics(kubelet)),
        Page(metrics.probe_metrics(kubelet)),
        stats.summary(sample),
    )


def check_all(pages: Pages) -> None:
    """Check what every node says of a pod `web` with a container `c`, which has LIMITS."""
    pages.resource.check({k: v for k, v in RESOURCE.items() if "swap" not in k})
    timed = [
        each.has_time
        for name, found in pages.resource.samples.items()
        for each in found
        if name != "resource_scrape_error"
    ]
    assert all(timed)
    pages.cadvisor.check(CADVISOR)
    pages.kubelet.check({k: v for k, v in KUBELET.items() if k != "kubelet_evictions"})
    assert pages.kubelet.value("kubelet_pod_start_sli_duration_seconds_count") == 1
    web = {"pod": "web", "container": "c"}
    assert pages.cadvisor.value("container_spec_memory_limit_bytes", **web) == 64 << 20
    assert pages.cadvisor.value("container_spec_cpu_quota", **web) == 50_000
    used = pages.cadvisor.value("container_memory_working_set_bytes", **web)
    assert 0 < used == pages.resource.value("container_memory_working_set_bytes", **web)
    # Of the pod there is a sample without a container, and of the machine one with the id "/".
    of_pod = {"pod": "web", "container": ""}
    assert pages.cadvisor.value("container_memory_working_set_bytes", **of_pod) == used
    assert pages.cadvisor.value("container_memory_working_set_bytes", id="/") > 0
    check_summary(pages.summary, used)


def check_summary(summary: Object, used: float) -> None:
    node = summary["node"]
    assert [each["name"] for each in node["systemContainers"]] == ["kubelet", "pods"]
    assert all(each["memory"]["workingSetBytes"] > 0 for each in node["systemContainers"])
    assert set(node) >= {
        "nodeName", "startTime", "cpu", "memory", "network", "fs", "runtime", "rlimit", "swap",
    }  # fmt: skip
    assert set(node["swap"]) == {"time", "swapAvailableBytes", "swapUsageBytes"}
    assert set(node["runtime"]) == {"imageFs", "containerFs"}
    assert {"time", "maxpid", "curproc"} == set(node["rlimit"])
    disk = (
        "time", "availableBytes", "capacityBytes", "usedBytes",
        "inodesFree", "inodes", "inodesUsed",
    )  # fmt: skip
    assert set(node["fs"]) == set(disk)
    (web,) = summary["pods"]
    assert set(web["podRef"]) == {"name", "namespace", "uid"}
    (container,) = web["containers"]
    assert container["memory"]["workingSetBytes"] == used
    assert container["memory"]["availableBytes"] == (64 << 20) - used
    assert {"time", "usageCoreNanoSeconds"} <= set(container["cpu"])
    assert set(container["rootfs"]) == set(container["logs"]) == set(disk)
    assert {"cpu", "memory", "process_stats", "volume", "ephemeral-storage"} <= set(web)


def pod(**container: Any) -> Object:
    own = {"name": "c", "image": "web", "resources": {"limits": LIMITS}, **container}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "nodeName": "node-a",
            "automountServiceAccountToken": False,
            "containers": [own],
        },
    }


def on_hollow(
    directory: Path, story: Callable[[Kubelet, stats.Sampler], Coroutine[Any, Any, None]]
) -> None:
    """Run the pod on a node on which it only seems to run."""

    async def run(cluster: TestCluster, here: test_kubelet_alone.Here) -> None:
        await cluster.admin.create(PODS, "default", pod())
        await test_kubelet.reach(cluster, "web", "Running")
        sampler = stats.Sampler(here.kubelet, cluster.clock)
        await story(here.kubelet, sampler)

    test_kubelet_alone.run(directory, run)


def test_what_seems_to_run(tmp_path: Path) -> None:
    async def story(kubelet: Kubelet, sampler: stats.Sampler) -> None:
        kubelet.evictions["memory.available"] += 1
        pages = await pages_of(kubelet, sampler)
        check_all(pages)
        pages.resource.check(RESOURCE)
        pages.cadvisor.check(COUNTED | ON_DISKS)
        pages.kubelet.check(KUBELET)
        assert pages.kubelet.value("kubelet_evictions", eviction_signal="memory.available") == 1

    on_hollow(tmp_path, story)


def of_engine(usage: Usage, *, has_swap: bool) -> Usage:
    """Return what an engine would say of a container."""
    used = cri.ContainerStats()
    used.cpu.usage_core_nano_seconds.value = usage.cpu_ns
    used.memory.usage_bytes.value = 3 << 20
    used.memory.working_set_bytes.value = 2 << 20
    used.memory.rss_bytes.value = 1 << 20
    used.writable_layer.used_bytes.value = 4096
    used.writable_layer.inodes_used.value = 2
    if has_swap:
        used.swap.swap_usage_bytes.value = 512
    return answers.usage_of(usage.container, used)


@pytest.mark.parametrize("engine", ["that tells of swap", "that tells nothing of it"])
def test_what_an_engine_runs(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_swap = engine == "that tells of swap"

    async def story(kubelet: Kubelet, sampler: stats.Sampler) -> None:
        hollow = HollowRuntime.usage

        async def usage(self: HollowRuntime) -> Sequence[Usage]:
            return [of_engine(each, has_swap=has_swap) for each in await hollow(self)]

        monkeypatch.setattr(HollowRuntime, "usage", usage)
        pages = await pages_of(kubelet, sampler)
        check_all(pages)
        assert pages.cadvisor.value("container_fs_usage_bytes", pod="web") == 4096
        # What the engine does not tell is left out, and is not told as nothing.
        assert not any(each in pages.cadvisor.types for each in (*COUNTED, *ON_DISKS))
        swap = [each for each in pages.resource.types if "swap" in each]
        assert len(swap) == (3 if has_swap else 1)
        assert ("swap" in pages.summary["pods"][0]["containers"][0]) is has_swap
        if has_swap:
            pages.resource.check(RESOURCE)
            assert pages.resource.value("pod_swap_usage_bytes", pod="web") == 512

    on_hollow(tmp_path, story)


def test_which_starts_count() -> None:
    times = StartTimes(since_s=1_767_225_600.5)  # 2026-01-01T00:00:00.5Z
    made = {"metadata": {"creationTimestamp": "2026-01-01T00:00:10Z"}, "spec": {}}
    now_s, running, pending = 1_767_225_614.0, {"phase": "Running"}, {"phase": "Pending"}

    def counted(obj: Object, before: Object | None, status: Object) -> list[float]:
        count, total = sum(times.histogram.counts), times.histogram.total
        times.observe(obj, before, status, 3.0, now_s)
        found = sum(times.histogram.counts) - count
        return [times.histogram.total - total] if found else []

    assert counted(made, None, running) == [1.0]  # 4 s, of which 3 for images
    assert counted(made, pending, running) == [1.0]
    assert counted(made, pending, pending) == []
    assert counted(made, running, running) == []
    assert counted(made, pending, {"phase": "Succeeded"}) == []
    assert counted({**made, "status": running}, None, running) == []  # of the kubelet before
    assert counted({**made, "spec": {"initContainers": [{}]}}, None, running) == []
    older = {**made, "metadata": {"creationTimestamp": "2025-12-31T23:59:59Z"}}
    assert counted(older, pending, running) == []


@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces")
def test_what_runs_as_processes(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: test_kubelet.Node) -> None:
        probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
        script = "dd if=/dev/zero of=/file bs=4096 count=256; echo hi; sleep 1000"
        made = pod(image="host", command=["sh", "-c", script], readinessProbe=probe)
        await cluster.admin.create(PODS, "default", made)
        await test_kubelet.reach(cluster, "web", "Running")
        await eventually(lambda: here.kubelet.prober.durations)
        sampler = stats.Sampler(here.kubelet, cluster.clock)
        pages = await pages_of(here.kubelet, sampler)
        if "container_cpu_usage_seconds_total" not in pages.resource.types:
            pytest.skip("control groups cannot be made here")
        check_all(pages)
        pages.cadvisor.check(COUNTED | NETWORK)
        if (ROOT / "blkio").is_dir():  # with version 2 it is the machine's affair
            pages.cadvisor.check(ON_DISKS)
        pages.probes.check(PROBES)
        of_web = {"pod": "web", "probe_type": "Readiness"}
        assert pages.probes.value("prober_probe_total", **of_web, result="successful") >= 1
        most = pages.cadvisor.value("container_memory_max_usage_bytes", pod="web", container="c")
        assert most >= pages.cadvisor.value(
            "container_memory_usage_bytes", pod="web", container="c"
        )
        assert pages.cadvisor.value("container_oom_events_total", pod="web", container="c") == 0
        ids = [each.labels["id"] for each in pages.cadvisor.samples["container_fs_limit_bytes"]]
        assert len(ids) == len(set(ids))
        devices = pages.cadvisor.samples["container_fs_limit_bytes"]
        assert all(each.labels["device"] for each in devices)

    test_kubelet.run(tmp_path, story)
