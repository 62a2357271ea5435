"""kubectl and helm against a whole cluster, as a user types: what they print is what was recorded.

A few stories are told each time; `pytest -m long` tells all that are kept.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.apiserver.player.kept import files_in
from tests.apiserver.stories.clients import ClientsMissingError, clients, release_of
from tests.apiserver.stories.story import Stage, Story, read_stories
from tests.support.servers import free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("recorded-commands")]

COMMANDS = Path(__file__).parent / "recorded" / "commands"
EACH_TIME = frozenset(("c-cronjob-manual", "hc-wait"))
STOP_S = 60.0
TOKENS = """\
admin-token,admin,admin,system:masters
alice-token,alice,alice,"devs,testers"
bob-token,bob,bob
"""
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  namespaces: [pod-flow]
  verbs: [create, update, patch, delete]
- level: None
"""
FLOW = (
    # What is written of a Deployment of one pod, and by whom, in this order.
    ("create", "deployments", "admin"),
    ("create", "replicasets", "system:serviceaccount:kube-system:deployment-controller"),
    ("create", "pods", "system:serviceaccount:kube-system:replicaset-controller"),
    ("create", "pods/binding", "system:kube-scheduler"),
    ("patch", "pods/status", "kvstack:hollow-nodes"),
    ("update", "replicasets/status", "system:serviceaccount:kube-system:replicaset-controller"),
    ("update", "deployments/status", "system:serviceaccount:kube-system:deployment-controller"),
)


def _parameters() -> Iterator[object]:
    for path in files_in(COMMANDS):
        for story in read_stories(path):
            marks = [] if story["name"] in EACH_TIME else [pytest.mark.long]
            yield pytest.param(story, id=story["name"], marks=marks)


class Running(NamedTuple):
    """A cluster that runs."""

    url: str
    audit_log: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A cluster with the tokens and the nodes of the recordings."""
    directory = tmp_path_factory.mktemp("cluster")
    (directory / "tokens.csv").write_text(TOKENS)
    (directory / "audit.yaml").write_text(AUDIT_POLICY)
    running = Running("", directory / "audit.log")
    secure, store = free_ports(2)
    command = [sys.executable, "-m", "kvstack", "up", "--nodes=node-a,node-b,node-c"]
    flags = [
        f"--data-dir={directory / 'data'}",
        f"--secure-port={secure}",
        f"--listen-client-urls=http://127.0.0.1:{store}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--service-cluster-ip-range=10.0.0.0/16",
        "--controllers=*,bootstrapsigner,tokencleaner",
        "--without=node,dns,metrics,proxy",  # as where it was recorded
        f"--audit-policy-file={directory / 'audit.yaml'}",
        f"--audit-log-path={running.audit_log}",
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *flags], stdout=subprocess.PIPE, stderr=log, env=os.environ.copy()
        )
    try:
        assert process.stdout is not None
        told = process.stdout.readline().decode()
        assert told.startswith("export KUBECONFIG="), (directory / "log").read_text()
        yield running._replace(url=f"https://127.0.0.1:{secure}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=STOP_S)
    assert process.returncode == 0


@pytest.mark.parametrize("story", list(_parameters()))
def test_a_story_goes_as_recorded(story: Story, cluster: Running, tmp_path: Path) -> None:
    try:
        programs = clients(release_of(story["client"]))
    except ClientsMissingError as missing:
        pytest.skip(str(missing))
    differences = Stage(cluster.url, programs).tell(story, tmp_path / "story")
    assert not differences, "\n".join(map(str, differences))


def _written(audit_log: Path) -> list[tuple[str, str, str]]:
    """Return verb, resource and user of what was written, in the order of the answers."""
    found = []
    for line in audit_log.read_text().splitlines():
        event = json.loads(line)
        about = event["objectRef"]
        resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
        assert event["responseStatus"]["code"] < 300, event
        row = (event["verb"], resource, event["user"]["username"])
        found.append((event["stageTimestamp"], row))
    return [row for _, row in sorted(found)]


def test_each_step_of_a_pod_is_in_the_audit_log(cluster: Running, tmp_path: Path) -> None:
    """kubectl, API server, controllers, scheduler, node, and the status back to kubectl."""
    try:
        programs = clients(release_of("1.37.1"))
    except ClientsMissingError as missing:
        pytest.skip(str(missing))
    steps = [
        ["create", "namespace", "pod-flow"],
        ["-n", "pod-flow", "create", "deployment", "web", "--image=nginx"],
        ["-n", "pod-flow", "rollout", "status", "deployment/web", "--timeout=240s"],
    ]
    story = {
        "name": "pod-flow",
        "client": "1.37.1",
        "files": {},
        "steps": [
            {"run": ["kubectl", *words], "exit": 0, "stdout": "", "stderr": "", "compare": "exit"}
            for words in steps
        ],
    }
    differences = Stage(cluster.url, programs).tell(story, tmp_path / "story")
    assert not differences, "\n".join(map(str, differences))
    written = iter(_written(cluster.audit_log))
    assert [step for step in FLOW if step not in written] == []  # each after the one before it
