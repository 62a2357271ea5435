"""What pods take of the disk, its limit, and who is evicted; containers only pretend."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.client.built_in import PODS, SERVICE_ACCOUNTS
from kvstack.agents.kubelet.eviction import eviction_manager
from kvstack.agents.kubelet.eviction.evictions import LOCAL_STORAGE, Measure
from kvstack.agents.kubelet.eviction.local_storage import used_by_pods
from kvstack.agents.kubelet.eviction.pressures import EvictionOptions
from kvstack.agents.kubelet.hollow.hollow_runtime import HollowRuntime
from kvstack.agents.kubelet.kubelet import Kubelet
from kvstack.agents.kubelet.node import node
from kvstack.agents.kubelet.options import KeepingOptions, KubeletOptions
from kvstack.agents.kubelet.runtime.process.layer_sizes import size_of
from kvstack.agents.standalone.local_storage import (
    STORE_RESERVE_BYTES,
    check,
    local_storage,
)
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.cluster import TestCluster, eventually
from tests.support.disks.small_disk import small_disk

MACHINE = node.Machine("amd64", 4, 8 << 20, 100 << 30, "m", "s", "b", "6.1", "Linux", {}, 0)
MIB = 1 << 20


class Here:
    """A node with settings of evictions."""

    def __init__(self, cluster: TestCluster, directory: Path, evictions: EvictionOptions) -> None:
        root = directory / "node"
        root.mkdir(exist_ok=True)
        self.runtime = HollowRuntime(
            IPv4Network("10.1.0.0/24"),
            cluster.clock,
            "node-a",
            lambda uid: self.kubelet.container_ended(uid),
        )
        self.kubelet = Kubelet(
            cluster.admin,
            self.runtime,
            MACHINE,
            cluster.clock,
            lambda: 0.5,
            cluster.log,
            KubeletOptions(
                "node-a", "127.0.0.1", root, keeping=KeepingOptions(evictions=evictions)
            ),
        )

    def write(self, pod: Object, size_bytes: int) -> None:
        """Do what a pod does that fills its volume."""
        directory = self.kubelet.pod_directory(pod["metadata"]["uid"])
        volume = directory / "volumes" / "kubernetes.io~empty-dir" / "data"
        volume.mkdir(parents=True, exist_ok=True)
        (volume / "file").write_bytes(os.urandom(size_bytes))


Story = Callable[[TestCluster, Here], Coroutine[Any, Any, None]]


def run(directory: Path, evictions: EvictionOptions, story: Story) -> None:
    async def main() -> None:
        async with TestCluster(directory) as cluster:
            account = {"metadata": {"name": "default"}}
            await cluster.admin.create(SERVICE_ACCOUNTS, "default", account)
            here = Here(cluster, directory, evictions)
            await here.kubelet.start()
            try:
                await story(cluster, here)
            finally:
                await here.kubelet.stop()

    asyncio.run(main())


async def running(cluster: TestCluster, name: str) -> Object:
    spec = {
        "nodeName": "node-a",
        "automountServiceAccountToken": False,
        "containers": [{"name": "c", "image": "any"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    await cluster.admin.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})
    return await reach(cluster, name, "Running")


async def reach(cluster: TestCluster, name: str, phase: str) -> Object:
    def reached_pod() -> Object | None:
        obj = cluster.informers.of(PODS).store.get(f"default/{name}")
        return obj if obj is not None and obj["status"].get("phase") == phase else None

    done: Object = await eventually(reached_pod)
    return done


def test_the_pod_that_takes_most_goes_when_all_take_more_than_the_limit(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Here) -> None:
        pods = {name: await running(cluster, name) for name in ("small", "large", "middle")}
        for name, size_mib in (("small", 1), ("large", 6), ("middle", 2)):
            here.write(pods[name], size_mib * MIB)
        await here.kubelet.keeping.tick(1)
        gone = await reach(cluster, "large", "Failed")
        assert gone["status"]["reason"] == "Evicted"
        assert "low on resource: ephemeral-storage" in gone["status"]["message"]
        await here.kubelet.keeping.tick(2)
        for name in ("small", "middle"):
            await reach(cluster, name, "Running")

    limited = EvictionOptions({LOCAL_STORAGE: "1"}, local_storage_bytes_max=8 * MIB)
    run(tmp_path, limited, story)


def test_below_the_limit_nobody_goes(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Here) -> None:
        here.write(await running(cluster, "web"), 2 * MIB)
        await here.kubelet.keeping.tick(1)
        await reach(cluster, "web", "Running")
        assert here.kubelet.keeping.pressures() == []

    limited = EvictionOptions({LOCAL_STORAGE: "1"}, local_storage_bytes_max=8 * MIB)
    run(tmp_path, limited, story)


def test_a_full_disk_is_seen_within_seconds_and_one_pod_goes_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {"bytes": 50 * MIB}  # until both run: a node under pressure takes none
    monkeypatch.setattr(
        eviction_manager, "disk_available", lambda _: Measure(left["bytes"], 100 * MIB)
    )
    monkeypatch.setattr(
        eviction_manager,
        "measures",
        lambda *_: {"nodefs.available": Measure(left["bytes"], 100 * MIB)},
    )

    async def story(cluster: TestCluster, here: Here) -> None:
        pods = {name: await running(cluster, name) for name in ("a", "b")}
        here.write(pods["a"], 1 * MIB)
        here.write(pods["b"], 3 * MIB)
        left["bytes"] = 5 * MIB
        await reach(cluster, "b", "Failed")  # nobody called for it
        await reach(cluster, "a", "Running")
        assert here.kubelet.keeping.pressures() == ["DiskPressure"]
        left["bytes"] = 50 * MIB

    run(tmp_path, EvictionOptions({"nodefs.available": "10%"}), story)


def test_what_pods_take_is_layers_volumes_and_logs(tmp_path: Path) -> None:
    for path, size_bytes in (
        ("pods/u1/containers/c/layer/upper/file", 100_000),
        ("pods/u1/volumes/kubernetes.io~empty-dir/data/file", 50_000),
        ("pods/u2/containers/c/layer/upper/file", 8192),
        ("logs/default_web_u1/c/0.log", 40_960),
        ("logs/default_gone_u3/c/0.log", 4096),
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.write_bytes(os.urandom(size_bytes))
    used = used_by_pods(tmp_path / "pods", tmp_path / "logs")
    assert sorted(used) == ["u1", "u2", "u3"]
    assert 190_000 < used["u1"] < 260_000
    assert used["u3"] < used["u2"] < 60_000
    assert used_by_pods(tmp_path / "none", tmp_path / "neither") == {}


def test_other_file_systems_below_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(10_000))
    before = size_of(tmp_path)
    with small_disk(tmp_path / "memory", 16) as disk:
        (disk.path / "file").write_bytes(os.urandom(5 * MIB))
        assert size_of(tmp_path).bytes < before.bytes + MIB
        assert size_of(disk.path).bytes >= 5 * MIB


def test_by_default_a_tenth_and_the_reserve_stay_free(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    disk_bytes = disk.f_blocks * disk.f_frsize
    found = local_storage("", tmp_path / "data" / "node", tmp_path / "data")
    kept = int(found.evictions.hard["nodefs.available"])
    assert kept == disk_bytes // 10 + STORE_RESERVE_BYTES
    assert found.reserved == {}
    assert LOCAL_STORAGE not in found.evictions.hard


def test_a_limit_is_what_the_node_has_for_pods(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    disk_bytes = disk.f_blocks * disk.f_frsize
    found = local_storage("1Gi", tmp_path, tmp_path)
    assert found.evictions.local_storage_bytes_max == 1 << 30
    machine = MACHINE._replace(disk_bytes=disk_bytes)
    shown = node.allocatable(machine, 110, found.reserved, found.evictions.hard)
    assert shown["ephemeral-storage"] == str(1 << 30)


def test_a_store_on_another_disk_needs_no_reserve_here(tmp_path: Path) -> None:
    with small_disk(tmp_path / "store", 64) as disk:
        found = local_storage("", tmp_path, disk.path)
        here = os.statvfs(tmp_path)
        assert int(found.evictions.hard["nodefs.available"]) == here.f_blocks * here.f_frsize // 10


@pytest.mark.parametrize("text", ["20Gi", "50%", "1000000", "100%"])
def test_limits_that_are_taken(text: str) -> None:
    check(text)


@pytest.mark.parametrize("text", ["0", "-1Gi", "0%", "101%", "many", "5x", "%"])
def test_limits_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a quantity above 0, as 20Gi, or a share"):
        check(text)
