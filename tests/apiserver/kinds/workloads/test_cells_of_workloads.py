"""The rows of workloads in Tables."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.strategy import Strategy
from kvstack.apiserver.kinds.workloads.autoscalers.strategy import AUTOSCALERS
from kvstack.apiserver.kinds.workloads.cells import scale_cells
from kvstack.apiserver.kinds.workloads.controller_revisions import CONTROLLER_REVISIONS
from kvstack.apiserver.kinds.workloads.daemon_sets import DAEMON_SETS
from kvstack.apiserver.kinds.workloads.deployments import DEPLOYMENTS
from kvstack.apiserver.kinds.workloads.disruption_budgets import DISRUPTION_BUDGETS
from kvstack.apiserver.kinds.workloads.jobs.cron_jobs import CRON_JOBS
from kvstack.apiserver.kinds.workloads.jobs.strategy import JOBS
from kvstack.apiserver.kinds.workloads.pod_templates import POD_TEMPLATES
from kvstack.apiserver.kinds.workloads.replica_sets import REPLICA_SETS
from kvstack.apiserver.kinds.workloads.replication_controllers import REPLICATION_CONTROLLERS
from kvstack.apiserver.kinds.workloads.stateful_sets import STATEFUL_SETS
from tests.apiserver.kinds.hooks import NOW, SECONDS, cells_of
from tests.apiserver.kinds.workloads.examples import JOB, TEMPLATE, job, workload

LATER = "2026-01-02T03:05:05Z"


@pytest.mark.parametrize(
    ("strategy", "status", "expected"),
    [
        (
            DEPLOYMENTS,
            {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 3},
            ["w", "1/2", 2, 3, "3m", "c", "a:1", "app=x"],
        ),
        (
            REPLICA_SETS,
            {"replicas": 3, "readyReplicas": 1},
            ["w", 2, 3, 1, "3m", "c", "a:1", "app=x"],
        ),
        (STATEFUL_SETS, {}, ["w", "0/2", "3m", "c", "a:1"]),
        (
            DAEMON_SETS,
            {"desiredNumberScheduled": 5, "numberReady": 4},
            ["w", 5, 0, 4, 0, 0, "<none>", "3m", "c", "a:1", "app=x"],
        ),
    ],
)
def test_replicated(strategy: Strategy, status: Object, expected: list[Any]) -> None:
    assert cells_of(strategy, workload({"replicas": 2}, status=status)) == expected


def test_selectors() -> None:
    """None, everything, and what is none."""
    wrong = {"matchExpressions": [{"key": "a", "operator": "x"}]}
    assert cells_of(DEPLOYMENTS, workload({"selector": None}))[-1] == ""
    assert cells_of(DEPLOYMENTS, workload({"selector": {**wrong, "matchLabels": None}}))[-1] == (
        "<invalid>"
    )
    assert cells_of(REPLICA_SETS, workload({"selector": None}))[-1] == "<none>"
    assert cells_of(DAEMON_SETS, workload({"template": {"spec": {"nodeSelector": {"a": "b"}}}}))[
        6
    ] == ("a=b")


def test_controllers_and_templates() -> None:
    template = {**TEMPLATE, "spec": {"containers": [{"name": "c", "image": "a:1"}, {"name": "d"}]}}
    controller = {"metadata": {"name": "r"}, "spec": {"template": template, "replicas": 2}}
    assert cells_of(REPLICATION_CONTROLLERS, controller) == [
        "r", 2, 0, 0, "3m", "c,d", "a:1,", "app=x",
    ]  # fmt: skip
    found = cells_of(POD_TEMPLATES, {"metadata": {"name": "t"}, "template": template})
    assert found == ["t", "c,d", "a:1,", "app=x"]


TRUE = {"status": "True"}


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {}, ["Running", "0/1", ""]),
        ({"parallelism": 3}, {"succeeded": 2}, ["Running", "2/1 of 3", ""]),
        ({"parallelism": 1}, {}, ["Running", "0/1", ""]),
        ({}, {"startTime": NOW}, ["Running", "0/1", "3m"]),
        (
            {"completions": 4},
            {
                "startTime": NOW,
                "completionTime": LATER,
                "succeeded": 4,
                "conditions": [{"type": "Failed", **TRUE}, {"type": "Complete", **TRUE}],
            },
            ["Complete", "4/4", "60s"],
        ),
        ({}, {"conditions": [{"type": "Suspended", **TRUE}]}, ["Suspended", "0/1", ""]),
        (
            {},
            {
                "conditions": [
                    {"type": "Suspended", "status": "False"},
                    {"type": "SuccessCriteriaMet", **TRUE},
                ]
            },
            ["SuccessCriteriaMet", "0/1", ""],
        ),
    ],
)
def test_jobs(spec: Object, status: Object, expected: list[str]) -> None:
    cells = cells_of(JOBS, job(spec, status=status))
    assert (cells[0], cells[1:4], cells[4]) == ("j", expected, "3m")
    assert cells[5:] == ["c", "a:1", "<none>"]


def test_deleted_jobs() -> None:
    assert cells_of(JOBS, job(metadata={"deletionTimestamp": NOW}))[1] == "Terminating"


def test_cron_jobs() -> None:
    spec = {"schedule": "@daily", "jobTemplate": {"spec": JOB["spec"]}}
    bare = {"metadata": {"name": "c"}, "spec": spec}
    assert cells_of(CRON_JOBS, bare) == [
        "c", "@daily", "<none>", "False", 0, "<none>", "3m", "c", "a:1", "<none>",
    ]  # fmt: skip
    full = {
        "metadata": {"name": "c"},
        "spec": {**spec, "timeZone": "UTC", "suspend": True},
        "status": {"active": [{}, {}], "lastScheduleTime": LATER},
    }
    assert cells_of(CRON_JOBS, full)[2:6] == ["UTC", "True", 2, "2m"]


def test_revisions() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "controller": True}
    one = {"metadata": {"name": "r", "ownerReferences": [owner]}, "revision": 2}
    assert cells_of(CONTROLLER_REVISIONS, one) == ["r", "statefulset.apps/s", 2, "3m"]
    assert cells_of(CONTROLLER_REVISIONS, {"metadata": {"name": "r"}})[1] == "<none>"


def test_budgets() -> None:
    spec = {"minAvailable": "50%"}
    one = {"metadata": {"name": "b"}, "spec": spec, "status": {"disruptionsAllowed": 2}}
    assert cells_of(DISRUPTION_BUDGETS, one) == ["b", "50%", "N/A", 2, "3m"]


def resource(target: Object, current: Object | None) -> tuple[Object, Object]:
    """Return a metric of cpu and its status."""
    status = {} if current is None else {"type": "Resource", "resource": {"current": current}}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}, status


def other(type_: str, target: Object, current: Object | None) -> tuple[Object, Object]:
    """Return a metric of another type and its status."""
    field = type_.lower()
    status = {} if current is None else {"type": type_, field: {"current": current}}
    return {"type": type_, field: {"target": target}}, status


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ([resource({"averageUtilization": 80}, None)], "cpu: <unknown>/80%"),
        ([resource({"averageUtilization": 80}, {"averageUtilization": 5})], "cpu: 5%/80%"),
        ([resource({}, {})], "cpu: <unknown>/<auto>"),
        ([resource({"averageValue": "50m"}, {"averageValue": "10m"})], "cpu: 10m/50m"),
        ([other("Pods", {"averageValue": "5"}, None)], "<unknown>/5"),
        ([other("Pods", {"averageValue": "5"}, {"averageValue": "4"})], "4/5"),
        ([other("External", {"averageValue": "5"}, {"averageValue": "4"})], "4/5 (avg)"),
        ([other("External", {"value": "5"}, {"value": "4"})], "4/5"),
        ([other("Object", {"value": "5"}, None)], "<unknown>/5"),
        ([other("Object", {"averageValue": "5"}, {})], "<unknown>/5 (avg)"),
        ([({"type": "x"}, {})], "<unknown type>"),
        (
            [other("Pods", {"averageValue": str(each)}, None) for each in range(4)],
            "<unknown>/0, <unknown>/1 + 2 more...",
        ),
    ],
)
def test_autoscalers(metrics: list[tuple[Object, Object]], expected: str) -> None:
    one = {
        "metadata": {"name": "h"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d"},
            "maxReplicas": 3,
            "metrics": [spec for spec, _ in metrics],
        },
        "status": {"currentReplicas": 2, "currentMetrics": [status for _, status in metrics]},
    }
    assert cells_of(AUTOSCALERS, one) == ["h", "Deployment/d", expected, "1", 3, 2, "3m"]


def test_scales() -> None:
    scale = {
        "metadata": {"name": "w", "creationTimestamp": NOW},
        "spec": {"replicas": 3},
        "status": {"replicas": 2},
    }
    assert scale_cells(scale, SECONDS + 60) == ["w", 3, 2, "60s"]
