"""compose.yaml with Docker itself, where an engine runs and has Compose: the tests start none.

    pytest tests/agents/topology/test_docker.py -m long

The images stay in the engine (`kvstack-test…`); containers, networks and volumes are removed.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import NODES as NODE_TYPE
from kvstack.agents.client.built_in import PODS, SERVICES
from kvstack.agents.client.kubeconfig import Cluster, connect, load
from kvstack.agents.client.resource_type import ResourceType
from kvstack.apimachinery.objects.status import ApiError
from kvstore.transport import native
from tests.agents.topology.images import base_images
from tests.agents.topology.trouble import faults_after, one_of_each
from tests.support.compose import COMPOSE, ROOT, restarts, services_of
from tests.support.documented import words
from tests.support.network.ports import free_ports
from tests.support.waiting import answered, wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(2400),
    pytest.mark.xdist_group("topology"),
]

PORTS: Final = ("PORT1", "PORT2", "PORT3", "API_PORT")
COMMAND_S: Final = 1200.0
AGAIN_S: Final = 60.0
LASTING: Final = [name for name, each in services_of().items() if restarts(each)]
NODES: Final = ("node1", "node2")
SERVES: Final = (
    "import http.server, os, socketserver\n"
    "class Name(http.server.BaseHTTPRequestHandler):\n"
    "  def do_GET(self):\n"
    "    self.send_response(200); self.end_headers()\n"
    "    self.wfile.write(os.environ['NODE'].encode())\n"
    "http.server.ThreadingHTTPServer(('', 8080), Name).serve_forever()\n"
)
ASKS: Final = (
    "import sys, urllib.request as w; print(w.urlopen(sys.argv[1], timeout=5).read().decode())"
)
WITH_PODS: Final = (
    "docker compose --profile pods up --build --detach --wait --scale nodes1=0 --scale nodes2=0"
)
PYTHON: Final = "/opt/kvstack/bin/python"


def docker(
    *words: str, check: bool = True, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["docker", *words],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_S,
    )
    assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done


def require_docker() -> None:
    """Skip the test where it would have to start an engine, or to install something."""
    if not shutil.which("docker"):
        pytest.skip("docker is not installed")
    if docker("version", check=False).returncode:
        pytest.skip("no engine of docker can be reached")
    if docker("compose", "version", check=False).returncode:
        pytest.skip("docker has no Compose")
    if not os.environ.get("DOCKER_HOST", "unix://").startswith("unix://"):
        pytest.skip("the engine is on another machine, and so would the ports be")
    if not native.is_available():
        pytest.skip("the store has TLS by the crate alone")


class Containers:
    """The services of compose.yaml in containers."""

    def __init__(self, project: str, directory: Path, environment: dict[str, str]) -> None:
        self._words: tuple[str, ...] = (
            *("compose", "--project-name", project),
            *("--file", str(COMPOSE)),
        )
        self._environment = environment
        self._directory = directory
        self._killed = ""

    def compose(self, *words: str, check: bool = True) -> str:
        return docker(*self._words, *words, check=check, environment=self._environment).stdout

    def up(self) -> Cluster:
        """Build and start everything; return how it is reached, as the head of the file says."""
        _, *up = words("docker compose up --build --detach --wait")
        self.compose(*up)
        certificates = self._directory / "certs"
        _, *copy = words("docker compose cp certs:/certs/. ./certs", {"./certs": str(certificates)})
        self.compose(*copy)
        command = "kubectl --kubeconfig certs/kubernetes/admin.conf get nodes"
        _, file, *_ = words(command, {"certs/kubernetes": str(certificates / "kubernetes")})
        return load(Path(file))

    def up_nodes(self) -> None:
        """Start the nodes that run pods in place of the hollow ones, as the file's head says."""
        _, *up = words(WITH_PODS)
        (self._directory / "images").mkdir()
        self.compose(*up)
        self._words += ("--profile", "pods")

    def down(self) -> None:
        (self._directory / "containers.log").write_text(self.compose("logs", check=False))
        self.compose("down", "--volumes", "--timeout", "60")

    def kill(self, name: str) -> None:
        """Kill a container, which stays away until the next is killed."""
        self.restore()
        self.compose("kill", name)
        assert not self.state(name)["Running"]
        self._killed = name

    def restore(self) -> None:
        """Bring back the one that was killed."""
        if self._killed:
            self.compose("up", "--detach", "--no-deps", "--no-recreate", self._killed)
            self._killed = ""

    def crash(self, name: str) -> None:
        """Kill the process of a container, which the engine starts again."""
        before = self.state(name)
        os.kill(before["Pid"], signal.SIGKILL)

        def is_back() -> bool:
            after = self.state(name)
            return bool(after["Running"]) and after["Pid"] != before["Pid"]

        wait_for(is_back, f"{name} is started again", AGAIN_S)

    def state(self, name: str) -> dict[str, Any]:
        container = self.compose("ps", "--all", "--quiet", name).strip()
        found: dict[str, Any] = json.loads(
            docker("inspect", "--format", "{{json .State}}", container).stdout
        )
        return found


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Containers, Cluster]]:
    require_docker()
    directory = tmp_path_factory.mktemp("containers")
    python, rust = base_images(docker, directory)
    ports = free_ports(len(PORTS))
    environment = {
        "KVSTACK_IMAGE": "kvstack-test",
        "PYTHON_IMAGE": python,
        "RUST_IMAGE": rust,
        "IMAGES": str(directory / "images"),
        **{name: str(port) for name, port in zip(PORTS, ports, strict=True)},
    }
    found = Containers(f"kvstack-test-{os.getpid()}", directory, environment)
    try:
        yield found, found.up()
    finally:
        found.down()


def test_any_container_may_be_killed(containers: tuple[Containers, Cluster]) -> None:
    found, cluster = containers
    chance = random.Random(1)
    # Clients outside have but one address: what stands for it cannot stay away.
    kills = one_of_each([name for name in LASTING if name[-1].isdigit()], chance)
    faults = faults_after(cluster, found.kill, kills, chance, restore=found.restore)
    assert not faults, "\n".join(faults)


def test_containers_whose_process_ends_are_started_again(
    containers: tuple[Containers, Cluster],
) -> None:
    if os.geteuid() != 0:
        pytest.skip("processes of containers are killed by root alone")
    found, cluster = containers
    chance = random.Random(2)
    faults = faults_after(cluster, found.crash, one_of_each(LASTING, chance), chance)
    assert not faults, "\n".join(faults)


def test_pods_run_in_nodes_that_are_containers(
    containers: tuple[Containers, Cluster],
) -> None:
    """A Service answers on both nodes, also after a kill. Last of all, as the hollow nodes go."""
    found, cluster = containers
    found.up_nodes()
    asyncio.run(_serve(found, cluster))


async def _serve(found: Containers, cluster: Cluster) -> None:
    api = Api(connect(cluster), Options(timeout_s=10.0))

    async def is_ready(resource: ResourceType, namespace: str, name: str) -> bool:
        try:
            status = (await api.get(resource, namespace, name)).get("status") or {}
        except ApiError as error:
            if error.is_not_found:
                return False
            raise
        conditions = status.get("conditions") or ()
        return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)

    def heard() -> set[str]:
        answers = [
            found.compose("exec", "-T", node, PYTHON, "-c", ASKS, url, check=False).strip()
            for node in NODES
            for _ in range(8)
        ]
        return set(answers)

    try:
        for node in NODES:
            await answered(partial(is_ready, NODE_TYPE, "", node), within_s=AGAIN_S)
            await api.create(PODS, "default", _pod(node))
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "served", "namespace": "default"},
            "spec": {"selector": {"app": "served"}, "ports": [{"port": 80, "targetPort": 8080}]},
        }
        made = await api.create(SERVICES, "default", service)
        url = f"http://{made['spec']['clusterIP']}/"
        for node in NODES:
            await answered(partial(is_ready, PODS, "default", f"on-{node}"), within_s=AGAIN_S)
        await asyncio.to_thread(wait_for, lambda: heard() == set(NODES), "both answer", AGAIN_S)
        await asyncio.to_thread(found.kill, "node1")
        await asyncio.to_thread(found.restore)
        await asyncio.to_thread(wait_for, lambda: heard() == set(NODES), "both again", 2 * AGAIN_S)
        await answered(partial(is_ready, NODE_TYPE, "", "node1"), within_s=AGAIN_S)
    finally:
        await api.close()


def _pod(node: str) -> dict[str, Any]:
    """Return a pod of a node that tells its name."""
    container = {
        "name": "c",
        "image": "host:latest",
        "command": ["python3", "-c", SERVES],
        "env": [{"name": "NODE", "value": node}],
        "resources": {"limits": {"memory": "64Mi"}},
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"on-{node}", "namespace": "default", "labels": {"app": "served"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
