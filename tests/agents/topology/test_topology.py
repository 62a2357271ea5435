"""The cluster of compose.yaml as processes, each of which is killed while a workload changes."""

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kvstack.agents.client.kubeconfig import load
from kvstore.transport import native
from tests.agents.kubelet.runtime.conformance.runtimes import require, write_archive
from tests.agents.topology.trouble import faults_after, one_of_each
from tests.agents.topology.workload import IMAGES_MAX, SLEEP
from tests.support.compose import COMPOSE, Service, Topology

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("topology"),
    pytest.mark.skipif(not native.is_available(), reason="the store has TLS by the crate alone"),
]

# Another leads soon, so that a test need not wait long.
LEASE = (
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=1s",
)
LED = ("controller-manager1", "controller-manager2", "scheduler1", "scheduler2")
PUBLISHED = "6443"
ALIASES = {"api": "lb"}  # both API servers have this name


# A node that runs processes, which the file does not have: it needs root and images.
PROCESS_NODE = "process-node"
LEFT_S = 60.0


def node_of_processes() -> dict[str, Service]:
    flags = {
        "kubeconfig": "/certs/kubernetes/admin.conf",
        "hostname-override": "processes",
        "address": "0.0.0.0",
        "healthz-bind-address": "0.0.0.0",
        "root-dir": "/node",
        "image-dir": "/images",
        "pod-network": "host",
    }
    healthy = {"condition": "service_healthy"}
    return {
        PROCESS_NODE: {
            "entrypoint": ["kvstack", "kubelet", *(f"--{name}={at}" for name, at in flags.items())],
            "volumes": ["certs:/certs", "node:/node", "images:/images"],
            "restart": "unless-stopped",
            "depends_on": {"apiserver1": healthy, "apiserver2": healthy, "lb": healthy},
        }
    }


def processes_of_containers() -> list[int]:
    """Return which processes run what the workload's containers run."""
    command = b"\0".join(each.encode() for each in SLEEP)
    return [
        int(each.parent.name)
        for each in Path("/proc").glob("[0-9]*/cmdline")
        if _read(each).rstrip(b"\0").endswith(command)
    ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


def play(
    directory: Path,
    seed: int,
    choose: Callable[[list[str], random.Random], list[str]],
    more: Mapping[str, Service] | None = None,
    look: Callable[[], object] = lambda: None,
    end: Callable[[], object] = lambda: None,
) -> None:
    """look: called when all is as the manifests say; end: when these are deleted."""
    extra = dict.fromkeys(LED, LEASE)
    with Topology(COMPOSE, directory, extra=extra, aliases=ALIASES, more=more) as topology:
        topology.up()
        chance = random.Random(seed)
        lasting = [name for name, each in topology.services.items() if each.get("restart")]
        kills = choose(lasting, chance)
        cluster = load(topology.path("apiserver1", "/certs/kubernetes/admin.conf"))
        assert cluster.server == topology.url(PUBLISHED)
        faults = faults_after(cluster, topology.kill, kills, chance, look=look)
        assert not faults, "\n".join(faults)
        end()
        # Leaders that lost their lease ended by themselves.
        assert topology.restarts >= len(kills)


def test_any_process_may_be_killed(tmp_path: Path) -> None:
    play(tmp_path, 1, one_of_each)


@pytest.mark.parametrize("kills", [10, pytest.param(60, marks=pytest.mark.long)])
def test_no_process_of_a_container_is_left(kills: int, tmp_path: Path) -> None:
    require("process")
    images = tmp_path / "images"
    images.mkdir()
    for number in range(1, IMAGES_MAX + 1):
        write_archive(images / f"image:{number}.tar", f"image:{number}")

    def choose(names: list[str], chance: random.Random) -> list[str]:
        # Every other one is the node with processes.
        others = chance.choices(names, k=kills // 2)
        return [name for other in others for name in (other, PROCESS_NODE)]

    def look() -> None:
        assert processes_of_containers(), "no container runs on the node with processes"

    def end() -> None:
        deadline = time.monotonic() + LEFT_S
        while left := processes_of_containers():
            assert time.monotonic() < deadline, f"processes of containers are left: {left}"
            time.sleep(0.05)

    play(tmp_path, kills, choose, node_of_processes(), look, end)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_processes_are_killed_for_minutes(seed: int, tmp_path: Path) -> None:
    play(tmp_path, seed, lambda names, chance: chance.choices(names, k=60))
