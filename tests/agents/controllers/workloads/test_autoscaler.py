"""Autoscalers read metrics, and scale their targets."""

from contextlib import suppress
from typing import Any

import pytest

from kvstack.agents.client.built_in import DEPLOYMENTS, HORIZONTAL_POD_AUTOSCALERS, PODS
from kvstack.agents.client.discovery import Discovery, ServedResource
from kvstack.agents.controllers.options import AutoscalerOptions
from kvstack.agents.controllers.served_kinds import ServedKinds, UnknownKindError
from kvstack.agents.controllers.workloads.autoscaling.controller import (
    AutoscalerController,
    AutoscalingError,
)
from kvstack.agents.controllers.workloads.autoscaling.metrics import (
    FailedMetricError,
    Target,
    propose,
)
from kvstack.agents.controllers.workloads.autoscaling.proportions import (
    Question,
    Readiness,
    Tolerances,
)
from kvstack.agents.reconcile.plan import (
    Action,
    Again,
    Discover,
    Get,
    Later,
    ListLive,
    Record,
    Update,
)
from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from tests.agents.support.plans import Answer, drive, refusal, view_of

NOW_S = 1_800_000_000.0
KEY = "default/web"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
FOUND = Discovery([ServedResource(DEPLOYMENTS, frozenset(("get",)), is_preferred=True)])


def _pod(name: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {
            "phase": "Running",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [READY],
        },
    }


PODS_THERE = [_pod("a"), _pod("b")]


def _target() -> Target:
    question = Question(PODS_THERE, 2, Tolerances(0.1, 0.1), Readiness(), NOW_S)
    return Target("default", "app=web", 2, question)


def _usage(cpu: str) -> Object:
    containers = [{"name": "c", "usage": {"cpu": cpu}}]
    items = [
        {
            "metadata": {"name": name},
            "timestamp": "2027-01-15T08:00:00Z",
            "window": "30s",
            "containers": containers,
        }
        for name in "ab"
    ]
    return {"items": items}


def _value(value: str) -> Object:
    return {"items": [{"value": value, "describedObject": {"name": name}} for name in "ab"]}


def _proposed(spec: Object, answers: Object) -> tuple[Any, list[Action]]:
    found: list[Any] = []

    def plan() -> Any:
        found.append((yield from propose(spec, _target())))

    def answer(action: Action) -> Answer:
        return {"found": FOUND} if isinstance(action, Discover) else answers

    asked, _ = drive(plan(), answer)
    return found[0], asked


METRIC = {"name": "queue", "selector": {"matchLabels": {"q": "1"}}}


@pytest.mark.parametrize(
    ("spec", "answers", "replicas", "name"),
    [
        (
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"averageUtilization": 50}},
            },
            _usage("900m"),
            4,
            "cpu resource utilization (percentage of request)",
        ),
        (
            {"type": "Resource", "resource": {"name": "cpu", "target": {"averageValue": "300m"}}},
            _usage("900m"),
            6,
            "cpu resource",
        ),
        (
            {
                "type": "ContainerResource",
                "containerResource": {
                    "name": "cpu",
                    "container": "c",
                    "target": {"averageUtilization": 90},
                },
            },
            _usage("900m"),
            2,
            "cpu container resource utilization (percentage of request)",
        ),
        (
            {"type": "Pods", "pods": {"metric": METRIC, "target": {"averageValue": "10"}}},
            _value("15"),
            3,
            "pods metric queue",
        ),
        (
            {
                "type": "Object",
                "object": {
                    "metric": METRIC,
                    "describedObject": {
                        "apiVersion": "apps/v1",
                        "kind": "Deployment",
                        "name": "front",
                    },
                    "target": {"type": "Value", "value": "10"},
                },
            },
            _value("25"),
            5,
            "Deployment metric queue",
        ),
        (
            {
                "type": "External",
                "external": {"metric": {"name": "queue"}, "target": {"averageValue": "10"}},
            },
            _value("35"),
            7,
            "external metric queue(nil)",
        ),
    ],
)
def test_metrics_propose(spec: Object, answers: Object, replicas: int, name: str) -> None:
    found, _ = _proposed(spec, answers)
    assert found.replicas == replicas
    assert found.name == name
    assert found.status["type"] == spec["type"]


def test_where_metrics_are_read() -> None:
    pods = {"type": "Pods", "pods": {"metric": METRIC, "target": {"averageValue": "10"}}}
    _, [asked] = _proposed(pods, _value("15"))
    assert isinstance(asked, Get)
    path = asked.resource.path(asked.namespace, asked.name, asked.subresource)
    assert path == "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/%2A/queue"
    assert dict(asked.query) == {"labelSelector": "app=web", "metricLabelSelector": "q=1"}
    external = {"type": "External", "external": {"metric": METRIC, "target": {"value": "10"}}}
    _, [asked] = _proposed(external, _value("15"))
    assert isinstance(asked, ListLive)
    assert (asked.resource.name, asked.labels) == ("queue", "q=1")


def test_what_cannot_be_read_is_reported() -> None:
    spec = {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}}
    with pytest.raises(FailedMetricError) as raised:
        drive(propose(spec, _target()), lambda _action: {"items": []})
    cause = (
        "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics"
        " returned from resource metrics API"
    )
    assert raised.value.cause == cause
    assert str(raised.value) == f"failed to get cpu resource metric value: {cause}"
    with pytest.raises(FailedMetricError, match="unknown metric source type"):
        drive(propose({"type": "Odd"}, _target()))


SCALE = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"replicas": 2},
    "status": {"replicas": 2, "selector": "app=web"},
}


def _autoscaler(name: str = "web", *, status: Object | None = None, **spec: Any) -> Object:
    metric = {"name": "cpu", "target": {"averageUtilization": 50}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "status": status or {},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": metric}],
            **spec,
        },
    }


def _round(
    usage: Answer,
    *,
    scale: Answer = SCALE,
    updated: Answer = None,
    status: Object | None = None,
    asked: list[Action] | None = None,
    **spec: Any,
) -> tuple[list[Action], Any]:
    """Carry one round out; updated: the answer to the new scale, where it is another; asked: what
    was asked is added there, also of a round that fails."""
    autoscaler = _autoscaler(status=status, **spec)

    def answer(action: Action) -> Answer:
        if asked is not None:
            asked.append(action)
        if updated is not None and isinstance(action, Update) and action.subresource == "scale":
            return updated
        match action:
            case Discover():
                return {"found": FOUND}
            case ListLive():
                return usage
            case Get():
                return scale
            case Update():
                return action.obj
        return {}

    view = view_of({HORIZONTAL_POD_AUTOSCALERS: [autoscaler], PODS: PODS_THERE})
    controller = AutoscalerController(AutoscalerOptions())
    return drive(controller.reconcile(KEY, view, NOW_S), answer)


def _status(asked: list[Action]) -> Object:
    status: Object = [each.obj for each in asked if isinstance(each, Update)][-1]["status"]
    return status


def test_a_target_is_scaled() -> None:
    asked, again = _round(_usage("900m"))
    assert again == Again(15.0, is_routine=True)
    scaled = next(x for x in asked if isinstance(x, Update) and x.subresource == "scale")
    assert scaled.obj["spec"]["replicas"] == 4
    [event] = [each for each in asked if isinstance(each, Record)]
    assert event.message == (
        "New size: 4; reason: cpu resource utilization (percentage of request) above target"
    )
    status = _status(asked)
    assert (status["currentReplicas"], status["desiredReplicas"]) == (2, 4)
    current = status["currentMetrics"][0]["resource"]["current"]
    assert current == {"averageUtilization": 90, "averageValue": "900m"}
    able = find(status["conditions"], "AbleToScale")
    assert able is not None
    assert able["reason"] == "SucceededRescale"


@pytest.mark.parametrize(
    ("spec", "replicas", "reason"),
    [
        ({"maxReplicas": 1}, 1, "Current number of replicas above Spec.MaxReplicas"),
        ({"minReplicas": 3}, 3, "Current number of replicas below Spec.MinReplicas"),
    ],
)
def test_bounds_need_no_metrics(spec: Object, replicas: int, reason: str) -> None:
    asked, _ = _round(refusal(500), **spec)
    [event] = [each for each in asked if isinstance(each, Record)]
    assert event.message == f"New size: {replicas}; reason: {reason}"


def test_without_metrics_a_target_stays() -> None:
    with pytest.raises(Exception, match="failed to compute desired number of replicas"):
        _round(refusal(500, "broken"))


def test_kinds_are_asked_for_now_and_then() -> None:
    kinds = ServedKinds()

    def calls_of(now_s: float, kind: str = "Deployment") -> int:
        done, _ = drive(kinds.resource_of("apps/v1", kind, now_s), lambda _x: {"found": FOUND})
        return len(done)

    assert [calls_of(0.0), calls_of(29.0), calls_of(31.0)] == [1, 0, 1]
    with pytest.raises(UnknownKindError):
        calls_of(0.0, "Other")


def _replicas(count: int, selector: str = "app=web") -> Object:
    status = {"replicas": count, "selector": selector}
    return {**SCALE, "spec": {"replicas": count}, "status": status}


ZERO = [{"type": "ScaledToZero", "status": "True"}]
OUTER = [
    {
        "type": "External",
        "external": {"metric": {"name": "queue"}, "target": {"averageValue": "10"}},
    }
]


AT_ONCE = {
    "stabilizationWindowSeconds": 0,
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


def _queue(length: str) -> Object:
    return {"items": [{"value": length}]}


@pytest.mark.parametrize(
    ("round_", "condition", "event"),
    [
        (
            {"scale": refusal(404, "gone")},
            ("AbleToScale", "False", "FailedGetScale"),
            ("FailedGetScale", "gone"),
        ),
        (
            {"scale": _replicas(2, "")},
            ("ScalingActive", "False", "InvalidSelector"),
            ("SelectorRequired", "selector is required"),
        ),
        (
            {"scale": _replicas(2, "a in (")},
            ("ScalingActive", "False", "InvalidSelector"),
            ("InvalidSelector", "couldn't convert selector"),
        ),
        (
            {"updated": refusal(403, "no")},
            ("AbleToScale", "False", "FailedUpdateScale"),
            (
                "FailedRescale",
                "New size: 4; reason: cpu resource utilization (percentage of request) above"
                " target; error: no",
            ),
        ),
        ({"scale": _replicas(0)}, ("ScalingActive", "False", "ScalingDisabled"), None),
        # Only a target that was brought to zero here is raised again.
        (
            {"scale": _replicas(0), "minReplicas": 0, "metrics": OUTER, "usage": _queue("15")},
            ("ScalingActive", "False", "ScalingDisabled"),
            None,
        ),
        (
            {
                "scale": _replicas(0),
                "minReplicas": 0,
                "metrics": OUTER,
                "usage": _queue("15"),
                "status": {"conditions": ZERO},
            },
            ("ScaledToZero", "False", "NotScaledToZero"),
            ("SuccessfulRescale", "New size: 2; reason: external metric queue(nil) above target"),
        ),
        (
            {
                "scale": _replicas(1),
                "minReplicas": 0,
                "metrics": OUTER,
                "usage": _queue("0"),
                "behavior": {"scaleDown": AT_ONCE},
            },
            ("ScaledToZero", "True", "ScaledToZero"),
            ("SuccessfulRescale", "New size: 0; reason: All metrics below target"),
        ),
        (
            {"maxReplicas": 3},
            ("ScalingLimited", "True", "TooManyReplicas"),
            ("SuccessfulRescale", "New size: 3;"),
        ),
        (
            {"usage": _usage("50m"), "minReplicas": 2},
            ("ScalingLimited", "False", "DesiredWithinRange"),
            None,
        ),
        (
            {"usage": refusal(500, "broken")},
            ("ScalingActive", "False", "FailedGetResourceMetric"),
            ("FailedComputeMetricsReplicas", "invalid metrics (1 invalid out of 1)"),
        ),
    ],
)
def test_what_is_reported(
    round_: Object, condition: tuple[str, str, str], event: tuple[str, str] | None
) -> None:
    asked: list[Action] = []
    usage = round_.get("usage", _usage("900m"))
    rest = {name: value for name, value in round_.items() if name != "usage"}
    with suppress(AutoscalingError, ApiError):
        _round(usage, asked=asked, **rest)
    written = [x for x in asked if isinstance(x, Update) and x.subresource == "status"]
    found = find(written[-1].obj["status"]["conditions"], condition[0])
    assert found is not None
    assert (found["status"], found["reason"]) == condition[1:]
    events = [(each.reason, each.message) for each in asked if isinstance(each, Record)]
    if event is None:
        assert events == []
    else:
        assert any(reason == event[0] and text.startswith(event[1]) for reason, text in events)


def test_a_scale_that_changed_meanwhile_is_read_again() -> None:
    asked: list[Action] = []
    with suppress(ApiError):
        _round(_usage("900m"), updated=refusal(409), asked=asked)
    tries = [x for x in asked if isinstance(x, Update) and x.subresource == "scale"]
    assert len(tries) == 5


def test_pods_of_two_autoscalers_are_scaled_by_none() -> None:
    view = view_of(
        {HORIZONTAL_POD_AUTOSCALERS: [_autoscaler(), _autoscaler("also")], PODS: PODS_THERE}
    )
    controller = AutoscalerController(AutoscalerOptions())

    def answer(action: Action) -> Answer:
        if isinstance(action, Discover):
            return {"found": FOUND}
        if isinstance(action, ListLive):
            return _usage("900m")
        return SCALE if isinstance(action, Get) else getattr(action, "obj", {})

    drive(controller.reconcile(KEY, view, NOW_S), answer)
    asked: list[Action] = []

    def noting(action: Action) -> Answer:
        asked.append(action)
        return answer(action)

    with pytest.raises(AutoscalingError):
        drive(controller.reconcile("default/also", view, NOW_S), noting)
    [status] = [x.obj["status"] for x in asked if isinstance(x, Update)]
    active = find(status["conditions"], "ScalingActive")
    assert active is not None
    assert active["reason"] == "AmbiguousSelector"
    # Once the other is gone it goes on.
    alone = view_of({HORIZONTAL_POD_AUTOSCALERS: [_autoscaler("also")], PODS: PODS_THERE})
    drive(controller.reconcile(KEY, alone, NOW_S), answer)
    _, again = drive(controller.reconcile("default/also", alone, NOW_S), answer)
    assert again == Again(15.0, is_routine=True)


def test_an_autoscaler_is_looked_at_in_its_own_time() -> None:
    [watch] = AutoscalerController(AutoscalerOptions()).watches
    view = view_of({})
    one = _autoscaler()
    assert list(watch.keys(None, one, view)) == [Later(KEY, 15.0)]
    assert list(watch.keys(one, _autoscaler(maxReplicas=3), view)) == [Later(KEY, 15.0)]
    assert list(watch.keys(one, {**one, "status": {"x": 1}}, view)) == []
    assert list(watch.keys(one, None, view)) == [KEY]
