"""The story that docs/fork.md begins with, word for word, with kubectl."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvstack.agents.client.built_in import DEPLOYMENTS, NAMESPACES
from kvstack.agents.standalone.background import BackgroundCluster, Settings
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.clusters.support.sources import call

PAGE = Path(__file__).parents[3] / "docs" / "fork.md"
SHOP = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "registry.example/web:1.4"}]},
        },
    },
}


def story() -> list[str]:
    """Return the commands of the page's first block."""
    block = PAGE.read_text().split("\n\n")[1]
    return [line.strip() for line in block.splitlines()]


@pytest.mark.slow
@pytest.mark.e2e
def test_the_story_of_the_page(tmp_path: Path) -> None:
    try:
        kubectl = clients("1.37") / "kubectl"
    except ClientsMissingError as error:
        pytest.skip(str(error))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(kubectl)
    launcher = programs / "kvstack"
    launcher.write_text(f'#!/bin/sh\nexec {sys.executable} -m kvstack "$@"\n')
    launcher.chmod(0o755)
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    with BackgroundCluster(tmp_path / "cluster", Settings(nodes=1)) as cluster:
        config = tmp_path / "config"
        config.write_text(cluster.kubeconfig.read_text())
        call(
            cluster.kubeconfig,
            lambda api: api.create(NAMESPACES, "", {"metadata": {"name": "shop"}}),
            lambda api: api.create(DEPLOYMENTS, "shop", SHOP),
        )
        environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(config),
            "XDG_RUNTIME_DIR": str(runtime),
            "HOME": str(tmp_path),
        }
        said = {}
        lines = story()
        assert len(lines) == 10
        try:
            for line in lines:
                done = subprocess.run(
                    ["sh", "-c", line],
                    env=environment,
                    cwd=tmp_path,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=180,
                )
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
                said[line] = done.stdout
        finally:
            subprocess.run(
                [str(launcher), "delete", "fork", "--all"],
                env=environment,
                capture_output=True,
                check=True,
            )
        assert re.match(r'fork "before" of "kubernetes-admin@kvstack" at revision', said[lines[0]])
        assert "~ deployment shop/web" in said[lines[4]]
        assert "image 1.4 → 1.5" in said[lines[4]]
        assert "before.kvs: " in said[lines[5]]
        assert "read-only" in said[lines[6]]
        assert re.findall(r"^(\S+)", said[lines[8]], re.MULTILINE) == ["NAME", "before", "later"]
        assert said[lines[9]].splitlines() == ['fork "before" deleted', 'fork "later" deleted']
        assert "kvstack-fork" not in config.read_text()
