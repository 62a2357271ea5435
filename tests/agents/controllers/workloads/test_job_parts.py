"""Indexes, back-off and failure policies of Jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.agents.controllers.workloads.jobs import back_off, indexes
from kvstack.agents.controllers.workloads.jobs.back_off import NO_FAILURES, Record
from kvstack.agents.controllers.workloads.jobs.failure_policy import verdict
from kvstack.agents.controllers.workloads.jobs.tracking import Uncounted
from kvstack.apimachinery.objects.json_object import Object


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (set(), ""),
        ({3}, "3"),
        ({0, 1}, "0,1"),
        ({0, 1, 2}, "0-2"),
        ({1, 3, 4, 5, 8, 9}, "1,3-5,8,9"),
    ],
)
def test_texts_of_indexes(found: set[int], text: str) -> None:
    assert indexes.text(found) == text
    assert indexes.parse(text, 100) == found


@given(st.sets(st.integers(0, 40)), st.integers(1, 50))
def test_a_text_holds_all_indexes_below_the_limit(found: set[int], limit: int) -> None:
    assert indexes.parse(indexes.text(found), limit) == {each for each in found if each < limit}


def test_what_is_no_index_is_left_out() -> None:
    assert indexes.parse("1,x,3-,5-y,-2,7", 10) == {1, 3, 7}


@pytest.mark.parametrize(
    ("failures", "since_s", "left_s"),
    [
        (0, 0, 0),
        (1, 0, 10),
        (1, 4, 6),
        (1, 11, 0),
        (2, 0, 20),
        (3, 0, 40),
        (7, 0, 600),
        (99, 0, 600),
    ],
)
def test_how_long_a_job_waits(failures: int, since_s: float, left_s: float) -> None:
    assert back_off.remaining_s(Record(failures, 1000.0), 1000.0 + since_s) == left_s


def _ended(second: int) -> Object:
    state = {"terminated": {"exitCode": 1, "finishedAt": f"2026-11-22T10:00:{second:02}Z"}}
    return {
        "metadata": {"name": "p"},
        "spec": {},
        "status": {"containerStatuses": [{"name": "c", "state": state}]},
    }


def test_a_success_ends_the_wait() -> None:
    record = back_off.after(NO_FAILURES, [], [_ended(3), _ended(5)])
    assert record == (2, back_off.finished_s(_ended(5)))
    assert back_off.after(record, [], []) == record
    assert back_off.after(record, [_ended(9)], [_ended(8)]) == NO_FAILURES
    assert back_off.after(record, [_ended(9)], [_ended(8), _ended(11)]).failures == 1


def test_when_a_pod_ended_is_read_from_what_it_has() -> None:
    bare = {"metadata": {"creationTimestamp": "1970-01-01T00:00:09Z"}, "spec": {}, "status": {}}
    assert back_off.finished_s(bare) == 9
    deleted = {
        **bare,
        "metadata": {
            "deletionTimestamp": "1970-01-01T00:01:00Z",
            "deletionGracePeriodSeconds": 30,
        },
    }
    assert back_off.finished_s(deleted) == 30
    condition = {
        "type": "Ready",
        "status": "False",
        "lastTransitionTime": "1970-01-01T00:00:20Z",
    }
    assert back_off.finished_s({**deleted, "status": {"conditions": [condition]}}) == 20


def _job(*rules: Object) -> Object:
    return {"spec": {"podFailurePolicy": {"rules": list(rules)}}}


def _codes(operator: str, *values: int, name: str | None = None) -> Object:
    codes: Object = {"operator": operator, "values": list(values)}
    if name:
        codes["containerName"] = name
    return {"onExitCodes": codes}


def _pod(**codes: int) -> Object:
    return {
        "metadata": {"namespace": "ns", "name": "p"},
        "status": {
            "containerStatuses": [
                {"name": name, "state": {"terminated": {"exitCode": code}}}
                for name, code in codes.items()
            ],
            "conditions": [{"type": "DisruptionTarget", "status": "True"}],
        },
    }


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (_codes("In", 42), True),
        (_codes("In", 42, name="b"), True),
        (_codes("In", 42, name="a"), False),
        (_codes("In", 7), False),
        (_codes("NotIn", 7), True),
        (_codes("NotIn", 42), False),
        ({"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}, True),
        ({"onPodConditions": [{"type": "DisruptionTarget"}]}, True),
        ({"onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}, False),
    ],
)
def test_rules_of_failure_policies(rule: Object, matches: bool) -> None:  # noqa: FBT001
    found = verdict(_job({"action": "Ignore", **rule}), _pod(a=0, b=42))
    assert found.is_counted is not matches
    assert found.action == ("Ignore" if matches else "")


def test_the_first_rule_counts_and_tells() -> None:
    rules = (
        {"action": "Count", **_codes("In", 1)},
        {"action": "FailJob", **_codes("In", 42)},
        {"action": "Ignore", **_codes("In", 42)},
    )
    found = verdict(_job(*rules), _pod(main=42))
    assert found.message == (
        "Container main for pod ns/p failed with exit code 42 matching FailJob rule at index 1"
    )
    by_condition = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
    assert verdict(_job(by_condition), _pod()).message == (
        "Pod ns/p has condition DisruptionTarget matching FailJob rule at index 0"
    )


def test_a_pod_is_counted_once() -> None:
    status: Object = {"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["a", "b"]}}
    uncounted = Uncounted(status)
    assert not uncounted.count(["a", "b"])
    assert uncounted.count(["b"])
    assert status["succeeded"] == 2
    uncounted.add("failed", "c")
    assert status["uncountedTerminatedPods"] == {"succeeded": ["b"], "failed": ["c"]}
    assert len(uncounted) == 2
    uncounted.count([])
    assert (status["succeeded"], status["failed"]) == (3, 1)
    assert status["uncountedTerminatedPods"] == {}
