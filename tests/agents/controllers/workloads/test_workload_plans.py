"""Controllers of workloads, driven in memory until they do nothing more."""

from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kvstack.agents.client.built_in import (
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from kvstack.agents.controllers.workloads.daemon_sets.controller import DaemonSetController
from kvstack.agents.controllers.workloads.deployments.controller import DeploymentController
from kvstack.agents.controllers.workloads.disruption import DisruptionController
from kvstack.agents.controllers.workloads.jobs.controller import JobController
from kvstack.agents.controllers.workloads.jobs.cron_jobs import CronJobController
from kvstack.agents.controllers.workloads.jobs.ttl_after_finished import (
    TtlAfterFinishedController,
)
from kvstack.agents.controllers.workloads.stateful_sets.controller import StatefulSetController
from kvstack.agents.reconcile.plan import Action, Again, Create, Delete, Get, Later, Update
from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from tests.agents.support.worlds import START_S, World, refusal

KEY = "default/web"


def _template(image: str = "img:1", **spec: Any) -> Object:
    containers = [{"name": "c", "image": image}]
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers, **spec}}


def _owner(**spec: Any) -> Object:
    selector = {"matchLabels": {"app": "web"}}
    return {
        "metadata": {"name": "web"},
        "spec": {"selector": selector, "template": _template(), **spec},
    }


def _ready(world: World, name: str, **status: Any) -> None:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": format_time(world.now_s)}
    world.change(PODS, name, status={"phase": "Running", "conditions": [condition], **status})


# Deployments.


def _deployment(**spec: Any) -> Object:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    defaults = {"replicas": 3, "strategy": strategy, "progressDeadlineSeconds": 600}
    return _owner(**{**defaults, "revisionHistoryLimit": 10, **spec})


def _serve(world: World) -> None:
    """Let every ReplicaSet have what it wants."""
    for name in world.names(REPLICA_SETS):
        each = world.get(REPLICA_SETS, name)
        count = each["spec"]["replicas"]
        generation = each["metadata"]["generation"]
        counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), count)
        status = {**counts, "observedGeneration": generation, "terminatingReplicas": 0}
        if status != each.get("status"):
            world.change(REPLICA_SETS, name, status=status)


def _roll_out(world: World, controller: DeploymentController) -> list[dict[str, int]]:
    """Bring a rollout to its end; return the sizes of the sets on the way."""
    sizes: list[dict[str, int]] = []
    for _ in range(30):
        world.settle(controller, KEY)
        sizes.append(
            {
                name: world.get(REPLICA_SETS, name)["spec"]["replicas"]
                for name in world.names(REPLICA_SETS)
            }
        )
        if len(sizes) > 1 and sizes[-1] == sizes[-2]:
            return sizes
        _serve(world)
    raise AssertionError(sizes)


def test_a_deployment_rolls_over_step_by_step() -> None:
    world = World(DEPLOYMENTS, REPLICA_SETS, PODS)
    controller = DeploymentController()
    world.add(DEPLOYMENTS, _deployment())
    _roll_out(world, controller)
    [first] = world.names(REPLICA_SETS)
    spec = world.get(DEPLOYMENTS, "web")["spec"]
    world.change(DEPLOYMENTS, "web", spec={**spec, "template": _template("img:2")})
    sizes = _roll_out(world, controller)
    [second] = set(world.names(REPLICA_SETS)) - {first}
    assert [(each[first], each[second]) for each in sizes[:-1]] == [
        (3, 1),
        (2, 2),
        (1, 3),
        (0, 3),
    ]
    status = world.get(DEPLOYMENTS, "web")["status"]
    assert status["updatedReplicas"] == status["availableReplicas"] == 3
    progress = find(status["conditions"], "Progressing")
    assert progress is not None
    assert progress["reason"] == "NewReplicaSetAvailable"
    revision = "deployment.kubernetes.io/revision"
    assert world.get(DEPLOYMENTS, "web")["metadata"]["annotations"][revision] == "2"


def test_a_rollout_that_stands_still_is_reported() -> None:
    world = World(DEPLOYMENTS, REPLICA_SETS, PODS)
    controller = DeploymentController()
    world.add(DEPLOYMENTS, _deployment())
    world.settle(controller, KEY)
    _, again = world.run(controller, KEY)
    assert isinstance(again, Again)
    assert 590 < again.after_s <= 601
    world.now_s += 602
    world.settle(controller, KEY)
    progress = find(world.get(DEPLOYMENTS, "web")["status"]["conditions"], "Progressing")
    assert progress is not None
    assert (progress["status"], progress["reason"]) == ("False", "ProgressDeadlineExceeded")


def test_old_replica_sets_go_beyond_the_limit() -> None:
    world = World(DEPLOYMENTS, REPLICA_SETS, PODS)
    controller = DeploymentController()
    world.add(DEPLOYMENTS, _deployment(revisionHistoryLimit=1))
    for number in range(4):
        spec = world.get(DEPLOYMENTS, "web")["spec"]
        world.change(DEPLOYMENTS, "web", spec={**spec, "template": _template(f"img:{number}")})
        _roll_out(world, controller)
    assert len(world.names(REPLICA_SETS)) == 2


def test_a_taken_name_is_a_collision() -> None:
    world = World(DEPLOYMENTS, REPLICA_SETS, PODS)
    controller = DeploymentController()
    world.add(DEPLOYMENTS, _deployment())
    done, _ = world.run(controller, KEY)
    made = next(each for each in done if isinstance(each, Create))
    world = World(DEPLOYMENTS, REPLICA_SETS, PODS)
    world.add(DEPLOYMENTS, _deployment())
    foreign = {"name": made.obj["metadata"]["name"], "labels": {"app": "other"}}
    world.add(
        REPLICA_SETS,
        {"metadata": foreign, "spec": {"replicas": 0, "template": _template("other")}},
    )
    with pytest.raises(ApiError):
        world.run(controller, KEY)
    assert world.get(DEPLOYMENTS, "web")["status"]["collisionCount"] == 1
    world.settle(controller, KEY)
    assert len(world.names(REPLICA_SETS)) == 2


def test_what_refuses_a_replica_set_is_reported() -> None:
    world = World(DEPLOYMENTS, REPLICA_SETS, PODS)
    world.add(DEPLOYMENTS, _deployment())
    world.refuse = lambda action: refusal(403, "no") if isinstance(action, Create) else None
    with pytest.raises(ApiError):
        world.run(DeploymentController(), KEY)
    [(_, reason, message)] = world.events
    assert reason == "ReplicaSetCreateError"
    assert message.endswith(": no")


def test_a_selector_of_all_does_nothing() -> None:
    world = World(DEPLOYMENTS, REPLICA_SETS, PODS)
    world.add(DEPLOYMENTS, _deployment(selector={}))
    world.settle(DeploymentController(), KEY)
    assert world.events[0][1] == "SelectingAll"
    assert world.names(REPLICA_SETS) == []


# StatefulSets.


def _stateful_world(**spec: Any) -> tuple[World, StatefulSetController]:
    world = World(STATEFUL_SETS, PODS, CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS)
    defaults = {"replicas": 3, "serviceName": "web", "revisionHistoryLimit": 10}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    world.add(STATEFUL_SETS, _owner(**{**defaults, "updateStrategy": strategy, **spec}))
    return world, StatefulSetController()


def test_pods_come_in_order_and_go_in_order() -> None:
    world, controller = _stateful_world()
    for ordinal in range(3):
        world.settle(controller, KEY)
        assert world.names(PODS) == [f"web-{each}" for each in range(ordinal + 1)]
        _ready(world, f"web-{ordinal}")
    world.settle(controller, KEY)
    status = world.get(STATEFUL_SETS, "web")["status"]
    assert status["currentRevision"] == status["updateRevision"]
    spec = world.get(STATEFUL_SETS, "web")["spec"]
    world.change(STATEFUL_SETS, "web", spec={**spec, "replicas": 1})
    done, _ = world.run(controller, KEY)
    assert [each.name for each in done if isinstance(each, Delete)] == ["web-2"]
    world.settle(controller, KEY)
    assert world.names(PODS) == ["web-0"]


def test_in_parallel_all_come_at_once() -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {}}]
    world, controller = _stateful_world(podManagementPolicy="Parallel", volumeClaimTemplates=claims)
    world.settle(controller, KEY)
    assert world.names(PODS) == ["web-0", "web-1", "web-2"]
    assert world.names(PERSISTENT_VOLUME_CLAIMS) == [f"data-web-{each}" for each in range(3)]
    texts = [message for _, _, message in world.events]
    assert "Create Claim data-web-0 Pod web-0 in StatefulSet web success" in texts
    assert "Create Pod web-0 in StatefulSet web successful" in texts


def test_a_new_template_replaces_the_highest_first() -> None:
    world, controller = _stateful_world()
    for ordinal in range(3):
        world.settle(controller, KEY)
        _ready(world, f"web-{ordinal}")
    world.settle(controller, KEY)
    spec = world.get(STATEFUL_SETS, "web")["spec"]
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    new = {**spec, "template": _template("img:2"), "updateStrategy": rolling}
    world.change(STATEFUL_SETS, "web", spec=new)
    gone = []
    for _ in range(4):
        done, _again = world.run(controller, KEY)
        gone += [each.name for each in done if isinstance(each, Delete)]
        world.settle(controller, KEY)
        for name in world.names(PODS):
            if world.get(PODS, name)["status"]["phase"] == "Pending":
                _ready(world, name)
    assert gone == ["web-2", "web-1"]
    images = {
        name: world.get(PODS, name)["spec"]["containers"][0]["image"] for name in world.names(PODS)
    }
    assert images == {"web-0": "img:1", "web-1": "img:2", "web-2": "img:2"}


def test_a_claim_that_is_refused_is_reported() -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {}}]
    world, controller = _stateful_world(volumeClaimTemplates=claims)

    def refuse(action: Action) -> ApiError | None:
        is_claim = isinstance(action, Create) and action.resource == PERSISTENT_VOLUME_CLAIMS
        return refusal(403, "no") if is_claim else None

    world.refuse = refuse
    with pytest.raises(Exception, match="failed to create PVC data-web-0: no"):
        world.run(controller, KEY)
    assert [message for _, _, message in world.events] == [
        "Create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: no",
        "Create Pod web-0 in StatefulSet web failed error: failed to create PVC data-web-0: no",
    ]


# DaemonSets.


def test_every_node_that_suits_has_a_pod() -> None:
    world = World(DAEMON_SETS, PODS, NODES, CONTROLLER_REVISIONS)
    controller = DaemonSetController()
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    world.add(DAEMON_SETS, _owner(updateStrategy=strategy, revisionHistoryLimit=10))
    for name in ("n1", "n2"):
        world.add(NODES, {"metadata": {"name": name}, "spec": {}})
    taint = {"key": "k", "effect": "NoSchedule"}
    world.add(NODES, {"metadata": {"name": "n3"}, "spec": {"taints": [taint]}})
    world.settle(controller, KEY)
    assert len(world.names(PODS)) == 2
    for name in world.names(PODS):
        _ready(world, name)
    world.settle(controller, KEY)
    status = world.get(DAEMON_SETS, "web")["status"]
    assert (status["desiredNumberScheduled"], status["numberAvailable"]) == (2, 2)
    failed = world.names(PODS)[0]
    world.change(PODS, failed, status={"phase": "Failed"})
    world.run(controller, KEY)
    assert failed not in world.names(PODS)
    assert any(reason == "FailedDaemonPod" for _, reason, _ in world.events)
    world.settle(controller, KEY)
    again = [name for name in world.names(PODS) if name != failed]
    for name in again:
        world.change(PODS, name, status={"phase": "Failed"})
    # Those of the same node wait longer each time.
    world.run(controller, KEY)
    [waiting] = set(again) & set(world.names(PODS))
    world.now_s += 2
    world.run(controller, KEY)
    assert waiting not in world.names(PODS)


# Jobs.


def _job(**spec: Any) -> Object:
    defaults = {"parallelism": 2, "completions": 2, "backoffLimit": 1}
    return _owner(**{**defaults, "template": _template(restartPolicy="Never"), **spec})


def _end(world: World, name: str, phase: str, code: int = 0) -> None:
    ended = {"exitCode": code, "finishedAt": format_time(world.now_s)}
    statuses = [{"name": "c", "state": {"terminated": ended}}]
    world.change(PODS, name, status={"phase": phase, "containerStatuses": statuses})


def test_a_job_counts_each_pod_once() -> None:
    world = World(JOBS, PODS)
    controller = JobController()
    world.add(JOBS, _job())
    world.settle(controller, KEY)
    first, second = world.names(PODS)
    _end(world, first, "Succeeded")
    world.settle(controller, KEY)
    assert world.get(JOBS, "web")["status"]["succeeded"] == 1
    _end(world, second, "Succeeded")
    world.settle(controller, KEY)
    status = world.get(JOBS, "web")["status"]
    assert status["succeeded"] == 2
    assert [each["type"] for each in status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
    assert world.get(PODS, first)["metadata"]["finalizers"] == []
    assert world.events[-1] == ("Normal", "Completed", "Job completed")


def test_a_job_waits_after_failures_and_gives_up() -> None:
    world = World(JOBS, PODS)
    controller = JobController()
    world.add(JOBS, _job(parallelism=1, completions=1))
    world.settle(controller, KEY)
    _end(world, world.names(PODS)[0], "Failed", 1)
    _, again = world.run(controller, KEY)
    assert again == Again(10.0)
    assert len(world.names(PODS)) == 1
    world.now_s += 10.1
    world.settle(controller, KEY)
    assert len(world.names(PODS)) == 2
    _end(world, world.names(PODS)[1], "Failed", 1)
    world.settle(controller, KEY)
    status = world.get(JOBS, "web")["status"]
    assert [each["type"] for each in status["conditions"]] == ["FailureTarget", "Failed"]
    assert status["conditions"][1]["reason"] == "BackoffLimitExceeded"
    assert status["failed"] == 2


def test_pods_of_a_job_that_is_gone_are_let_go() -> None:
    world = World(JOBS, PODS)
    controller = JobController()
    world.add(JOBS, _job(parallelism=1, completions=1))
    world.settle(controller, KEY)
    [name] = world.names(PODS)
    world.run(controller, f"pod:default/{name}")
    assert world.get(PODS, name)["metadata"]["finalizers"]
    world.remove(JOBS, "web")
    world.run(controller, f"pod:default/{name}")
    assert world.get(PODS, name)["metadata"]["finalizers"] == []


def test_a_suspended_job_has_no_pods() -> None:
    world = World(JOBS, PODS)
    controller = JobController()
    world.add(JOBS, _job())
    world.settle(controller, KEY)
    spec = world.get(JOBS, "web")["spec"]
    world.change(JOBS, "web", spec={**spec, "suspend": True})
    world.settle(controller, KEY)
    assert world.names(PODS) == []
    assert "startTime" not in world.get(JOBS, "web")["status"]
    world.change(JOBS, "web", spec=spec)
    world.settle(controller, KEY)
    assert len(world.names(PODS)) == 2
    reasons = [reason for _, reason, _ in world.events]
    assert [each for each in reasons if "uspended" in each or "esumed" in each] == [
        "Suspended",
        "Resumed",
    ]


def test_ended_jobs_go_when_their_time_is_up() -> None:
    world = World(JOBS)
    controller = TtlAfterFinishedController()
    done = {"type": "Complete", "status": "True", "lastTransitionTime": format_time(START_S)}
    world.add(JOBS, {**_job(ttlSecondsAfterFinished=30), "status": {"conditions": [done]}})
    assert world.run(controller, KEY) == ([], Again(30.0))
    world.now_s += 30
    [deletion], _ = world.run(controller, KEY)
    assert isinstance(deletion, Delete)
    assert (deletion.propagation, deletion.uid) == ("Foreground", "uid-00001")


# CronJobs.


def _cron_job(**spec: Any) -> Object:
    return {
        "metadata": {"name": "web", "creationTimestamp": format_time(START_S)},
        "spec": {
            "schedule": "*/10 * * * *",
            "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": _job()["spec"]},
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1,
            **spec,
        },
    }


def _finish(world: World, name: str) -> None:
    when = format_time(world.now_s)
    done = {"type": "Complete", "status": "True", "lastTransitionTime": when}
    status = {"conditions": [done], "completionTime": when, "startTime": when}
    world.change(JOBS, name, status=status)


def test_jobs_are_made_when_they_are_due() -> None:
    world = World(CRON_JOBS, JOBS)
    controller = CronJobController(ZoneInfo)
    world.add(CRON_JOBS, _cron_job(timeZone="Europe/Paris"))
    done, again = world.run(controller, KEY)
    assert not done
    assert isinstance(again, Again)
    assert again.after_s == pytest.approx(600.1)
    for number in range(3):
        world.now_s += 600
        world.settle(controller, KEY)
        name = f"web-{int(START_S) // 60 + 10 * (number + 1)}"
        job = world.get(JOBS, name)
        scheduled = job["metadata"]["annotations"][
            "batch.kubernetes.io/cronjob-scheduled-timestamp"
        ]
        assert scheduled.endswith("+01:00")
        assert [x["name"] for x in world.get(CRON_JOBS, "web")["status"]["active"]] == [name]
        _finish(world, name)
    world.settle(controller, KEY)
    assert len(world.names(JOBS)) == 1
    status = world.get(CRON_JOBS, "web")["status"]
    assert "active" not in status
    assert status["lastSuccessfulTime"] == status["lastScheduleTime"]


@pytest.mark.parametrize(
    ("policy", "jobs", "reason"),
    [("Allow", 2, ""), ("Forbid", 1, "JobAlreadyActive"), ("Replace", 1, "SuccessfulDelete")],
)
def test_what_happens_while_a_job_runs(policy: str, jobs: int, reason: str) -> None:
    world = World(CRON_JOBS, JOBS)
    controller = CronJobController(ZoneInfo)
    world.add(CRON_JOBS, _cron_job(concurrencyPolicy=policy))
    for _ in range(2):
        world.now_s += 600
        world.settle(controller, KEY)
    assert len(world.names(JOBS)) == jobs
    assert not reason or any(each[1] == reason for each in world.events)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"timeZone": "No/Where"}, "UnknownTimeZone"),
        ({"schedule": "* *"}, "UnparseableSchedule"),
        ({"schedule": "0 0 31 2 *"}, "InvalidSchedule"),
        ({"startingDeadlineSeconds": 5}, ""),  # what is later than that is not looked for
    ],
)
def test_what_keeps_a_job_from_being_made(spec: Object, reason: str) -> None:
    world = World(CRON_JOBS, JOBS)
    world.add(CRON_JOBS, _cron_job(**spec))
    world.now_s += 610
    world.run(CronJobController(ZoneInfo), KEY)
    assert world.names(JOBS) == []
    assert [each[1] for each in world.events] == ([reason] if reason else [])


# Disruption budgets.


def _budget_world(owner: str = "ReplicaSet", **spec: Any) -> tuple[World, DisruptionController]:
    world = World(
        POD_DISRUPTION_BUDGETS,
        PODS,
        REPLICATION_CONTROLLERS,
        REPLICA_SETS,
        STATEFUL_SETS,
        DEPLOYMENTS,
    )
    made = world.add(REPLICA_SETS, {"metadata": {"name": "rs"}, "spec": {"replicas": 4}})
    selector = {"matchLabels": {"app": "web"}}
    budget = {"metadata": {"name": "web"}, "spec": {"selector": selector, **spec}}
    world.add(POD_DISRUPTION_BUDGETS, budget)
    for number in range(3):
        meta: Object = {"name": f"p{number}", "labels": {"app": "web"}}
        if owner:
            reference = {
                "apiVersion": "apps/v1",
                "kind": owner,
                "name": "rs",
                "uid": made["metadata"]["uid"],
                "controller": True,
            }
            meta["ownerReferences"] = [reference]
        world.add(PODS, {"metadata": meta, "spec": {}})
        _ready(world, f"p{number}")
    return world, DisruptionController()


@pytest.mark.parametrize(
    ("spec", "expected", "desired", "allowed"),
    [
        ({"minAvailable": 2}, 3, 2, 1),
        ({"minAvailable": 5}, 3, 5, 0),
        ({"minAvailable": "50%"}, 4, 2, 1),
        ({"minAvailable": "51%"}, 4, 3, 0),
        ({"maxUnavailable": 1}, 4, 3, 0),
        ({"maxUnavailable": "50%"}, 4, 2, 1),
        ({"maxUnavailable": 9}, 4, 0, 3),
    ],
)
def test_what_a_budget_allows(spec: Object, expected: int, desired: int, allowed: int) -> None:
    world, controller = _budget_world(**spec)
    world.settle(controller, KEY)
    status = world.get(POD_DISRUPTION_BUDGETS, "web")["status"]
    assert status["expectedPods"] == expected
    assert status["desiredHealthy"] == desired
    assert status["currentHealthy"] == 3
    assert status["disruptionsAllowed"] == allowed
    condition = find(status["conditions"], "DisruptionAllowed")
    assert condition is not None
    assert condition["reason"] == ("SufficientPods" if allowed else "InsufficientPods")


def test_a_granted_eviction_counts_until_its_time_is_up() -> None:
    world, controller = _budget_world(minAvailable=1)
    disrupted = {"p0": format_time(START_S), "gone": format_time(START_S)}
    world.change(POD_DISRUPTION_BUDGETS, "web", status={"disruptedPods": disrupted})
    done, again = world.run(controller, KEY)
    assert len(done) == 1
    assert again == Again(120.0)
    status = world.get(POD_DISRUPTION_BUDGETS, "web")["status"]
    assert status["disruptedPods"] == {"p0": format_time(START_S)}
    assert status["disruptionsAllowed"] == 1
    world.now_s += again.after_s  # not a moment later: an answer of no time would be asked for ever
    world.settle(controller, KEY)
    status = world.get(POD_DISRUPTION_BUDGETS, "web")["status"]
    assert "disruptedPods" not in status
    assert status["disruptionsAllowed"] == 2
    assert world.events[0][2] == (
        "Pod was expected by PDB default/default to be deleted but it wasn't"
    )


def test_pods_without_owner_are_reported() -> None:
    world, controller = _budget_world("", maxUnavailable=1)
    world.settle(controller, KEY)
    assert world.events[0][1] == "UnmanagedPods"
    assert world.get(POD_DISRUPTION_BUDGETS, "web")["status"]["expectedPods"] == 0


def test_a_conflict_is_tried_again() -> None:
    world, controller = _budget_world(minAvailable=1)
    world.refuse = lambda action: refusal(409) if isinstance(action, Update) else None
    with pytest.raises(ApiError):
        world.run(controller, KEY)


def test_a_disruption_that_did_not_come_is_taken_back() -> None:
    world, controller = _budget_world(minAvailable=1)
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastTransitionTime": format_time(START_S),
    }
    world.change(PODS, "p0", status={"phase": "Running", "conditions": [target]})
    assert world.run(controller, "pod:default/p0") == ([], Again(120.0))
    world.now_s += 121
    world.run(controller, "pod:default/p0")
    [condition] = world.get(PODS, "p0")["status"]["conditions"]
    assert condition["status"] == "False"


def _pod_of(labels: Object, **status: Any) -> Object:
    return {"metadata": {"name": "p", "namespace": "default", "labels": labels}, "status": status}


MINE = {"app": "web"}
STALE = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": format_time(START_S)}


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        (None, _pod_of(MINE), [KEY]),
        (_pod_of(MINE), None, [KEY]),
        (None, _pod_of({}), []),
        # Pods that leave are one less for those they leave.
        (_pod_of(MINE), _pod_of({"app": "other"}), [KEY]),
        (_pod_of({"app": "other"}), _pod_of(MINE), [KEY]),
        (None, _pod_of({}, conditions=[STALE]), [Later("pod:default/p", 120.0)]),
    ],
)
def test_which_changes_of_pods_wake_a_budget(
    old: Object | None, new: Object | None, keys: list[Any]
) -> None:
    world, controller = _budget_world(minAvailable=1)
    world.run(controller, KEY)
    assert list(controller.watches[1].keys(old, new, world.view)) == keys


def test_a_budget_that_cannot_be_counted_allows_nothing() -> None:
    world, controller = _budget_world(maxUnavailable=1)
    world.settle(controller, KEY)
    world.remove(REPLICA_SETS, "rs")
    world.refuse = lambda action: refusal(404, "gone") if isinstance(action, Get) else None
    controller._kinds = _Kinds()  # type: ignore[assignment]
    world.run(controller, KEY)
    status = world.get(POD_DISRUPTION_BUDGETS, "web")["status"]
    assert status["disruptionsAllowed"] == 0
    condition = find(status["conditions"], "DisruptionAllowed")
    assert condition is not None
    text = 'found no controllers for pod "p0"'
    assert (condition["status"], condition["reason"]) == ("False", "SyncFailed")
    assert condition["message"] == text
    assert world.events[-1] == (
        "Warning",
        "CalculateExpectedPodCountFailed",
        f"Failed to calculate the number of expected pods: {text}",
    )


class _Kinds:
    """Knows ReplicaSets."""

    def resource_of(self, version: str, kind: str, now_s: float) -> Any:
        return REPLICA_SETS
        yield []


def test_a_pod_under_several_budgets_is_reported() -> None:
    world, controller = _budget_world(minAvailable=1)
    second = {**world.get(POD_DISRUPTION_BUDGETS, "web"), "metadata": {"name": "also"}}
    world.add(POD_DISRUPTION_BUDGETS, second)
    world.run(controller, "pod:default/p0")
    assert world.events == [
        (
            "Warning",
            "MultiplePodDisruptionBudgets",
            'Pod "default"/"p0" matches multiple PodDisruptionBudgets.  Chose "also" arbitrarily.',
        )
    ]
