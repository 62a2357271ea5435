"""What would have come without the change, too, is no part of a plan."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvstack.clusters.contents import Contents
from kvstack.clusters.forks.fork_settings import ForkSettings
from kvstack.clusters.plan.plan_run import PlanSettings
from kvstack.clusters.plan.printing import as_json, as_table
from kvstack.clusters.plan.report import Report, report_of
from tests.clusters.plan.planning import (
    SHOP,
    TIME_S,
    applied,
    at_rest,
    contents_of,
    edited,
    plan,
)

pytestmark = pytest.mark.slow

CRON_JOB = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: soon, namespace: shop}
spec:
  schedule: "MINUTE * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: c, image: "IMAGE"}]
"""
SLOW = PlanSettings(fork=ForkSettings(ready_after_s=20.0))
"""Four pods, one after another: more than a minute goes by."""


MINUTE = (datetime.fromtimestamp(TIME_S, UTC).minute + 4) % 60
"""Of every hour: it comes while the change is made, and not before."""


def cron_job(image: str = "report:1") -> str:
    return CRON_JOB.replace("MINUTE", str(MINUTE)).replace("IMAGE", image)


def with_cron_job(directory: Path, image: str = "report:1") -> Contents:
    file = directory / "shop.yaml"
    file.write_text(f"{SHOP.read_text()}---\n{cron_job(image)}")
    return at_rest(contents_of(file))


@pytest.fixture(scope="module")
def due_soon(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return with_cron_job(tmp_path_factory.mktemp("cron"))


def slow_rollout() -> str:
    deployment = SHOP.read_text().split("---\n")[3].replace("web:1.4", "web:1.5")
    return deployment.replace("  replicas: 4\n", "  replicas: 4\n  minReadySeconds: 60\n")


def rollout(contents: Contents) -> Report:
    return report_of(plan(contents, applied(slow_rollout()), SLOW))


def test_a_job_that_was_due_is_not_made_by_the_change(due_soon: Contents) -> None:
    report = rollout(due_soon)
    table = as_table(report)
    assert report.passed_s > 120  # the Job has come meanwhile
    assert "~ deployment shop/web" in table
    assert "soon" not in table
    assert "not shown: " in table
    assert report.came >= 3  # the CronJob's status, the Job and its pod
    document = json.loads(as_json(report))
    assert document["unrelated"] == report.came
    assert document["counts"]["made"] == 5  # a ReplicaSet and its pods


def test_what_comes_by_itself_makes_no_difference(due_soon: Contents) -> None:
    report = report_of(plan(due_soon, edited(kind="Namespace")()))
    assert not report.is_different
    assert report.stuck == []


def test_what_gets_stuck_by_itself_is_not_reported(tmp_path: Path) -> None:
    report = rollout(with_cron_job(tmp_path, "missing/report:1"))
    assert report.came >= 3
    assert report.stuck == []
    assert not any("soon" in each for each in report.assumed)


def test_what_does_not_come_any_more_is_named(due_soon: Contents) -> None:
    suspended = cron_job().replace("spec:\n", "spec:\n  suspend: true\n", 1)
    report = report_of(plan(due_soon, applied(f"{suspended}---\n{slow_rollout()}"), SLOW))
    assert len(report.prevented) == 1
    assert report.prevented[0].startswith("job shop/soon-")
    assert f"prevented: {report.prevented[0]}\n" in as_table(report)


def test_the_same_schedule_with_another_image_is_yours_alone(due_soon: Contents) -> None:
    table = as_table(report_of(plan(due_soon, applied(cron_job("report:2")))))
    assert "~ cronjob shop/soon" in table
    assert "1 by you" in table


def test_a_cron_job_that_you_make_is_followed(tmp_path: Path) -> None:
    shop = at_rest(contents_of(SHOP))
    report = report_of(plan(shop, applied(cron_job())))
    table = as_table(report)
    assert "+ cronjob shop/soon" in table
    assert "+ job shop/soon-" in table  # it is due before the horizon
    assert report.came == 0
