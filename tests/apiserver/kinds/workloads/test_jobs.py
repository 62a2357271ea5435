"""Jobs and CronJobs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.workloads.jobs.cron_jobs import CRON_JOBS
from kvstack.apiserver.kinds.workloads.jobs.indexes import IndexesError, count, overlap
from kvstack.apiserver.kinds.workloads.jobs.strategy import JOBS
from tests.apiserver.kinds.hooks import (
    NOW,
    change_refusals,
    patched,
    prepared_object,
    refusals,
    warnings_of,
    warnings_of_change,
)
from tests.apiserver.kinds.workloads.examples import JOB, job

LATER = "2026-01-02T04:00:00Z"


def prepared(spec: Object | None = None, status: Object | None = None) -> Object:
    """Return a Job as it is stored."""
    found = prepared_object(JOBS, job(spec))
    if status is not None:
        found["status"] = status
    return found


def test_new_jobs() -> None:
    """Selector and labels are made of UID and name."""
    found = prepared()
    spec = found["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 6)
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    assert spec["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": "u",
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": "u",
        "job-name": "j",
    }
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"
    assert refusals(JOBS, JOB) == []


def test_other_defaults_of_jobs() -> None:
    spec = prepared({"parallelism": 3, "backoffLimitPerIndex": 1, "podFailurePolicy": {}})["spec"]
    assert "completions" not in spec
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (2147483647, "Failed")
    pattern = {"action": "Ignore", "onPodConditions": [{"type": "A"}]}
    (rule,) = prepared({"podFailurePolicy": {"rules": [pattern]}})["spec"]["podFailurePolicy"][
        "rules"
    ]
    assert rule["onPodConditions"] == [{"type": "A", "status": "True"}]


def test_labels_of_the_template_are_the_jobs_too() -> None:
    """With those that are made, if the Job has none of its own."""
    found = prepared_object(JOBS, job({"template": {"metadata": {"labels": {"a": "b"}}}}))
    assert found["metadata"]["labels"] == found["spec"]["template"]["metadata"]["labels"]
    assert found["metadata"]["labels"]["job-name"] == "j"
    own = prepared_object(
        JOBS, job({"template": {"metadata": {"labels": {"a": "b"}}}}, {"labels": {"c": "d"}})
    )
    assert own["metadata"]["labels"] == {"c": "d"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"template": {"metadata": {"labels": {"job-name": "x"}}}},
            [
                "template.metadata.labels[job-name]: Invalid value:"
                ' {"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j",'
                '"controller-uid":"u","job-name":"x"}: must be \'j\''
            ],
        ),
        (
            {"manualSelector": True},
            [
                "selector: Required value",
                "template.metadata.labels: Invalid value: null:"
                " `selector` does not match template `labels`",
            ],
        ),
        (
            {"template": {"spec": {"restartPolicy": "Always"}}},
            ['template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'],
        ),
        (
            {
                "template": {"spec": {"restartPolicy": "OnFailure"}},
                "podFailurePolicy": {"rules": []},
            },
            [
                'template.spec.restartPolicy: Invalid value: "OnFailure":'
                ' only "Never" is supported when podFailurePolicy is specified'
            ],
        ),
        (
            {"completionMode": "Indexed", "completions": None, "parallelism": 100_001},
            [
                "completions: Required value: when completion mode is Indexed",
                "parallelism: Invalid value: 100001: must be less than or equal to 100000 when"
                " completion mode is Indexed",
            ],
        ),
        (
            {
                "completionMode": "Indexed",
                "completions": 3,
                "backoffLimitPerIndex": 1,
                "maxFailedIndexes": 4,
            },
            ["maxFailedIndexes: Invalid value: 4: must be less than or equal to completions"],
        ),
        (
            {
                "completionMode": "Indexed",
                "completions": 100_001,
                "parallelism": 10_001,
                "backoffLimitPerIndex": 1,
            },
            [
                "maxFailedIndexes: Required value: must be specified when completions is above"
                " 100000",
                "parallelism: Invalid value: 10001: must be less than or equal to 10000 when"
                " completions are above 100000 and used with backoff limit per index",
            ],
        ),
        (
            {"backoffLimitPerIndex": 1},
            ["backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
        ),
        (
            {"completionMode": "x"},
            ['completionMode: Unsupported value: "x": supported values: "NonIndexed", "Indexed"'],
        ),
        (
            {"podFailurePolicy": {"rules": []}, "podReplacementPolicy": "TerminatingOrFailed"},
            [
                'podReplacementPolicy: Unsupported value: "TerminatingOrFailed":'
                ' supported values: "Failed"'
            ],
        ),
        (
            {
                "completionMode": "Indexed",
                "completions": 100_002,
                "backoffLimitPerIndex": 1,
                "maxFailedIndexes": 100_001,
            },
            [
                f"maxFailedIndexes: Invalid value: 100001: must be less than or equal to {limit}"
                for limit in (
                    "100000",
                    "10000 when completions are above 100000 and used with backoff limit per index",
                )
            ],
        ),
        (
            {"template": {"spec": {"restartPolicy": "Sometimes"}}},
            [
                'template.spec.restartPolicy: Unsupported value: "Sometimes":'
                f" supported values: {values}"
                for values in ('"Always", "OnFailure", "Never"', '"OnFailure", "Never"')
            ],
        ),
        (
            {"managedBy": f"a.b/{'c' * 60}"},
            ["managedBy: Too long: may not be more than 63 bytes"],
        ),
    ],
)
def test_jobs(spec: Object, expected: list[str]) -> None:
    errors = refusals(JOBS, job(spec))
    assert [each.removeprefix("spec.") for each in errors] == expected


CODES = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2]}}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (CODES, []),
        (
            patched(CODES, {"onExitCodes": {"values": [2, 0, 2], "containerName": "x"}}),
            [
                '.onExitCodes.containerName: Invalid value: "x": must be one of the container or'
                " initContainer names in the pod template",
                ".onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
                ".onExitCodes.values[2]: Duplicate value: 2",
                ".onExitCodes.values: Invalid value: [2,0,2]: must be ordered",
            ],
        ),
        (
            {"action": "x", "onExitCodes": {"operator": "", "values": []}},
            [
                '.action: Unsupported value: "x": supported values:'
                ' "Count", "FailIndex", "FailJob", "Ignore"',
                '.onExitCodes.operator: Required value: valid values: ["In" "NotIn"]',
                ".onExitCodes.values: Invalid value: []: at least one value is required",
            ],
        ),
        (
            {"action": "FailIndex", "onPodConditions": [{"type": "A", "status": "x"}]},
            [
                '.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
                '.onPodConditions[0].status: Unsupported value: "x":'
                ' supported values: "False", "True", "Unknown"',
            ],
        ),
        (
            {"action": "Count"},
            [": Invalid value: specifying one of OnExitCodes and OnPodConditions is required"],
        ),
        (
            {**CODES, "onPodConditions": [{"type": "A"}]},
            [": Invalid value: specifying both OnExitCodes and OnPodConditions is not supported"],
        ),
        (
            {"action": "Count", "onExitCodes": {"operator": "In", "values": list(range(1, 257))}},
            [".onExitCodes.values: Too many: 256: must have at most 255 items"],
        ),
    ],
)
def test_failure_policies(rule: Object, expected: list[str]) -> None:
    errors = refusals(JOBS, job({"podFailurePolicy": {"rules": [rule]}}))
    path = "spec.podFailurePolicy.rules[0]"
    assert [each.removeprefix(path) for each in errors] == expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([{"succeededIndexes": "0-2", "succeededCount": 2}], []),
        (
            [],
            [
                ": Required value: at least one rules must be specified when the successPolicy is"
                " specified"
            ],
        ),
        (
            [{}],
            [
                "[0]: Required value:"
                " at least one of succeededCount or succeededIndexes must be specified"
            ],
        ),
        (
            [{"succeededIndexes": "0-9", "succeededCount": 6}],
            [
                '[0].succeededIndexes: Invalid value: "0-9": error parsing succeededIndexes:'
                ' too large index: "9"',
                "[0].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number"
                " of specified completions)",
                "[0].succeededCount: Invalid value: 6: must be less than or equal to 0 (the number"
                " of indexes in the specified succeededIndexes field)",
            ],
        ),
        (
            [{"succeededIndexes": "0" * 2**17, "succeededCount": 1}],
            ["[0].succeededIndexes: Too long: may not be more than 65536 bytes"],
        ),
        ([{"succeededCount": 1}] * 21, [": Too many: 21: must have at most 20 items"]),
    ],
)
def test_success_policies(rules: list[Object], expected: list[str]) -> None:
    spec = {"completionMode": "Indexed", "completions": 5, "successPolicy": {"rules": rules}}
    errors = refusals(JOBS, job(spec))
    assert [each.removeprefix("spec.successPolicy.rules") for each in errors] == expected


def test_success_policies_without_completions() -> None:
    """Nothing can be said of their numbers; a real server drops the connection."""
    spec = {
        "completionMode": "Indexed",
        "parallelism": 2,
        "successPolicy": {"rules": [{"succeededCount": 5}]},
    }
    assert refusals(JOBS, job(spec)) == [
        "spec.completions: Required value: when completion mode is Indexed"
    ]


def test_hostnames_of_indexes() -> None:
    """The one with the highest index must be a label of DNS."""
    spec = {"completionMode": "Indexed", "completions": 1000}
    name = "j" * 60
    assert refusals(JOBS, job(spec, {"name": name})) == [
        f'metadata.name: Invalid value: "{name}":'
        f" will not able to create pod with invalid DNS label: {name}-999"
    ]
    assert refusals(JOBS, job({**spec, "completions": 11}, {"name": name})) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"parallelism": 3}, []),
        ({}, {"completions": 3}, ["completions: Invalid value: 3: field is immutable"]),
        (
            {"completionMode": "Indexed", "completions": 2, "parallelism": 2},
            {"completions": 3},
            ["completions: Invalid value: 3: can only be modified in tandem with spec.parallelism"],
        ),
        (
            {"completionMode": "Indexed", "completions": 2, "parallelism": 2},
            {"completions": 3, "parallelism": 3},
            [],
        ),
        ({}, {"managedBy": "a.b/c"}, ['managedBy: Invalid value: "a.b/c": field is immutable']),
        (
            {"completions": 2},
            {"completionMode": "Indexed"},
            ['completionMode: Invalid value: "Indexed": field is immutable'],
        ),
        (
            {},
            {"podFailurePolicy": {"rules": []}, "podReplacementPolicy": "Failed"},
            ['podFailurePolicy: Invalid value: {"Rules":[]}: field is immutable'],
        ),
    ],
)
def test_changes(old: Object, new: Object, expected: list[str]) -> None:
    before = prepared(old)
    errors = change_refusals(JOBS, patched(before, {"spec": new}), before)
    assert [each.removeprefix("spec.") for each in errors] == expected


NODE: dict[str, Any] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
OTHER: dict[str, Any] = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}


@pytest.mark.parametrize(
    ("template", "is_allowed"),
    [
        ({"metadata": {"labels": {"a": "b"}}}, True),
        ({"metadata": {"annotations": {"a": "b"}}}, True),
        ({"spec": {"nodeSelector": {"a": "b"}}}, True),
        ({"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}, True),
        ({"spec": {"schedulingGates": [{"name": "g"}]}}, True),
        ({"spec": {"affinity": NODE}}, True),
        ({"spec": {"affinity": OTHER}}, False),
        (
            {
                "spec": {
                    "containers": [
                        {"name": "c", "image": "a:1", "resources": {"requests": {"cpu": "1"}}}
                    ]
                }
            },
            True,
        ),
        ({"spec": {"containers": [{"name": "c", "image": "b:1"}]}}, False),
        ({"spec": {"containers": [{"name": "d", "image": "a:1"}]}}, False),
    ],
)
def test_templates_of_suspended_jobs(template: Object, is_allowed: bool) -> None:  # noqa: FBT001
    """Where pods run, what they get, and what is written on them can change."""
    old = prepared({"suspend": True}, {})
    new = patched(old, {"spec": {"template": template}})
    errors = change_refusals(JOBS, new, old)
    path = "spec.template.spec: Invalid value: {"
    assert (errors == []) if is_allowed else [each.startswith(path) for each in errors] == [True]
    running = prepared({}, {"startTime": NOW})
    errors = change_refusals(JOBS, patched(running, {"spec": {"template": template}}), running)
    assert [each.startswith("spec.template: Invalid value: {") for each in errors] == [True]


@pytest.mark.parametrize(
    ("status", "is_allowed"),
    [
        ({}, True),
        ({"startTime": NOW}, False),
        ({"startTime": NOW, "conditions": [{"type": "Suspended", "status": "True"}]}, True),
        ({"active": 1}, False),
    ],
)
def test_suspended_jobs_have_no_pods(status: Object, is_allowed: bool) -> None:  # noqa: FBT001
    old = prepared({"suspend": True}, status)
    template = {"spec": {"nodeSelector": {"a": "b"}}}
    errors = change_refusals(JOBS, patched(old, {"spec": {"template": template}}), old)
    assert (errors == []) is is_allowed


STATUS = JOBS.subresources["status"]
MET = {"type": "SuccessCriteriaMet", "status": "True"}
COMPLETE = {"type": "Complete", "status": "True"}
TARGET = {"type": "FailureTarget", "status": "True"}
FAILED = {"type": "Failed", "status": "True"}
DONE = {"startTime": NOW, "completionTime": LATER, "conditions": [MET, COMPLETE]}


@pytest.mark.parametrize(
    ("spec", "old", "new", "expected"),
    [
        ({}, {}, DONE, []),
        ({}, {}, {"startTime": NOW, "conditions": [TARGET, FAILED]}, []),
        ({}, {}, {"active": -1}, ["active: Invalid value: -1: must be greater than or equal to 0"]),
        (
            {},
            {},
            {**DONE, "completionTime": "2025-01-01T00:00:00Z"},
            [
                'completionTime: Invalid value: "2025-01-01T00:00:00Z":'
                " must be equal to or after `startTime`"
            ],
        ),
        (
            {},
            {},
            {"conditions": [COMPLETE]},
            [
                "completionTime: Required value: completionTime is required for Complete jobs",
                "conditions: Invalid value: cannot set Complete=True condition without the"
                " SuccessCriteriaMet=true condition",
                "startTime: Required value: startTime is required for finished job",
            ],
        ),
        (
            {},
            {},
            {**DONE, "active": 1, "terminating": 1, "uncountedTerminatedPods": {"failed": ["a"]}},
            [
                "active: Invalid value: 1: active>0 is invalid for finished job",
                'uncountedTerminatedPods: Invalid value: {"Succeeded":null,"Failed":["a"]}:'
                " must be empty for finished job",
                "terminating: Invalid value: 1: terminating>0 is invalid for finished job",
            ],
        ),
        (
            {},
            {},
            {"uncountedTerminatedPods": {"succeeded": ["a", ""], "failed": ["a"]}},
            [
                'uncountedTerminatedPods.succeeded[1]: Invalid value: "": must not be empty',
                'uncountedTerminatedPods.failed[0]: Duplicate value: "a"',
            ],
        ),
        (
            {},
            DONE,
            {"startTime": NOW},
            [
                "conditions: Invalid value: cannot disable the terminal Complete=True condition",
                "conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
            ],
        ),
        (
            {},
            {"failed": 2, "succeeded": 2, "startTime": NOW},
            {"failed": 1, "succeeded": 1, "startTime": LATER},
            [
                "failed: Invalid value: 1: cannot decrease the failed counter",
                "succeeded: Invalid value: 1: cannot decrease the succeeded counter",
                f'startTime: Invalid value: "{LATER}":'
                " field is immutable for unsuspended job once set",
            ],
        ),
        (
            {"completionMode": "Indexed", "completions": 2, "parallelism": 2},
            {"succeeded": 2},
            {"succeeded": 1},
            [],
        ),
        (
            {"suspend": True},
            {"startTime": NOW, "conditions": [{"type": "Suspended", "status": "True"}]},
            {"startTime": LATER, "conditions": [{"type": "Suspended", "status": "False"}]},
            [],
        ),
        (
            {"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 1},
            {},
            {"completedIndexes": "0-2", "failedIndexes": "2-3"},
            [
                'failedIndexes: Invalid value: "2-3":'
                " failedIndexes and completedIndexes overlap at index: 2"
            ],
        ),
        (
            {"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 1},
            {},
            {"completedIndexes": "2,1", "failedIndexes": "9"},
            [
                'completedIndexes: Invalid value: "2,1": error parsing completedIndexes:'
                " non-increasing order, previous: 2, current: 1",
                'failedIndexes: Invalid value: "9": error parsing failedIndexes:'
                ' too large index: "9"',
            ],
        ),
        (
            {},
            {},
            {"completedIndexes": "0", "failedIndexes": ""},
            [
                'completedIndexes: Invalid value: "0":'
                " cannot set non-empty completedIndexes when non-indexed completion mode",
                'failedIndexes: Invalid value: "":'
                " cannot set non-null failedIndexes when backoffLimitPerIndex is null",
            ],
        ),
        (
            {},
            {"active": 1, "ready": 1},
            {"active": 1, "ready": 2},
            ["ready: Invalid value: 2: cannot set more ready pods than active"],
        ),
        (
            {},
            {"startTime": NOW, "completionTime": NOW, "conditions": [COMPLETE]},
            {**DONE, "completionTime": NOW},
            [
                "conditions: Invalid value: cannot set SuccessCriteriaMet=True for Job already has"
                " Complete=true conditions"
            ],
        ),
        ({}, {"conditions": [COMPLETE]}, {"conditions": [COMPLETE], "failed": 1}, []),
        (
            {
                "completionMode": "Indexed",
                "completions": 5,
                "successPolicy": {"rules": [{"succeededCount": 1}]},
            },
            {"startTime": NOW, "completionTime": NOW, "conditions": [COMPLETE]},
            {"startTime": NOW, "completionTime": NOW, "conditions": [COMPLETE], "succeeded": 1},
            [
                "conditions: Invalid value: cannot set Complete=True for Job with SuccessPolicy"
                " unless SuccessCriteriaMet=True"
            ],
        ),
    ],
)
def test_status(spec: Object, old: Object, new: Object, expected: list[str]) -> None:
    """Rules are asked when something they speak of has changed."""
    before = prepared(spec, old)
    errors = change_refusals(STATUS, {**before, "status": new}, before)
    assert [each.removeprefix("status.") for each in errors] == expected


@pytest.mark.parametrize(
    ("text", "total"), [("", 0), ("0", 1), ("1,3-5,7", 5), ("0-9", 10), ("01-3", 3)]
)
def test_indexes(text: str, total: int) -> None:
    assert count(text, 10) == total


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", 'cannot convert string to integer for index: "x"'),
        ("1-x", 'cannot convert string to integer for index: "x"'),
        ("10", 'too large index: "10"'),
        ("3-3", "non-increasing order, previous: 3, current: 3"),
        ("1,1", "non-increasing order, previous: 1, current: 1"),
        (
            "1-2-3",
            'the fragment "1-2-3" violates the requirement that an index interval can have at most'
            " two parts separated by '-'",
        ),
    ],
)
def test_bad_indexes(text: str, message: str) -> None:
    with pytest.raises(IndexesError) as caught:
        count(text, 10)
    assert str(caught.value) == message


def as_text(indexes: set[int]) -> str:
    """Return a list of indexes in its shortest form."""
    parts: list[str] = []
    for number in sorted(indexes):
        if number - 1 in indexes:
            first = parts[-1].partition("-")[0]
            parts[-1] = f"{first}-{number}"
        else:
            parts.append(str(number))
    return ",".join(parts)


INDEXES = st.sets(st.integers(0, 30))


@given(INDEXES, INDEXES)
def test_indexes_are_sets(one: set[int], other: set[int]) -> None:
    """Their size, and the first element that two of them share."""
    assert count(as_text(one), 31) == len(one)
    assert overlap(as_text(one), as_text(other), 31) == min(one & other, default=None)


def test_bad_parts_do_not_overlap() -> None:
    assert overlap("x,1", "y,1", 5) == 1
    assert overlap("x", "1", 5) is None


def test_warnings_of_jobs() -> None:
    large = {"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001}
    (warning,) = warnings_of(JOBS, job(large))
    assert warning.startswith("spec: In Indexed Jobs with a number of completions higher than 10^5")
    old = prepared(large)
    assert warnings_of_change(JOBS, patched(old, {"metadata": {"labels": {"a": "b"}}}), old) == []
    assert len(warnings_of_change(JOBS, patched(old, {"spec": {"suspend": True}}), old)) == 1


def test_selectable_fields() -> None:
    assert JOBS.selectable is not None
    assert JOBS.selectable(job(status={"succeeded": 2})) == {"status.successful": "2"}


def cron_job(spec: Object | None = None, name: str = "c") -> Object:
    """Return a CronJob."""
    base = {
        "metadata": {"name": name, "namespace": "ns", "resourceVersion": "1"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": JOB["spec"]}},
    }
    return patched(base, {"spec": spec or {}})


def test_new_cron_jobs() -> None:
    """The template of their Jobs has no defaults of Jobs."""
    found = prepared_object(CRON_JOBS, cron_job())
    spec = found["spec"]
    assert (spec["concurrencyPolicy"], spec["suspend"]) == ("Allow", False)
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 1)
    assert "completions" not in spec["jobTemplate"]["spec"]
    assert found["metadata"]["generation"] == 1


NO_ZONE = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"schedule": None, "suspend": None}, ["schedule: Required value"]),
        (
            {"schedule": "x"},
            ['schedule: Invalid value: "x": expected exactly 5 fields, found 1: [x]'],
        ),
        (
            {"schedule": "TZ=UTC * * * * *"},
            [f'schedule: Invalid value: "TZ=UTC * * * * *": {NO_ZONE}'],
        ),
        ({"timeZone": "Europe/Paris"}, []),
        (
            {"timeZone": ""},
            ['timeZone: Invalid value: "": timeZone must be nil or non-empty string'],
        ),
        ({"timeZone": "A/B"}, ['timeZone: Invalid value: "A/B": unknown time zone A/B']),
        ({"timeZone": "/UTC"}, ['timeZone: Invalid value: "/UTC": unknown time zone /UTC']),
        (
            {"timeZone": "local"},
            [
                'timeZone: Invalid value: "local": timeZone must be an explicit time zone as'
                " defined in https://www.iana.org/time-zones",
                'timeZone: Invalid value: "local": unknown time zone local',
            ],
        ),
        (
            {"concurrencyPolicy": "x"},
            [
                'concurrencyPolicy: Unsupported value: "x":'
                ' supported values: "Allow", "Forbid", "Replace"'
            ],
        ),
        (
            {"startingDeadlineSeconds": -1, "failedJobsHistoryLimit": -1},
            [
                "startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
                "failedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            {
                "jobTemplate": {
                    "spec": {"selector": {"matchLabels": {"a": "b"}}, "manualSelector": True}
                }
            },
            [
                'jobTemplate.spec.selector: Invalid value: {"matchLabels":{"a":"b"}}:'
                " `selector` will be auto-generated",
                "jobTemplate.spec.manualSelector: Unsupported value: true:"
                ' supported values: "nil", "false"',
            ],
        ),
    ],
)
def test_cron_jobs(spec: Object, expected: list[str]) -> None:
    errors = refusals(CRON_JOBS, cron_job(spec))
    assert [each.removeprefix("spec.") for each in errors] == expected


def test_names_of_cron_jobs() -> None:
    """Eleven characters are left for the Jobs, but stored names may stay."""
    long = cron_job(name="c" * 53)
    assert refusals(CRON_JOBS, long) == [
        f'metadata.name: Invalid value: "{"c" * 53}": must be no more than 52 characters'
    ]
    assert change_refusals(CRON_JOBS, long, long) == []


def test_stored_zones() -> None:
    """A zone within a stored schedule may stay, but not beside the other field; it is told of."""
    old = cron_job({"schedule": "TZ=UTC 1 * * * *", "timeZone": None})
    new = patched(old, {"spec": {"schedule": "TZ=UTC 2 * * * *"}})
    assert change_refusals(CRON_JOBS, new, old) == []
    (warning,) = warnings_of_change(CRON_JOBS, new, old)
    assert warning.startswith("cannot use TZ or CRON_TZ in spec.spec.schedule")
    both = patched(new, {"spec": {"timeZone": "UTC"}})
    assert change_refusals(CRON_JOBS, both, old) == [
        'spec.schedule: Invalid value: "TZ=UTC 2 * * * *":'
        " cannot use both timeZone field and TZ or CRON_TZ in schedule"
    ]
    unknown = cron_job({"timeZone": "No/Where"})
    assert change_refusals(CRON_JOBS, unknown, unknown) == []


def test_status_of_cron_jobs() -> None:
    """Nothing of it is checked."""
    status = CRON_JOBS.subresources["status"]
    assert change_refusals(status, {**cron_job(), "status": {"active": [{}]}}, cron_job()) == []
