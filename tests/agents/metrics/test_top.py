"""`kubectl top` of a cluster of one process, as a newcomer types it."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from tests.agents.standalone.test_stack import lines_of, up
from tests.agents.support.namespaces import has_namespaces
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.support.documented import words
from tests.support.servers import free_ports
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

SHOWN_S = 60.0
"""So long after its start a pod is shown on a busy machine; elsewhere it takes a period of 15 s and
the 4 s that
it has to have run. That one reading is enough: see test_points."""
WAIT_S = 60.0
POD = "/apis/metrics.k8s.io/v1/namespaces/default/pods/busy"


def kubectl(file: Path, *arguments: str) -> tuple[int, str]:
    try:
        program = clients("1.37") / "kubectl"
    except ClientsMissingError as error:
        pytest.skip(f"no kubectl: {error}")
    environment = {**os.environ, "KUBECONFIG": str(file), "HOME": str(file.parent)}
    done = subprocess.run(
        [program, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def printed(read: Callable[[], tuple[int, str]], pattern: str) -> str:
    text = ""

    def is_shown() -> bool:
        nonlocal text
        _, text = read()
        return bool(re.search(pattern, text, re.MULTILINE))

    try:
        wait_for(is_shown, pattern, WAIT_S, every_s=0.2)
    except AssertionError as error:
        error.add_note(text)
        raise
    return text


def delay_s(file: Path) -> float:
    """Return how long after the start of the pod its first metrics were taken."""
    code, text = kubectl(file, "get", "--raw", POD)
    assert code == 0, text
    taken = datetime.fromisoformat(json.loads(text)["timestamp"])
    code, text = kubectl(file, "get", "pod", "busy", "-o", "json")
    assert code == 0, text
    state = json.loads(text)["status"]["containerStatuses"][0]["state"]
    return (taken - datetime.fromisoformat(state["running"]["startedAt"])).total_seconds()


def test_of_hollow_nodes(tmp_path: Path) -> None:
    with BackgroundCluster(tmp_path / "cluster", Settings(nodes=2)) as cluster:
        file = cluster.kubeconfig
        loads = ("--annotations=hollow/cpu=250m", "--annotations=hollow/memory=100Mi")
        code, text = kubectl(file, "run", "busy", "--image=nginx", *loads)
        assert code == 0, text
        containers = words("kubectl top pods --containers")
        printed(lambda: kubectl(file, *containers), r"^busy +busy +250m +100Mi")
        assert delay_s(file) <= SHOWN_S
        nodes = words("kubectl top nodes")
        text = printed(lambda: kubectl(file, *nodes), r"^hollow-2 +1[01]m +0% +128Mi +1%")
        assert re.search(r"^hollow-1 +\d+m +\d% +\d+Mi +\d%", text, re.MULTILINE)
        _, text = kubectl(file, "top", "pods", "-l", "run=other")
        assert "No resources found" in text
        code, text = kubectl(file, "top", "pods", "--as=somebody")
        assert code == 1
        assert 'cannot list resource "pods" in API group "metrics.k8s.io"' in text
        viewer = ("create", "rolebinding", "views", "--clusterrole=view", "--user=somebody")
        code, text = kubectl(file, *viewer)
        assert code == 0, text
        printed(lambda: kubectl(file, "top", "pods", "--as=somebody"), r"^busy +250m +100Mi")
        _, text = kubectl(file, "top", "pods", "-A", "--as=somebody")
        assert "at the cluster scope" in text
        code, text = kubectl(file, *words("kubectl get podmetrics"))
        assert (code, "busy" in text) == (0, True), text
        code, text = kubectl(file, "create", "deployment", "web", "--image=nginx")
        assert code == 0, text
        code, text = kubectl(
            file, *words("kubectl autoscale deployment web --cpu=50% --min=1 --max=5")
        )
        assert code == 0, text
        path = words(
            "kubectl get --raw /apis/metrics.kvstack.io/v1/namespaces/default/pods/web",
            {"pods/web": "pods/busy"},
        )
        assert json.loads(kubectl(file, *path)[1])["kind"]
        path = words(
            "kubectl get --raw /apis/metrics.kvstack.io/v1/nodes/NODE", {"NODE": "hollow-1"}
        )
        assert json.loads(kubectl(file, *path)[1])["kind"]


@pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces")
def test_of_processes(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    (api,) = free_ports(1)
    file = directory / "kubernetes" / "admin.conf"
    with up(directory, f"--secure-port={api}") as process:
        lines_of(process)
        code, text = kubectl(
            file, "wait", "--for=create", "serviceaccount/default", "--timeout=60s"
        )
        assert code == 0, text
        # It leaves most of its core to other tests.
        script = "while :; do n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done; sleep 0.2; done"
        command = ("--image=host:latest", "--command", "--", "sh", "-c", script)
        code, text = kubectl(file, "run", "busy", *command)
        assert code == 0, text
        found = printed(
            lambda: kubectl(file, "top", "pods", "--containers"), r"^busy +busy +\d+m +\d+Mi"
        )
        assert delay_s(file) <= SHOWN_S
        cores = re.search(r"^busy +busy +(\d+)m", found, re.MULTILINE)
        assert cores is not None
        assert int(cores[1]) > 10, "a loop takes its share of a core, on a busy machine little"
        printed(lambda: kubectl(file, "top", "nodes"), r"^\S+ +\d+m +\d+% +\d+Mi +\d+%")
        kubectl(file, "delete", "pod", "busy", "--grace-period=1")
