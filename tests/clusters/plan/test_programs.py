"""Plans of commands of helm and kubectl, unmodified, and what happens when they are then run."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.clusters.forks.fork_settings import ForkSettings
from kvstack.clusters.plan.command_change import CommandChange
from kvstack.clusters.plan.plan_run import PlanResult, PlanSettings
from kvstack.clusters.plan.printing import as_table
from kvstack.clusters.plan.report import report_of
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.clusters.plan.planning import differences, plan
from tests.clusters.support.sources import read

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

CHART = Path(__file__).with_name("chart")
AT_ONCE = PlanSettings(fork=ForkSettings(ready_after_s=0.0))
TIMEOUT_S = 240


class Programs:
    """helm and kubectl for a cluster, and for plans of it."""

    def __init__(self, folder: Path, cluster: BackgroundCluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self._environ = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "HOME": str(directory),
            "KUBECONFIG": str(cluster.kubeconfig),
        }

    def run(self, *words: str) -> None:
        """Run a command on the cluster, and wait until that is settled."""
        done = subprocess.run(
            words,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self._cluster.settle(within_s=5)
        self._cluster.clock.advance(35)
        self._cluster.settle(within_s=5)

    def planned(self, *words: str) -> PlanResult:
        """Plan a command, then run it: the same comes of both."""
        before = read(self._cluster)
        found = plan(before, CommandChange(words, self._environ), AT_ONCE, self._directory)
        assert (found.outcome.exit_code, found.outcome.stopped) == (0, "")
        self.run(*words)
        happened = differences(before, read(self._cluster))
        assert happened
        assert differences(found.before, found.after) == happened
        return found


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    try:
        folder = clients("1.37")
    except ClientsMissingError as error:
        pytest.skip(str(error))
    settings = Settings(nodes=3, without=frozenset(("metrics",)), clock="virtual")
    with BackgroundCluster(tmp_path / "cluster", settings) as cluster:
        yield Programs(folder, cluster, tmp_path)


def test_an_upgrade_with_helm(programs: Programs) -> None:
    programs.run("helm", "install", "shop", str(CHART))
    more = ("--set", "image=registry.example/web:1.5", "--set", "migration=migrate:2")
    result = programs.planned(
        "helm", "upgrade", "shop", str(CHART), *more, "--wait", "--timeout", "120s"
    )
    table = as_table(report_of(result))
    assert "~ deployment default/shop" in table
    assert "image 1.4 → 1.5" in table
    assert "+ 3 pods in default" in table
    assert "- configmap default/shop-" in table
    assert "+ secret default/sh.helm.release.v1.shop.v2" in table
    assert "shop-migration" not in table  # the hook has come and gone


def test_a_rollback_and_an_end_with_helm(programs: Programs) -> None:
    programs.run("helm", "install", "shop", str(CHART))
    programs.run("helm", "upgrade", "shop", str(CHART), "--set", "replicas=1")
    result = programs.planned("helm", "rollback", "shop", "1")
    assert "replicas 1 → 3" in as_table(report_of(result))
    table = as_table(report_of(programs.planned("helm", "uninstall", "shop")))
    assert "- deployment default/shop" in table
    assert "- 3 pods in default" in table


def test_a_drain(programs: Programs) -> None:
    programs.run("helm", "install", "shop", str(CHART))
    result = programs.planned("kubectl", "drain", "hollow-1", "--ignore-daemonsets")
    table = as_table(report_of(result))
    assert "node hollow-1" in table
    assert "- pod default/shop-" in table
    assert report_of(result).stuck == []


def test_an_overlay(programs: Programs, tmp_path: Path) -> None:
    base, overlay = tmp_path / "base", tmp_path / "overlay"
    base.mkdir()
    overlay.mkdir()
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web"}]},
            },
        },
    }
    (base / "web.yaml").write_text(yaml.safe_dump(deployment))
    (base / "kustomization.yaml").write_text("resources: [web.yaml]\n")
    (overlay / "kustomization.yaml").write_text(
        "resources: [../base]\nnamePrefix: prod-\nreplicas: [{name: web, count: 2}]\n"
        "images: [{name: web, newTag: '1.5'}]\n"
        "configMapGenerator: [{name: told, literals: [a=b]}]\n"
    )
    table = as_table(report_of(programs.planned("kubectl", "apply", "-k", str(overlay))))
    assert "+ deployment default/prod-web" in table
    assert "+ 2 pods in default" in table
    assert "+ configmap default/prod-told-" in table
    (overlay / "kustomization.yaml").write_text("resources: [../base]\nnamePrefix: prod-\n")
    table = as_table(report_of(programs.planned("kubectl", "apply", "-k", str(overlay))))
    assert "image web:1.5 → web" in table
