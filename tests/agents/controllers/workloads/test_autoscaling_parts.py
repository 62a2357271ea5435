"""Replicas from usage, and how fast a target may be scaled."""

import pytest

from kvstack.agents.controllers.workloads.autoscaling.proportions import (
    MetricError,
    Question,
    Readiness,
    Sample,
    Tolerances,
    by_average,
    by_share,
    by_total,
    by_utilization,
)
from kvstack.agents.controllers.workloads.autoscaling.recommendations import Bounds, Memory
from kvstack.apimachinery.objects.json_object import Object

NOW_S = 10_000.0


def _pod(name: str, *, phase: str = "Running", ready: str = "True", request: str = "1") -> Object:
    condition = {
        "type": "Ready",
        "status": ready,
        "lastTransitionTime": "1970-01-01T00:10:00Z",
    }
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": request}}}]},
        "status": {
            "phase": phase,
            "startTime": "1970-01-01T00:00:00Z",
            "conditions": [condition],
        },
    }


def _question(*pods: Object, current: int | None = None) -> Question:
    replicas = len(pods) if current is None else current
    return Question(pods, replicas, Tolerances(0.1, 0.1), Readiness(), NOW_S)


def _samples(**values: int) -> dict[str, Sample]:
    return {name: Sample(value, NOW_S, 60.0) for name, value in values.items()}


@pytest.mark.parametrize(
    ("used", "replicas"),
    [
        ((500, 500), 2),
        ((540, 540), 2),  # within a tenth of the target
        ((600, 600), 3),
        ((1000, 1000), 4),
        ((200, 200), 1),
        ((0, 0), 0),
    ],
)
def test_a_share_of_requests(used: tuple[int, int], replicas: int) -> None:
    question = _question(_pod("a"), _pod("b"))
    found = by_utilization(question, _samples(a=used[0], b=used[1]), 50, "cpu")
    assert found.replicas == replicas
    assert found.value == sum(used) // 2
    assert found.percent == sum(used) // 20


def test_what_tells_nothing_makes_changes_smaller() -> None:
    pods = [_pod(name) for name in "abcd"]
    # Three use much, one is silent: it counts as idle.
    loud = by_utilization(_question(*pods), _samples(a=1000, b=1000, c=1000), 50, "cpu")
    assert loud.replicas == 6
    # Three use little, one is silent: it counts as fully used.
    low = by_utilization(_question(*pods), _samples(a=100, b=100, c=100), 50, "cpu")
    assert low.replicas == 3
    pending = [*pods[:2], _pod("p", phase="Pending")]
    assert by_utilization(_question(*pending), _samples(a=900, b=900), 50, "cpu").replicas == 4


def test_pods_that_end_do_not_count() -> None:
    pods = [_pod("a"), _pod("f", phase="Failed")]
    found = by_utilization(_question(*pods, current=1), _samples(a=1000, f=9000), 50, "cpu")
    assert found.replicas == 2


def test_an_average() -> None:
    question = _question(_pod("a"), _pod("b"))
    assert by_average(question, _samples(a=30, b=50), 20).replicas == 4
    assert by_average(question, _samples(a=19, b=21), 20).replicas == 2


def test_one_value_for_all() -> None:
    question = _question(_pod("a"), _pod("b", ready="False"))
    assert by_total(question, 400, 100).replicas == 4  # of the one that is ready
    assert by_total(question, 105, 100).replicas == 2
    assert by_total(_question(current=0), 250, 100).replicas == 3
    assert by_share(450, 100, 2, Tolerances(0.1, 0.1)) == (5, 225, None)
    assert by_share(210, 100, 2, Tolerances(0.1, 0.1)).replicas == 2


@pytest.mark.parametrize(
    ("pods", "samples", "text"),
    [
        ([], {}, "no pods returned by selector while calculating replica count"),
        (
            [_pod("a", phase="Pending")],
            {"a": 1},
            "did not receive metrics for targeted pods (pods might be unready)",
        ),
    ],
)
def test_nothing_to_propose_from(pods: list[Object], samples: dict[str, int], text: str) -> None:
    with pytest.raises(MetricError) as raised:
        by_utilization(_question(*pods), _samples(**samples), 50, "cpu")
    assert str(raised.value) == text


def test_a_missing_request_is_reported() -> None:
    pod = _pod("a")
    pod["spec"]["containers"][0]["resources"] = {}
    with pytest.raises(MetricError, match="missing request for cpu in container c of Pod a"):
        by_utilization(_question(pod), _samples(a=1), 50, "cpu")


def test_a_scale_down_waits_for_its_window() -> None:
    memory = Memory(300.0)
    memory.begin("k", 5, 0.0)
    assert memory.stabilized("k", 2, 5, None, 10.0).replicas == 5
    assert memory.stabilized("k", 2, 5, None, 10.0).reason == "ScaleDownStabilized"
    assert memory.stabilized("k", 8, 5, None, 20.0).replicas == 8
    assert memory.stabilized("k", 2, 8, None, 319.0).replicas == 8
    found = memory.stabilized("k", 2, 8, None, 321.0)
    assert (found.replicas, found.reason) == (2, "ReadyForNewScale")


def test_without_rules_a_target_at_most_doubles() -> None:
    memory = Memory(300.0)
    assert memory.limited("k", 50, Bounds(3, 1, 100), None, 0.0)[:2] == (6, "ScaleUpLimit")
    assert memory.limited("k", 50, Bounds(1, 1, 100), None, 0.0)[:2] == (4, "ScaleUpLimit")
    assert memory.limited("k", 50, Bounds(30, 1, 40), None, 0.0)[:2] == (40, "TooManyReplicas")
    assert memory.limited("k", 0, Bounds(3, 2, 40), None, 0.0)[:2] == (2, "TooFewReplicas")
    assert not memory.limited("k", 3, Bounds(3, 2, 40), None, 0.0).is_limited


def _rules(direction: str, choice: str = "Max", *policies: tuple[str, int, int]) -> Object:
    listed = [
        {"type": kind, "value": value, "periodSeconds": period} for kind, value, period in policies
    ]
    rules = {"selectPolicy": choice, "policies": listed, "stabilizationWindowSeconds": 0}
    return {"scaleUp": {}, "scaleDown": {}, direction: rules}


@pytest.mark.parametrize(
    ("direction", "choice", "expected", "allowed"),
    [
        ("scaleUp", "Max", 50, 20),
        ("scaleUp", "Min", 50, 14),
        ("scaleUp", "Disabled", 50, 10),
        ("scaleDown", "Max", 1, 5),
        ("scaleDown", "Min", 1, 6),
        ("scaleDown", "Disabled", 1, 10),
    ],
)
def test_rules_of_speed(direction: str, choice: str, expected: int, allowed: int) -> None:
    percent = 100 if direction == "scaleUp" else 50
    behavior = _rules(direction, choice, ("Pods", 4, 60), ("Percent", percent, 60))
    found = Memory(300.0).limited("k", expected, Bounds(10, 1, 100), behavior, 0.0)
    assert found.replicas == allowed
    assert found.is_limited


def test_what_was_done_in_a_period_counts() -> None:
    memory = Memory(300.0)
    behavior = _rules("scaleUp", "Max", ("Pods", 4, 60))
    memory.scaled("k", 10, 13, behavior, 0.0)
    assert memory.limited("k", 50, Bounds(13, 1, 100), behavior, 30.0).replicas == 14
    assert memory.limited("k", 50, Bounds(13, 1, 100), behavior, 61.0).replicas == 17
    memory.forget("k")
    assert memory.limited("k", 50, Bounds(13, 1, 100), behavior, 30.0).replicas == 17
