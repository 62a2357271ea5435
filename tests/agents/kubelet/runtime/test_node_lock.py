"""Nodes that live, and what those left behind that were killed."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvstack.agents.kubelet.disk import mount_table
from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.process import node_lock
from kvstack.agents.kubelet.runtime.process.network.pod_network import PodNetwork
from kvstack.agents.kubelet.runtime.process.node_lock import NodeLock, Record
from kvstack.agents.kubelet.runtime.process.sandboxes import in_own_thread
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.agents.network_policy.nftables.program import table_of
from kvstack.component.net import nft
from kvstack.component.net.netlink import Netlink
from tests.agents.support.namespaces import has_namespaces

needs_root = pytest.mark.skipif(not has_namespaces(), reason="it needs root")


def test_mounts_are_found_the_deepest_first(tmp_path: Path) -> None:
    place = tmp_path / "a b"
    place.mkdir()
    shown = str(place).replace(" ", "\\040")
    table = "".join(
        f"1 1 0:1 / {point} rw - tmpfs tmpfs rw\n"
        for point in ("/", shown, f"{shown}/x", f"{shown}c")
    )
    assert mount_table.points_below(place, table) == [f"{place}/x", str(place)]


def record(root: Path, *, ends: bool = True) -> Record:
    return Record(PodNetwork(str(root)).bridge, str(root), ends_with_node=ends, cgroup="kubepods")


def killed(state: Path, root: Path, *, ends: bool = True) -> None:
    """Let a process be a node, and kill it."""
    program = (
        "import sys, pathlib\n"
        "from kvstack.agents.kubelet.runtime.cgroups import Cgroups\n"
        "from kvstack.agents.kubelet.runtime.process.node_lock import *\n"
        "state, name, root, ends = sys.argv[1:]\n"
        "record = Record(name, root, ends_with_node=ends == 'True', cgroup='kubepods')\n"
        "NodeLock(pathlib.Path(state), record, Cgroups(pathlib.Path(state, 'groups'))).begin()\n"
        "print('lives', flush=True)\n"
        "sys.stdin.read()\n"
    )
    arguments = [str(state), record(root).name, str(root), str(ends)]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as node:
        assert node.stdout is not None
        assert node.stdout.readline() == b"lives\n"
        assert clean(state) == []
        assert (state / "nodes" / record(root).name).exists()
        assert node_lock.lives(state, record(root).name)
        node.kill()
    assert not node_lock.lives(state, record(root).name)


def clean(state: Path) -> list[str]:
    return node_lock.clean(state, Cgroups(state / "cgroups"))


def leave(state: Path, root: Path) -> tuple[Path, Path]:
    """Mount what a node mounts for its pods."""
    shared = node_lock.shm_of(state, record(root).name) / "uid"
    volume = root / "pods" / "uid" / "volumes" / "secret"
    for place in (shared, volume):
        place.mkdir(parents=True)
        syscalls.mount("tmpfs", str(place), "tmpfs")
        (place / "file").touch()
    return shared, volume


@needs_root
@pytest.mark.skipif(shutil.which("nft") is None, reason="the program nft is not installed")
def test_the_policies_of_a_killed_node_go(tmp_path: Path) -> None:
    state, root = tmp_path / "state", tmp_path / "root"
    table = table_of(record(root).name)

    def work() -> list[bool]:
        syscalls.unshare(syscalls.CLONE_NEWNET)  # this thread's rules end with it
        nft.apply(f"add table inet {table}\n")
        killed(state, root)
        found = [table in nft.run("list", "tables")]
        assert clean(state) == []
        return [*found, table in nft.run("list", "tables")]

    assert asyncio.run(in_own_thread(work)) == [True, False]


@needs_root
def test_what_a_killed_node_left_goes(tmp_path: Path) -> None:
    state, root = tmp_path / "state", tmp_path / "root"
    name = record(root).name
    group = tmp_path / "state/cgroups/cpu/kubepods/besteffort/poduid"
    shared, volume = leave(state, root)
    group.mkdir(parents=True)
    with Netlink() as links:
        links.add_bridge(name, bytes.fromhex("0a5800000001"))
    try:
        killed(state, root)
        assert clean(state) == []
        assert not shared.parent.exists()
        assert not volume.is_mount()
        assert not group.exists()
        with Netlink() as links:
            assert all(each.name != name for each in links.links())
        assert not list((state / "nodes").iterdir())
    finally:
        for place in (state, root):
            mount_table.take_away(place)


@needs_root
def test_what_outlives_its_node_and_what_lives_stays(tmp_path: Path) -> None:
    state, root, other = tmp_path / "state", tmp_path / "root", tmp_path / "other"
    kept = [*leave(state, root), *leave(state, other)]
    living = NodeLock(state, record(other), Cgroups(state / "cgroups"))
    living.begin()
    try:
        killed(state, root, ends=False)
        assert clean(state) == []
        assert all(each.is_mount() for each in kept)
        living.end()
        assert not kept[3].is_mount()  # its volume; what its containers shared is its sandboxes'
        assert not (state / "nodes" / record(other).name).exists()
    finally:
        for place in (state, root, other):
            mount_table.take_away(place)


def test_what_outlived_its_node_is_gone_with_its_directory(tmp_path: Path) -> None:
    state, root = tmp_path / "state", tmp_path / "root"
    root.mkdir()
    killed(state, root, ends=False)
    root.rmdir()
    assert clean(state) == []
    assert not list((state / "nodes").iterdir())


def test_a_node_that_ends_takes_the_groups_of_its_pods(tmp_path: Path) -> None:
    group = tmp_path / "cgroups/cpu/kubepods/burstable/poduid"
    for each in (group, tmp_path / "root/pods/uid"):
        each.mkdir(parents=True)
    node = NodeLock(tmp_path, record(tmp_path / "root"), Cgroups(tmp_path / "cgroups"))
    node.begin()
    node.end()
    assert group.parent.exists()
    assert not group.exists()


def test_a_node_may_begin_again_beside_itself(tmp_path: Path) -> None:
    cgroups = Cgroups(tmp_path / "cgroups")
    one, other = (NodeLock(tmp_path, record(tmp_path), cgroups) for _ in range(2))
    one.begin()
    other.begin()
    one.end()
    other.end()
    other.end()
    assert clean(tmp_path) == []


def test_a_node_that_nobody_knows_does_not_live(tmp_path: Path) -> None:
    assert not node_lock.lives(tmp_path, "kv-1")


def test_files_without_a_record_are_reported(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "kv-1").write_text("x")
    (problem,) = clean(tmp_path)
    assert problem.startswith(f"{tmp_path}/nodes/kv-1: ")
