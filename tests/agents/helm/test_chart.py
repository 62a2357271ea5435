"""A chart of the project's own, in the hands of helm: from its installation to its end.

The cluster has everything but real nodes: pods run on hollow ones, where a pod that is not to run
forever ends well, unless its annotation says otherwise.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.agents.standalone.parts import NODE
from tests.apiserver.stories.clients import ClientsMissingError, clients

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

CHART = Path(__file__).parent / "chart"
TIMEOUT_S = 200
WAIT = ("--wait", "--timeout", "180s")


class Programs:
    """helm and kubectl for one cluster."""

    def __init__(self, folder: Path, cluster: BackgroundCluster, home: Path) -> None:
        self._folder = folder
        self.home = home
        self._environment = {
            "PATH": str(folder),
            "HOME": str(home),
            "KUBECONFIG": str(cluster.kubeconfig),
        }

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the namespace of the release."""
        command = [str(self._folder / program), "-n", "shops", *words]
        return subprocess.run(
            command,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def helm(self, *words: str) -> str:
        """Run a command of helm that must succeed; return what it printed."""
        done = self.run("helm", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def releases(self) -> list[tuple[str, str, str]]:
        """Return name, revision and status of all releases."""
        found = json.loads(self.helm("list", "-o", "json"))
        return [(each["name"], each["revision"], each["status"]) for each in found]

    def get(self, *words: str) -> Any:
        """Return what kubectl finds."""
        done = self.run("kubectl", "get", "-o", "json", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def names(self, resource: str) -> list[str]:
        """Return the names of the objects of a resource that are the release's."""
        listed = self.get(resource, "-l", "app.kubernetes.io/instance=one")
        return [each["metadata"]["name"] for each in listed["items"]]


@pytest.mark.parametrize(
    "release",
    [
        pytest.param("1.28", id="helm 3", marks=pytest.mark.long),  # it waits two seconds at a time
        pytest.param("1.37", id="helm 4"),
    ],
)
def test_a_release_from_its_beginning_to_its_end(release: str, tmp_path: Path) -> None:
    try:
        folder = clients(release)
    except ClientsMissingError as missing:
        pytest.skip(str(missing))
    with BackgroundCluster(
        tmp_path / "cluster", Settings(nodes=2, without=frozenset({NODE}))
    ) as cluster:
        programs = Programs(folder, cluster, tmp_path)
        _install(programs)
        _upgrade(programs)
        _test(programs)
        _roll_back(programs)
        _uninstall(programs)


def _install(programs: Programs) -> None:
    said = programs.helm("install", "one", str(CHART), "--create-namespace", *WAIT)
    assert "one says hello on port 80." in said
    assert programs.releases() == [("one", "1", "deployed")]
    assert programs.get("deployment", "one")["status"]["readyReplicas"] == 2
    assert programs.get("configmap", "one-config")["data"] == {
        "greeting": "hello",
        "served": "true",
    }
    again = programs.run("helm", "install", "one", str(CHART))
    assert again.returncode != 0
    assert "a name that is still in use" in again.stderr


def _upgrade(programs: Programs) -> None:
    values = ("--set", "replicas=3", "--set", "greeting=hi")
    programs.helm("upgrade", "one", str(CHART), *values, *WAIT)
    assert programs.releases() == [("one", "2", "deployed")]
    deployment = programs.get("deployment", "one")
    assert (deployment["spec"]["replicas"], deployment["status"]["readyReplicas"]) == (3, 3)
    assert programs.get("configmap", "one-config")["data"]["greeting"] == "hi"
    assert programs.get("job", "one-migration")["status"]["succeeded"] == 1
    assert json.loads(programs.helm("get", "values", "one", "-o", "json")) == {
        "replicas": 3,
        "greeting": "hi",
    }


def _test(programs: Programs) -> None:
    assert "Succeeded" in programs.helm("test", "one", "--timeout", "180s")
    assert programs.get("pod", "one-reaches")["status"]["phase"] == "Succeeded"
    programs.helm("upgrade", "one", str(CHART), "--reuse-values", "--set", "testFails=true", *WAIT)
    failed = programs.run("helm", "test", "one", "--timeout", "180s")
    assert failed.returncode != 0
    assert programs.get("pod", "one-reaches")["status"]["phase"] == "Failed"


def _roll_back(programs: Programs) -> None:
    programs.helm("rollback", "one", "1", *WAIT)
    assert programs.releases() == [("one", "4", "deployed")]
    history = json.loads(programs.helm("history", "one", "-o", "json"))
    assert [each["status"] for each in history] == ["superseded"] * 3 + ["deployed"]
    assert programs.get("deployment", "one")["spec"]["replicas"] == 2
    assert programs.get("configmap", "one-config")["data"]["greeting"] == "hello"


def _uninstall(programs: Programs) -> None:
    programs.helm("uninstall", "one", *WAIT)
    assert programs.releases() == []
    for resource in ("deployments", "replicasets", "services", "configmaps", "pods"):
        assert programs.names(resource) == []
