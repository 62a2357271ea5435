"""Jobs and CronJobs, sync after sync: when they end, and with what reason; what is told."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kvstack.agents.client.built_in import CRON_JOBS, JOBS, PODS
from kvstack.agents.controllers.workloads.jobs.controller import JobController
from kvstack.agents.controllers.workloads.jobs.cron_jobs import CronJobController
from kvstack.agents.process.local_zone import local_zone
from kvstack.agents.reconcile.plan import Again, Create, Delete, Later
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from tests.agents.support.worlds import START_S, World, refusal

KEY = "default/sum"
LABELS = {"batch.kubernetes.io/controller-uid": "u"}
INDEX = "batch.kubernetes.io/job-completion-index"


class Running:
    """A Job with its controller."""

    def __init__(self, *, restart: str = "Never", **spec: Any) -> None:
        self.world = World(JOBS, PODS)
        self.controller = JobController()
        template = {
            "metadata": {"labels": LABELS},
            "spec": {"restartPolicy": restart, "containers": [{"name": "c"}]},
        }
        defaults = {"parallelism": 1, "completions": 1, "backoffLimit": 6}
        selector = {"selector": {"matchLabels": LABELS}, "template": template}
        job = {"metadata": {"name": "sum"}, "spec": {**selector, **defaults, **spec}}
        self.world.add(JOBS, job)

    def settle(self) -> None:
        self.world.settle(self.controller, KEY)

    def pods(self, phase: str = "Pending") -> list[str]:
        """Return the pods of a phase that do not go, by index or name."""

        def order(name: str) -> tuple[int, str]:
            annotations = self.world.get(PODS, name)["metadata"].get("annotations") or {}
            return int(annotations.get(INDEX, 0)), name

        found = [
            name
            for name in self.world.names(PODS)
            if self.world.get(PODS, name)["status"]["phase"] == phase
            and "deletionTimestamp" not in self.world.get(PODS, name)["metadata"]
        ]
        return sorted(found, key=order)

    def end(self, name: str, code: int = 0) -> None:
        ended = {"exitCode": code, "finishedAt": format_time(self.world.now_s)}
        statuses = [{"name": "c", "state": {"terminated": ended}}]
        phase = "Failed" if code else "Succeeded"
        self.world.change(PODS, name, status={"phase": phase, "containerStatuses": statuses})

    @property
    def status(self) -> Object:
        found: Object = self.world.get(JOBS, "sum")["status"]
        return found

    def conditions(self) -> list[tuple[str, str, str]]:
        return [
            (each["type"], each["reason"], each["message"])
            for each in self.status.get("conditions") or ()
        ]


def has_failed(running: Running, reason: str, message: str) -> None:
    """Check that a Job ended so: first its target, then, without pods, its end."""
    expected = [("FailureTarget", reason, message), ("Failed", reason, message)]
    assert running.conditions() == expected
    assert running.world.events[-1] == ("Warning", reason, message)
    assert running.pods() == []


def test_a_job_past_its_deadline_fails() -> None:
    running = Running(activeDeadlineSeconds=60)
    _, again = running.world.run(running.controller, KEY)
    assert again == Again(60.0)
    running.world.now_s += 60
    running.settle()
    has_failed(running, "DeadlineExceeded", "Job was active longer than specified deadline")


@pytest.mark.parametrize(
    ("limit", "restarts", "fails"), [(3, 2, False), (3, 3, True), (0, 0, False), (0, 1, True)]
)
def test_restarts_of_containers_count_as_failures(limit: int, restarts: int, fails: bool) -> None:  # noqa: FBT001
    running = Running(restart="OnFailure", backoffLimit=limit)
    running.settle()
    [name] = running.pods()
    statuses = [{"name": "c", "restartCount": restarts}]
    running.world.change(PODS, name, status={"phase": "Running", "containerStatuses": statuses})
    running.settle()
    if fails:
        text = "Job has reached the specified backoff limit"
        has_failed(running, "BackoffLimitExceeded", text)
    else:
        assert running.conditions() == []


RULES = [
    {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
]


def test_a_rule_of_the_failure_policy_fails_the_job() -> None:
    running = Running(podFailurePolicy={"rules": RULES})
    running.settle()
    [name] = running.pods()
    running.end(name, 42)
    running.settle()
    message = (
        f"Container c for pod default/{name} failed with exit code 42 matching FailJob rule at"
        " index 1"
    )
    has_failed(running, "PodFailurePolicy", message)


def test_failures_that_are_ignored_do_not_count() -> None:
    running = Running(podFailurePolicy={"rules": RULES}, backoffLimit=0)
    for _ in range(3):
        running.settle()
        [name] = running.pods()
        running.end(name, 7)
        running.settle()
        running.world.now_s += 1000
    assert "failed" not in running.status
    assert running.conditions() == []


def indexed(**spec: Any) -> Running:
    running = Running(completionMode="Indexed", parallelism=3, completions=3, **spec)
    running.settle()
    return running


def test_pods_of_an_indexed_job() -> None:
    running = indexed()
    for number, name in enumerate(running.pods()):
        pod = running.world.get(PODS, name)
        meta, spec = pod["metadata"], pod["spec"]
        assert meta["generateName"] == f"sum-{number}-"
        assert (meta["annotations"][INDEX], meta["labels"][INDEX]) == (str(number), str(number))
        assert spec["hostname"] == f"sum-{number}"
        [variable] = spec["containers"][0]["env"]
        assert variable["name"] == "JOB_COMPLETION_INDEX"
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        assert path == f"metadata.labels['{INDEX}']"


def test_a_second_pod_of_an_index_goes() -> None:
    running = indexed()
    first = running.world.get(PODS, running.pods()[0])
    second = {**first, "metadata": {**first["metadata"], "name": "again", "uid": "again"}}
    running.world.add(PODS, second)
    done, _ = running.world.run(running.controller, KEY)
    assert len([each for each in done if isinstance(each, Delete)]) == 1
    assert len(running.pods()) == 3


def test_the_lowest_indexes_come_first() -> None:
    running = Running(completionMode="Indexed", parallelism=2, completions=5)
    running.settle()
    first, second = running.pods()
    running.end(second)
    running.settle()
    annotations = [running.world.get(PODS, x)["metadata"]["annotations"] for x in running.pods()]
    assert [each[INDEX] for each in annotations] == ["0", "2"]
    assert running.status["completedIndexes"] == "1"
    running.end(first)
    running.settle()
    assert running.status["completedIndexes"] == "0,1"


PER_INDEX = {"backoffLimitPerIndex": 0, "backoffLimit": 2**31 - 1}


@pytest.mark.parametrize(
    ("spec", "codes", "reason", "message"),
    [
        (
            {**PER_INDEX, "maxFailedIndexes": 1},
            [1, 1, None],
            "MaxFailedIndexesExceeded",
            "Job has exceeded the specified maximal number of failed indexes",
        ),
        ({**PER_INDEX}, [1, 0, 0], "FailedIndexes", "Job has failed indexes"),
        ({**PER_INDEX}, [1, 1, 1], "FailedIndexes", "Job has failed indexes"),
        (
            {
                **PER_INDEX,
                "backoffLimitPerIndex": 5,
                "maxFailedIndexes": 0,
                "podFailurePolicy": {
                    "rules": [
                        {
                            "action": "FailIndex",
                            "onExitCodes": {"operator": "In", "values": [9]},
                        }
                    ]
                },
            },
            [9, None, None],
            "MaxFailedIndexesExceeded",
            "Job has exceeded the specified maximal number of failed indexes",
        ),
    ],
)
def test_a_job_whose_indexes_fail(
    spec: Object, codes: list[int | None], reason: str, message: str
) -> None:
    running = indexed(**spec)
    for name, code in zip(running.pods(), codes, strict=True):
        if code is not None:
            running.end(name, code)
    running.settle()
    has_failed(running, reason, message)


def test_an_index_that_failed_waits_longer_each_time_and_counts() -> None:
    running = indexed(backoffLimitPerIndex=2, backoffLimit=2**31 - 1)
    for failures in range(2):
        running.end(running.pods()[0], 1)
        _, again = running.world.run(running.controller, KEY)
        running.settle()
        assert len(running.pods()) == 2
        assert again == Again(10.0 * 2**failures)
        running.world.now_s += 10.0 * 2**failures
        running.settle()
        meta = running.world.get(PODS, running.pods()[0])["metadata"]
        assert meta["annotations"]["batch.kubernetes.io/job-index-failure-count"] == str(
            failures + 1
        )
    running.end(running.pods()[0], 1)
    running.settle()
    assert running.status["failedIndexes"] == "0"
    assert len(running.pods()) == 2


@pytest.mark.parametrize(
    ("rules", "ended", "matched"),
    [
        ([{"succeededIndexes": "0"}], [0], 0),
        ([{"succeededIndexes": "1-2", "succeededCount": 1}], [2], 0),
        ([{"succeededIndexes": "1-2"}, {"succeededCount": 1}], [2], 1),
        ([{"succeededIndexes": "1-2"}], [2], None),
        ([{"succeededCount": 2}], [2], None),
    ],
)
def test_a_success_policy_ends_a_job_early(
    rules: list[Object], ended: list[int], matched: int | None
) -> None:
    running = indexed(successPolicy={"rules": rules})
    pods = running.pods()
    for index in ended:
        running.end(pods[index])
    running.settle()
    if matched is None:
        assert running.conditions() == []
        return
    text = f"Matched rules at index {matched}"
    assert running.conditions() == [
        ("SuccessCriteriaMet", "SuccessPolicy", text),
        ("Complete", "SuccessPolicy", text),
    ]
    assert running.status["completionTime"]
    assert running.pods() == []


@pytest.mark.parametrize(("policy", "made"), [("Failed", 0), ("TerminatingOrFailed", 1)])
def test_whether_a_pod_that_goes_is_replaced_at_once(policy: str, made: int) -> None:
    running = Running(podReplacementPolicy=policy)
    running.settle()
    [name] = running.pods()
    meta = {**running.world.get(PODS, name)["metadata"], "finalizers": ["other/hold"]}
    tracking = "batch.kubernetes.io/job-tracking"
    meta |= {"finalizers": [tracking, "other/hold"], "deletionTimestamp": format_time(START_S)}
    running.world.change(PODS, name, metadata=meta, status={"phase": "Running"})
    running.world.now_s += 1000
    running.settle()
    assert len(running.pods()) == made
    assert running.status["terminating"] == 1


def test_without_completions_one_success_is_enough() -> None:
    running = Running(parallelism=3, completions=None)
    running.settle()
    first, second, third = running.pods()
    running.end(first)
    running.settle()
    assert len(running.pods()) == 2  # no more are made, and these may end
    running.end(second)
    running.end(third)
    running.settle()
    assert [each[0] for each in running.conditions()] == ["SuccessCriteriaMet", "Complete"]


def test_less_parallelism_deletes_and_does_not_count() -> None:
    running = Running(parallelism=4, completions=9)
    running.settle()
    spec = running.world.get(JOBS, "sum")["spec"]
    running.world.change(JOBS, "sum", spec={**spec, "parallelism": 1})
    running.settle()
    assert len(running.world.names(PODS)) == 1
    assert "failed" not in running.status
    assert running.status["active"] == 1


@pytest.mark.parametrize(
    ("spec", "events"),
    [
        ({"managedBy": "example.com/other"}, []),
        ({"managedBy": "kubernetes.io/job-controller"}, ["SuccessfulCreate"]),
        ({"completionMode": "Odd"}, ["UnknownCompletionMode"]),
        ({"suspend": True}, ["Suspended"]),
    ],
)
def test_which_jobs_are_worked_on(spec: Object, events: list[str]) -> None:
    running = Running(**spec)
    running.world.run(running.controller, KEY)
    assert [reason for _, reason, _ in running.world.events] == events


def test_a_job_that_goes_makes_no_pods() -> None:
    running = Running()
    meta = running.world.get(JOBS, "sum")["metadata"]
    running.world.change(JOBS, "sum", metadata={**meta, "deletionTimestamp": format_time(START_S)})
    running.settle()
    assert running.world.names(PODS) == []


@pytest.mark.parametrize(
    ("action", "reason", "text"),
    [
        (Create, "FailedCreate", "Error creating: no"),
        (Delete, "FailedDelete", "Error deleting: no"),
    ],
)
def test_what_is_refused_is_reported_and_tried_again(action: type, reason: str, text: str) -> None:
    running = Running(activeDeadlineSeconds=60)
    if action is Delete:
        running.settle()
        running.world.now_s += 60
    running.world.refuse = lambda asked: refusal(403, "no") if isinstance(asked, action) else None
    with pytest.raises(ApiError):
        running.world.run(running.controller, KEY)
    assert running.world.events[-1] == ("Warning", reason, text)
    # It has not ended before its pods have.
    assert not running.conditions()


# CronJobs.


def cron(**spec: Any) -> tuple[World, CronJobController]:
    world = World(CRON_JOBS, JOBS)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {}}}
    whole = {"schedule": "*/10 * * * *", "jobTemplate": template, **spec}
    meta = {"name": "sum", "creationTimestamp": format_time(START_S)}
    world.add(CRON_JOBS, {"metadata": meta, "spec": whole})
    return world, CronJobController(ZoneInfo)


def active(world: World) -> list[str]:
    status = world.get(CRON_JOBS, "sum").get("status") or {}
    return [each["name"] for each in status.get("active") or ()]


def test_a_job_that_is_gone_leaves_the_list() -> None:
    world, controller = cron()
    world.now_s += 600
    world.settle(controller, KEY)
    [name] = world.names(JOBS)
    world.remove(JOBS, name)
    world.settle(controller, KEY)
    assert active(world) == []
    assert world.events[-1] == ("Normal", "MissingJob", f"Active job went missing: {name}")


def test_a_job_that_was_made_before_is_taken() -> None:
    world, controller = cron()
    world.now_s += 600
    world.run(controller, KEY)
    # The status was not written, and the view does not show the Job yet.
    [name] = world.names(JOBS)
    world.change(CRON_JOBS, "sum", status={})
    job = world.get(JOBS, name)
    hidden = {**job, "metadata": {**job["metadata"], "ownerReferences": []}}
    world._stores[JOBS].set(hidden)

    def refuse(action: Any) -> ApiError | None:
        if isinstance(action, Create):
            world._stores[JOBS].set(job)
        return None

    world.refuse = refuse
    world.run(controller, KEY)
    assert active(world) == [name]
    assert len([each for each in world.events if each[1] == "SuccessfulCreate"]) == 1


def test_a_job_of_that_name_that_is_anothers_is_left_alone() -> None:
    world, controller = cron()
    world.add(JOBS, {"metadata": {"name": f"sum-{int(START_S) // 60 + 10}"}, "spec": {}})
    world.now_s += 600
    done, again = world.run(controller, KEY)
    assert active(world) == []
    assert again is None
    assert [type(each) for each in done] == [Create]


def test_many_missed_times_are_reported_and_the_last_is_made() -> None:
    world, controller = cron(schedule="* * * * *")
    world.now_s += 60 * 150 + 5
    world.settle(controller, KEY)
    assert world.names(JOBS) == [f"sum-{int(START_S) // 60 + 150}"]
    assert world.events[0] == (
        "Warning",
        "TooManyMissedTimes",
        "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock"
        " skew",
    )


def test_what_is_refused_is_reported() -> None:
    world, controller = cron()
    world.now_s += 600
    world.refuse = lambda action: refusal(403, "no") if isinstance(action, Create) else None
    with pytest.raises(ApiError):
        world.run(controller, KEY)
    assert world.events == [("Warning", "FailedCreate", "Error creating job: no")]


def test_a_suspended_cron_job_still_cleans_up() -> None:
    world, controller = cron(failedJobsHistoryLimit=0)
    world.now_s += 600
    world.settle(controller, KEY)
    [name] = world.names(JOBS)
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": format_time(world.now_s)}
    world.change(JOBS, name, status={"conditions": [failed]})
    spec = world.get(CRON_JOBS, "sum")["spec"]
    world.change(CRON_JOBS, "sum", spec={**spec, "suspend": True})
    world.now_s += 600
    world.settle(controller, KEY)
    assert world.names(JOBS) == []
    assert active(world) == []


def test_a_new_schedule_counts_from_its_next_time_on() -> None:
    world, controller = cron()
    world.now_s += 5
    world.run(controller, KEY)
    old = world.get(CRON_JOBS, "sum")
    new = {**old, "spec": {**old["spec"], "schedule": "30 * * * *"}}
    [key] = controller.watches[0].keys(old, new, world.view)
    assert isinstance(key, Later)
    assert key.after_s == pytest.approx(1800.1 - 5)
    assert list(controller.watches[0].keys(old, old, world.view)) == [KEY]


@pytest.mark.parametrize(
    ("spec", "zone", "due_s"),
    [
        # The sixth hour after START_S, 08:00 UTC, there.
        ({"schedule": "0 14 * * *"}, UTC, 6 * 3600),
        ({"schedule": "0 14 * * *"}, timezone(timedelta(hours=2)), 4 * 3600),
        ({"schedule": "0 14 * * *", "timeZone": "Etc/GMT-3"}, timezone(timedelta(hours=2)), 10800),
        ({"schedule": "TZ=UTC 0 14 * * *"}, timezone(timedelta(hours=2)), 6 * 3600),
    ],
)
def test_a_schedule_without_zone_is_in_that_of_the_process(
    spec: Object, zone: tzinfo, due_s: float
) -> None:
    world, _ = cron(**spec)
    assert datetime.fromtimestamp(START_S, UTC).hour == 8
    _, again = world.run(CronJobController(ZoneInfo, zone), KEY)
    assert isinstance(again, Again)
    assert again.after_s == pytest.approx(due_s + 0.1)


def _paris(directory: Path) -> Path:
    from importlib.resources import files

    found = directory / "localtime"
    found.write_bytes(files("tzdata").joinpath("zoneinfo/Europe/Paris").read_bytes())
    return found


@pytest.mark.parametrize(
    ("environment", "hours"),
    [
        ({}, 1),
        ({"TZ": ""}, 0),
        ({"TZ": "UTC"}, 0),
        ({"TZ": "Asia/Tokyo"}, 9),
        ({"TZ": ":Asia/Tokyo"}, 9),
        ({"TZ": "No/Where"}, 0),
        ({"TZ": "../x"}, 0),
        ({"TZ": "/no/file"}, 0),
        ({"TZ": "{file}"}, 1),
    ],
)
def test_the_zone_of_a_process(environment: dict[str, str], hours: int, tmp_path: Path) -> None:
    file = _paris(tmp_path)
    given = {name: text.replace("{file}", str(file)) for name, text in environment.items()}
    winter = datetime(2027, 1, 15, tzinfo=local_zone(given, file))
    assert winter.utcoffset() == timedelta(hours=hours)


def test_without_a_file_of_the_zone_it_is_utc(tmp_path: Path) -> None:
    assert local_zone({}, tmp_path / "none") is UTC
    (tmp_path / "text").write_text("no zone")
    assert local_zone({}, tmp_path / "text") is UTC
