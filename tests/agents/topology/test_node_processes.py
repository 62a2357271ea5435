"""Nodes that run processes, killed with everything else: what runs is what the API says, no more.

Two kubelets of this machine join the cluster of compose.yaml in place of its hollow nodes. One that
is killed leaves its containers running, and finds them again.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.cgroups import ROOT as CGROUPS
from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstore.transport import native
from tests.agents.support.full_disks import EVICTION_HARD
from tests.agents.support.namespaces import has_namespaces
from tests.agents.topology.trouble import (
    ALIASES,
    LEASES,
    SETTLE_S,
    admin,
    faults_after,
    lasting,
    one_of_each,
)
from tests.agents.topology.workload import Churn, Programs
from tests.support.compose import COMPOSE, Service, Topology
from tests.support.waiting import is_met

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("topology"),
    pytest.mark.skipif(not native.is_available(), reason="the store has TLS by the crate alone"),
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
]

MARK = "KVSTACK_TEST_MARK"
NODES = ("nodes1", "nodes2")


def group(directory: Path, name: str) -> str:
    """Return the control group of a node."""
    return f"{directory.name}-{name}"


def groups_of_pods(directory: Path) -> list[Path]:
    """Return the control groups of pods."""
    roots = {group(directory, name) for name in NODES}
    # Groups of other tests come and go meanwhile, which a walk does not mind.
    paths = [Path(parent, each) for parent, below, _ in os.walk(CGROUPS) for each in below]
    return [each for each in paths if each.name.startswith("pod") and roots & set(each.parts)]


def kubelet(name: str, directory: Path) -> Service:
    """Return a service that is a node of processes."""
    return {
        "entrypoint": ["kvstack", "kubelet", "--kubeconfig=/certs/kubernetes/admin.conf"],
        "command": [
            f"--hostname-override={name}",
            f"--root-dir={directory / name}",
            f"--cgroup-root=/{group(directory, name)}",
            "--address=0.0.0.0",
            "--healthz-port=0",
            "--pod-network=host",
            "--host-image",
            EVICTION_HARD,
        ],
        "restart": "unless-stopped",
        "volumes": ["certs:/certs:ro"],
        "depends_on": {
            "lb": {"condition": "service_healthy"},
            "authorization": {"condition": "service_completed_successfully"},
        },
    }


def marked(mark: str) -> dict[int, str]:
    """Return the processes that have the mark, with the version that they were given."""
    found: dict[int, str] = {}
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            words = (each / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it is gone
        pairs = dict(word.split("=", 1) for word in words if "=" in word)
        if pairs.get(MARK) == mark:
            found[int(each.name)] = pairs["VERSION"]
    return found


def versions(mark: str) -> Counter[str]:
    """Return how many processes have the mark, by version."""
    return Counter(marked(mark).values())


def descriptions(mark: str) -> list[str]:
    """Return what is known of the processes that have the mark."""
    lines = []
    for pid, version in marked(mark).items():
        process = Path("/proc", str(pid))
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            groups = (process / "cgroup").read_text().split()
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it is gone
        lines.append(f"{pid} of {parent}, {state}, version {version}: {command}{groups}")
    return lines


def mentioned(directory: Path) -> list[str]:
    """Return the command lines of processes, and the mounts, that mention a directory."""
    lines = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                lines.append((each / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue  # it is gone
    return [*(line for line in lines if str(directory) in line), *mounts(directory)]


def mounts(directory: Path) -> list[str]:
    """Return the mounts that mention a directory."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if str(directory) in line]


def wait_until(is_so: Callable[[], bool]) -> bool:
    """Wait until something is so; return whether it became so in time."""
    return is_met(is_so, SETTLE_S, every_s=0.2)


def play(
    directory: Path, seed: int, choose: Callable[[list[str], random.Random], list[str]]
) -> None:
    """Trouble; then the processes are those of the pods; then all pods go, and all processes."""
    chance, mark = random.Random(seed), f"{directory.name}-{seed}"
    replaced = {name: kubelet(name, directory) for name in NODES}
    programs = Programs(
        "host:latest",
        lasting=("sleep", "1000000"),
        ending=("sleep", "0.1"),
        environment={MARK: mark},
    )

    def look(churn: Churn) -> None:
        wanted = churn.versions()
        assert wanted
        assert wait_until(lambda: versions(mark) == wanted), (
            versions(mark),
            wanted,
            descriptions(mark),
        )

    try:
        with Topology(
            COMPOSE, directory, extra=LEASES, aliases=ALIASES, replaced=replaced, network=6
        ) as topology:
            topology.up()
            kills = choose(lasting(topology), chance)
            faults = faults_after(
                admin(topology), topology.kill, kills, chance, programs=programs, look=look
            )
            assert not faults, "\n".join(faults)
            # A pod that was deleted by force goes before its node has cleaned up.
            assert wait_until(lambda: not marked(mark)), marked(mark)
            assert wait_until(lambda: not groups_of_pods(directory)), groups_of_pods(directory)
            assert wait_until(lambda: not mounts(directory)), mounts(directory)
        assert not mentioned(directory)
        assert not groups_of_pods(directory)
    finally:
        for pid in marked(mark):  # only after a failure: containers live on
            os.kill(pid, signal.SIGKILL)
        for name in NODES:
            Cgroups().remove(group(directory, name))


def test_no_process_of_a_container_is_left(tmp_path: Path) -> None:
    play(tmp_path, 1, one_of_each)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_kubelets_and_all_else_are_killed_for_minutes(seed: int, tmp_path: Path) -> None:
    def kubelets_more_often(names: list[str], rng: random.Random) -> list[str]:
        return rng.choices([*names, *NODES * 3], k=60)

    play(tmp_path, seed, kubelets_more_often)
