"""What a plan names: what gets stuck, and what nobody here can know."""

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.clusters.contents import Contents
from kvstack.clusters.plan.change import PlanError
from kvstack.clusters.plan.command_change import RATE, CommandChange, blocking_refusal
from kvstack.clusters.plan.file_change import with_fields_handed_over
from kvstack.clusters.plan.plan_run import PlanSettings
from kvstack.clusters.plan.printing import as_markdown, as_table
from kvstack.clusters.plan.report import Report, report_of
from kvstack.clusters.plan.writes import Write, who
from kvstack.clusters.sources.source import ReadOptions, Silent
from kvstack.clusters.sources.state_files import StateFileSource
from tests.clusters.plan.planning import (
    SETTINGS,
    SHOP,
    WEBHOOK,
    applied,
    at_rest,
    contents_of,
    edited,
    plan,
    without_events,
)
from tests.clusters.support.snapshots import real_snapshot

pytestmark = pytest.mark.slow

QUOTA = """\
apiVersion: v1
kind: ResourceQuota
metadata: {name: few, namespace: shop}
spec: {hard: {pods: "9"}}
"""


@pytest.fixture(scope="module")
def shop() -> Contents:
    return at_rest(contents_of(SHOP))


def reported(contents: Contents, change: Any, settings: PlanSettings = SETTINGS) -> Report:
    return report_of(plan(contents, change, settings))


def texts_of(findings: Any) -> list[str]:
    return [f"{each.subject}: {each.text}" for each in findings]


def test_objects_of_a_foreign_kind(shop: Contents) -> None:
    text = (
        "apiVersion: example.com/v1\nkind: Certificate\nmetadata: {name: new, namespace: shop}\n"
        "spec: {host: new.example.com}\n"
    )
    report = reported(shop, applied(text))
    assert texts_of(report.unforeseen) == [
        "certificate shop/new: no controller for certificates.example.com runs here"
    ]
    assert report.fails(frozenset(("unforeseen", "stuck", "delete"))) == ["unforeseen"]


def test_a_webhook_that_is_not_asked(shop: Contents) -> None:
    with_webhook = plan(shop, applied(WEBHOOK)).after
    report = reported(
        without_events(with_webhook), edited(("replicas: 4", "replicas: 5"), kind="Deployment")()
    )
    (finding,) = texts_of(report.unforeseen)
    assert finding.startswith("admission webhook check.example.com: was not asked")
    assert "deployments" in finding


def test_an_image_that_never_starts(shop: Contents) -> None:
    change = edited(("registry.example.com/web:1.4", "missing/web:1"), kind="Deployment")()
    report = reported(shop, change)
    assert report.stuck
    assert all("ImagePullBackOff (missing/web:1)" in each.text for each in report.stuck)
    assert {each.who for each in report.stuck} == {"kubelet"}


def test_a_quota_that_refuses_half_way(shop: Contents) -> None:
    with_quota = without_events(plan(shop, applied(QUOTA)).after)
    change = edited(("replicas: 4", "replicas: 12"), kind="Deployment")()
    report = reported(with_quota, change)
    (finding,) = texts_of(report.stuck)
    assert finding.startswith("replicaset shop/web-")
    assert "exceeded quota: few" in finding


def test_a_right_that_a_controller_loses(shop: Contents) -> None:
    text = (
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n"
        "metadata: {name: system:controller:deployment-controller}\n"
        "rules: [{apiGroups: [apps], resources: [deployments], verbs: [get, list, watch]}]\n---\n"
    )
    deployment = SHOP.read_text().split("---\n")[3].replace("web:1.4", "web:1.5")
    report = reported(shop, applied(text + deployment))
    assert any(
        each.startswith("deployment-controller: may not create replicasets.apps: ")
        for each in texts_of(report.stuck)
    )
    assert any("may no longer" in each.text for each in report.unforeseen)


def test_a_change_that_is_refused_names_its_file(shop: Contents) -> None:
    for change, message in (
        (edited(("{app: web}", "{app: wep}"), kind="Deployment")(), "change.yaml:1: .*immutable"),
        (applied("apiVersion: v9\nkind: X\nmetadata: {name: a}\n"), "change.yaml:1: "),
    ):
        with pytest.raises(PlanError, match=message):
            plan(shop, change)


def test_fields_that_files_have_no_more_are_removed(shop: Contents) -> None:
    deployment = SHOP.read_text().split("---\n")[3]
    labelled = deployment.replace("name: web, names", "labels: {team: a}, name: web, names")
    after = without_events(plan(shop, applied(labelled)).after)
    assert "metadata.labels was removed" in as_table(reported(after, applied(deployment)))


def test_what_kubectl_set_passes_to_the_manager_that_applies() -> None:
    of_others = {"manager": "hpa", "operation": "Update", "fieldsV1": {"f:spec": {}}}
    of_status = {
        "manager": "kubectl-client-side-apply",
        "operation": "Update",
        "subresource": "status",
        "fieldsV1": {"f:status": {}},
    }
    by_client = {
        "manager": "kubectl-client-side-apply",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2",
        "fieldsV1": {"f:spec": {"f:a": {}}},
    }
    by_server = {
        "manager": "kubectl",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": "1",
        "fieldsV1": {"f:spec": {"f:b": {}}},
    }
    assert with_fields_handed_over([of_others, by_server]) is None
    assert with_fields_handed_over([of_others, of_status, by_client, by_server]) == [
        of_others,
        of_status,
        {
            **by_client,
            "manager": "kubectl",
            "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:a": {}, "f:b": {}}},
        },
    ]


def test_a_real_cluster_whose_metrics_nobody_answers_comes_to_rest(tmp_path: Path) -> None:
    source = StateFileSource(real_snapshot(tmp_path))
    contents = asyncio.run(source.read(ReadOptions(has_events=False), Silent()))
    change = edited(("namespace: shop", "namespace: default"), kind="Deployment")()
    report = reported(contents, change)
    assert "+ deployment default/web" in as_table(report)
    (finding,) = texts_of(report.unforeseen)
    assert finding.startswith("aggregated API server v1beta1.metrics.k8s.io: was not reached")
    assert report.passed_s < 300


# Commands.


def command(*words: str, **more: Any) -> CommandChange:
    return CommandChange(words, os.environ, **more)


def kubectl(*words: str) -> CommandChange:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl: a plan of one of its commands")
    return command("kubectl", *words)


def test_a_command_of_kubectl(shop: Contents) -> None:
    report = reported(shop, kubectl("-n", "shop", "scale", "deployment/web", "--replicas=2"))
    assert report.outcome.exit_code == 0
    table = as_table(report)
    assert "~ deployment shop/web" in table
    assert "replicas 4 → 2" in table
    assert "- 2 pods in shop" in table


def test_a_drain_that_a_budget_blocks_for_ever_ends(shop: Contents) -> None:
    report = reported(shop, kubectl("drain", "n1", "n2", "--ignore-daemonsets", "--force"))
    (blocked, *_) = report.stuck
    assert blocked.subject == "the command"
    assert "pod shop/db-" in blocked.text
    assert "disruption budget" in blocked.text
    assert "node n1" in as_table(report)


def test_a_command_that_fails_or_is_not_there_or_takes_too_long(shop: Contents) -> None:
    script = "import os, sys; sys.exit(3 if 'KUBECONFIG' in os.environ else 4)"
    assert reported(shop, command(sys.executable, "-c", script)).outcome.exit_code == 3
    with pytest.raises(PlanError, match="no-such-program: No such file"):
        plan(shop, command("no-such-program"))
    endless = command(sys.executable, "-c", "import time; time.sleep(600)", limit_s=1.0)
    report = reported(shop, endless)
    assert texts_of(report.stuck) == [f"the command: {sys.executable} did not end within 1 s"]


def test_time_goes_on_while_a_command_runs_and_not_too_fast(shop: Contents) -> None:
    """Nothing is due: it goes faster than the command waits, at most sixty times as fast."""
    began_s = time.monotonic()
    report = reported(shop, command(sys.executable, "-c", "import time; time.sleep(1)"))
    took_s = time.monotonic() - began_s
    assert 2 < report.outcome.ended_s <= RATE * took_s


def test_evictions_block_only_while_nothing_else_happens() -> None:
    pods = GroupResource("", "pods")

    def write(at_s: float, code: int) -> Write:
        return Write(at_s, "you", "create", pods, "eviction", "shop", "db-0", code, "no")

    refused = [write(1, 429), write(6, 429)]
    assert blocking_refusal([], refused) == refused[1]
    assert blocking_refusal([write(3, 201)], refused) is None
    assert blocking_refusal([], refused[:1]) is None
    assert blocking_refusal([], [write(1, 500), write(2, 500)]) is None


def test_users_have_names_that_people_know() -> None:
    assert who("system:serviceaccount:kube-system:job-controller") == "job-controller"
    assert who("system:serviceaccount:shop:robot") == "shop/robot"
    assert who("system:kube-scheduler") == "scheduler"
    assert who("ann") == "ann"


def test_markdown_ends_no_block_and_moves_no_cursor(shop: Contents) -> None:
    text = (
        "apiVersion: example.com/v1\nkind: Certificate\nmetadata: {name: web, namespace: shop}\n"
        'spec: {host: "```\\n\\u001b[2J"}\n'
    )
    shown = as_markdown(reported(shop, applied(text)))
    assert shown.startswith("**Plan:** 1 by you")
    assert shown.count("```") == 2
    assert "\x1b" not in shown
