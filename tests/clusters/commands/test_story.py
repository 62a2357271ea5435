"""The stories of docs/fork.md."""

import re
from pathlib import Path

import pytest

from kvstack.agents.client.built_in import DEPLOYMENTS, NAMESPACES
from kvstack.agents.standalone.in_memory.background import BackgroundCluster
from tests.clusters.support.sources import call
from tests.clusters.support.stories import play

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


def prepare(cluster: BackgroundCluster) -> None:
    call(
        cluster.kubeconfig,
        lambda api: api.create(NAMESPACES, "", {"metadata": {"name": "shop"}}),
        lambda api: api.create(DEPLOYMENTS, "shop", SHOP),
    )


@pytest.mark.slow
@pytest.mark.e2e
def test_the_story_of_the_page(tmp_path: Path) -> None:
    said = play("fork.md", tmp_path, prepare, ("delete", "fork", "--all"))
    assert re.match(r'fork "before" of "kubernetes-admin@kvstack" at revision', said[0])
    assert "~ deployment shop/web" in said[4]
    assert "image 1.4 → 1.5" in said[4]
    assert "before.kvs: " in said[5]
    assert "read-only" in said[6]
    assert re.findall(r"^(\S+)", said[8], re.MULTILINE) == ["NAME", "before", "later"]
    assert said[9].splitlines() == ['fork "before" deleted', 'fork "later" deleted']
    assert "kvstack-fork" not in (tmp_path / "config").read_text()


@pytest.mark.slow
@pytest.mark.e2e
def test_the_story_of_a_clock(tmp_path: Path) -> None:
    last = ("delete", "fork", "--all")
    said = play("fork.md", tmp_path, lambda _: None, last, heading="A clock of its own")
    assert "paused clock, " in said[1]
    assert said[2].rstrip().endswith(", a clock of its own, paused")
    assert said[4].startswith("later is settled at revision ")
    assert "cronjob-controller default/report is due in " in said[4]
    jobs = re.findall(r"^job.batch/report-\d+ +Complete", said[5], re.MULTILINE)
    assert len(jobs) == 3
    assert ", 100 times as fast as the machine's" in said[6]
    assert said[9] == 'fork "later" deleted\n'
