"""HorizontalPodAutoscalers and their two versions, and PodDisruptionBudgets."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.decode import normalize
from kvstack.apimachinery.schema.load import load
from kvstack.apiserver.kinds.budget_status import set_disruption_allowed
from kvstack.apiserver.kinds.workloads.autoscalers.conversion import default_v1, to_v1, to_v2
from kvstack.apiserver.kinds.workloads.autoscalers.strategy import AUTOSCALERS
from kvstack.apiserver.kinds.workloads.disruption_budgets import DISRUPTION_BUDGETS
from tests.apiserver.kinds.hooks import (
    NOW,
    change_refusals,
    changed,
    patched,
    prepared_object,
    refusals,
)

PREFIX = "autoscaling.alpha.kubernetes.io/"
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
PODS = {
    "type": "Pods",
    "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "5"}},
}


def autoscaler(spec: Object | None = None, **members: Any) -> Object:
    """Return an autoscaler of autoscaling/v2."""
    base = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "namespace": "ns", "resourceVersion": "1"},
        "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3},
    }
    return {**patched(base, {"spec": spec or {}}), **members}


def test_new_autoscalers() -> None:
    found = prepared_object(
        AUTOSCALERS, autoscaler({"behavior": {"scaleDown": {"selectPolicy": "Min"}}})
    )
    spec = found["spec"]
    assert (spec["minReplicas"], spec["metrics"]) == (1, [CPU])
    assert spec["behavior"]["scaleUp"]["stabilizationWindowSeconds"] == 0
    assert [each["type"] for each in spec["behavior"]["scaleUp"]["policies"]] == ["Pods", "Percent"]
    down = spec["behavior"]["scaleDown"]
    assert (down["selectPolicy"], len(down["policies"])) == ("Min", 1)
    assert found["metadata"]["generation"] == 1
    kept = autoscaler()
    kept["metadata"]["annotations"] = {f"{PREFIX}metrics": "x", "a": "b"}
    assert prepared_object(AUTOSCALERS, kept)["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        (
            {"maxReplicas": 0},
            [
                "maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
                "maxReplicas: Required value",
            ],
        ),
        (
            {"minReplicas": -1, "maxReplicas": -2},
            [
                "maxReplicas: Invalid value: -2: must be greater than or equal to `minReplicas`",
                "minReplicas: Invalid value: -1: must be greater than or equal to 0",
                "maxReplicas: Invalid value: -2: must be greater than or equal to 1",
            ],
        ),
        (
            {"minReplicas": 0},
            [
                "metrics: Forbidden: must specify at least one Object or External metric to support"
                " scaling to zero replicas"
            ],
        ),
        (
            {"scaleTargetRef": {"kind": "a/b", "name": None, "apiVersion": "v1"}},
            [
                "scaleTargetRef.kind: Invalid value: \"a/b\": may not contain '/'",
                "scaleTargetRef.name: Required value",
                'scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group',
            ],
        ),
        (
            {"scaleTargetRef": {"apiVersion": "a/b/c"}},
            [
                'scaleTargetRef.apiVersion: Invalid value: "a/b/c":'
                " unexpected GroupVersion string: a/b/c"
            ],
        ),
        ({"scaleTargetRef": {"kind": "ReplicationController", "apiVersion": "v1"}}, []),
        (
            {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601, "selectPolicy": "x"}}},
            [
                "behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601:"
                " must be less than or equal to 3600",
                'behavior.scaleUp.selectPolicy: Unsupported value: "x":'
                ' supported values: "Disabled", "Max", "Min"',
            ],
        ),
        (
            {
                "behavior": {
                    "scaleUp": {
                        "policies": [{"type": "x", "value": 0, "periodSeconds": 1801}],
                        "tolerance": "-1",
                        "stabilizationWindowSeconds": -1,
                    }
                }
            },
            [
                "behavior.scaleUp.stabilizationWindowSeconds: Invalid value: -1:"
                " must be greater than or equal to zero",
                'behavior.scaleUp.policies[0].type: Unsupported value: "x":'
                ' supported values: "Percent", "Pods"',
                "behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
                "behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801:"
                " must be less than or equal to 1800",
                'behavior.scaleUp.tolerance: Invalid value: "-1":'
                " must be greater than or equal to 0",
            ],
        ),
    ],
)
def test_autoscalers(spec: Object, expected: list[str]) -> None:
    """Counts are told last."""
    errors = refusals(AUTOSCALERS, autoscaler(spec))
    assert [each.removeprefix("spec.") for each in errors] == expected


ONE_TYPE = 'supported values: "ContainerResource", "External", "Object", "Pods", "Resource"'


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (CPU, []),
        (PODS, []),
        (
            {"type": "x"},
            [f'.type: Unsupported value: "x": {ONE_TYPE}'],
        ),
        (
            {},
            [
                ".type: Required value: must specify a metric source type",
                f'.type: Unsupported value: "": {ONE_TYPE}',
            ],
        ),
        (
            {"type": "Pods", "resource": CPU["resource"]},
            [".pods: Required value: must populate information for the given metric source"],
        ),
        (
            {**CPU, **PODS, "type": "Resource"},
            [".pods: Forbidden: must populate the given metric source only"],
        ),
        (
            {
                "type": "Resource",
                "resource": {
                    "target": {"type": "x", "averageUtilization": 0, "averageValue": "-1"}
                },
            },
            [
                ".resource.name: Required value: must specify a resource name",
                '.resource.target.type: Invalid value: "x":'
                " must be either Utilization, Value, or AverageValue",
                '.resource.target.averageValue: Invalid value: "-1": must be positive',
                ".resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
                ".resource.target.averageValue: Forbidden:"
                " may not set both a target raw value and a target utilization",
            ],
        ),
        (
            {
                "type": "ContainerResource",
                "containerResource": {"name": "x", "target": {"type": "Value"}},
            },
            [
                '.containerResource.name: Invalid value: "x":'
                " must be a standard resource type or fully qualified",
                '.containerResource.name: Invalid value: "x":'
                " must be a standard resource for containers",
                ".containerResource.container: Required value: must specify a container",
                ".containerResource.target.averageUtilization: Required value:"
                " must set either a target raw value or a target utilization",
            ],
        ),
        (
            {
                "type": "External",
                "external": {
                    "metric": {"name": "a/b"},
                    "target": {"type": "Value", "value": "1", "averageValue": "1"},
                },
            },
            [
                ".external.metric.name: Invalid value: \"a/b\": may not contain '/'",
                ".external.target.value: Forbidden:"
                " may not set both a target value for metric and a per-pod target",
            ],
        ),
        (
            {"type": "External", "external": {"metric": {}, "target": {}}},
            [
                ".external.metric.name: Required value: must specify a metric name",
                ".external.target.type: Required value: must specify a metric target type",
                '.external.target.type: Invalid value: "":'
                " must be either Utilization, Value, or AverageValue",
                ".external.target.averageValue: Required value:"
                " must set either a target value for metric or a per-pod target",
            ],
        ),
        (
            {
                "type": "Object",
                "object": {
                    "describedObject": {"kind": "a", "name": "b", "apiVersion": "v1"},
                    "metric": {"name": "m"},
                    "target": {"type": "Value"},
                },
            },
            [
                ".object.target.averageValue: Required value:"
                " must set either a target value or averageValue"
            ],
        ),
        (
            {
                "type": "Pods",
                "pods": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "1"}},
            },
            [
                ".pods.target.averageValue: Required value:"
                " must specify a positive target averageValue"
            ],
        ),
    ],
)
def test_metrics(metric: Object, expected: list[str]) -> None:
    """Repeated errors are told once by the verbs."""
    errors = dict.fromkeys(refusals(AUTOSCALERS, autoscaler({"metrics": [metric]})))
    assert [each.removeprefix("spec.metrics[0]") for each in errors] == expected


def test_stored_references_with_errors() -> None:
    """They stay as long as their kind and version do."""
    old = autoscaler({"scaleTargetRef": {"apiVersion": "v1"}})
    assert change_refusals(AUTOSCALERS, patched(old, {"spec": {"maxReplicas": 4}}), old) == []
    other = patched(old, {"spec": {"scaleTargetRef": {"kind": "x"}}})
    assert len(change_refusals(AUTOSCALERS, other, old)) == 1
    described = {"kind": "a", "name": "b", "apiVersion": "a/b/c"}
    source = {
        "describedObject": described,
        "metric": {"name": "m"},
        "target": {"type": "Value", "value": "1"},
    }
    old = autoscaler({"metrics": [{"type": "Object", "object": source}]})
    assert change_refusals(AUTOSCALERS, patched(old, {"spec": {"maxReplicas": 4}}), old) == []
    assert len(refusals(AUTOSCALERS, old)) == 1


def test_status_of_autoscalers() -> None:
    status = {
        "conditions": [{"type": "A", "observedGeneration": -1}],
        "currentReplicas": -1,
        "desiredReplicas": -1,
    }
    errors = change_refusals(
        AUTOSCALERS.subresources["status"], autoscaler(status=status), autoscaler()
    )
    assert [each.partition(":")[0] for each in errors] == [
        "status.conditions[0].observedGeneration",
        "status.currentReplicas",
        "status.desiredReplicas",
    ]


def v1(annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """Return an autoscaler of autoscaling/v1."""
    metadata = {"name": "h", **({"annotations": annotations} if annotations else {})}
    obj = {"apiVersion": "autoscaling/v1", "metadata": metadata, "spec": {"maxReplicas": 3, **spec}}
    default_v1(obj)
    return obj


def test_cpu_is_a_field_of_v1() -> None:
    assert to_v2(v1())["spec"]["metrics"] == [CPU]
    spec = to_v2(v1(targetCPUUtilizationPercentage=5))["spec"]
    assert spec["metrics"][0]["resource"]["target"]["averageUtilization"] == 5
    assert spec["minReplicas"] == 1
    found = to_v1(autoscaler({"metrics": [CPU]}))
    assert found["spec"]["targetCPUUtilizationPercentage"] == 80
    assert "annotations" not in found["metadata"]
    assert found["apiVersion"] == "autoscaling/v1"


def test_the_rest_is_in_annotations_of_v1() -> None:
    """As JSON, the behavior with Go's names."""
    behavior = {
        "scaleUp": {
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
        }
    }
    conditions = [{"type": "A", "status": "True", "lastTransitionTime": NOW}]
    used = {"averageUtilization": 7, "averageValue": "70m"}
    status = {
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": used}}],
        "conditions": conditions,
        "currentReplicas": 2,
        "desiredReplicas": 2,
    }
    obj = autoscaler({"metrics": [PODS, CPU], "behavior": behavior}, status=status)
    found = to_v1(obj)
    assert found["status"]["currentCPUUtilizationPercentage"] == 7
    annotations = found["metadata"]["annotations"]
    assert annotations[f"{PREFIX}metrics"] == (
        '[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"5"}}]'
    )
    assert annotations[f"{PREFIX}behavior"] == (
        '{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max",'
        '"Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null},'
        '"ScaleDown":null}'
    )
    assert annotations[f"{PREFIX}current-metrics"] == (
        '[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":7,'
        '"currentAverageValue":"70m"}}]'
    )
    assert json.loads(annotations[f"{PREFIX}conditions"]) == conditions
    back = to_v2(found)
    assert back["spec"]["metrics"] == [PODS, CPU]
    assert back["spec"]["behavior"] == behavior
    assert back["status"]["conditions"] == conditions
    assert back["status"]["currentMetrics"] == status["currentMetrics"]
    assert "annotations" not in back["metadata"]
    assert "annotations" not in obj["metadata"]


def test_unreadable_annotations_are_dropped() -> None:
    texts = {
        "metrics": "x",
        "behavior": '{"ScaleUp": 1}',
        "conditions": '[{"type": 1}]',
        "current-metrics": "{}",
    }
    found = to_v2(v1({f"{PREFIX}{name}": text for name, text in texts.items()} | {"a": "b"}))
    assert found["spec"]["metrics"] == [CPU]
    assert "behavior" not in found["spec"]
    assert found["status"] == {}
    assert found["metadata"]["annotations"] == {"a": "b"}


def test_status_of_v1() -> None:
    """Utilization alone is a metric of its own."""
    obj = {**v1(), "status": {"currentCPUUtilizationPercentage": 5, "currentReplicas": 1}}
    status = to_v2(obj)["status"]
    assert status["currentMetrics"][0]["resource"] == {
        "name": "cpu",
        "current": {"averageUtilization": 5},
    }


def test_names_of_go_in_any_case() -> None:
    found = to_v2(v1({f"{PREFIX}behavior": '{"scaleUP": {"selectpolicy": "Min", "other": 1}}'}))
    assert found["spec"]["behavior"] == {"scaleUp": {"selectPolicy": "Min"}}


AMOUNT = st.sampled_from(["1", "5m", "2Gi"])
NAME = st.sampled_from(["a", "b"])


def targets(name: str, amounts: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    """Return targets with one value, of the type that belongs to it."""
    types = {"value": "Value", "averageValue": "AverageValue", "averageUtilization": "Utilization"}
    return st.builds(lambda value: {"type": types[name], name: value}, amounts)


RAW, SHARE = targets("averageValue", AMOUNT), targets("averageUtilization", st.integers(1, 99))
VALUE = targets("value", AMOUNT)
METRICS = st.one_of(
    st.builds(
        lambda name, target: {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}},
        NAME,
        RAW,
    ),
    st.builds(
        lambda name, target: {"type": "Resource", "resource": {"name": name, "target": target}},
        NAME,
        RAW | SHARE,
    ),
    st.builds(
        lambda name, target: {
            "type": "ContainerResource",
            "containerResource": {"name": name, "container": "c", "target": target},
        },
        NAME,
        RAW | SHARE,
    ),
    st.builds(
        lambda name, target: {
            "type": "External",
            "external": {"metric": {"name": name}, "target": target},
        },
        NAME,
        RAW | VALUE,
    ),
    st.builds(
        lambda name, target: {
            "type": "Object",
            "object": {
                "describedObject": {"kind": "k", "name": name, "apiVersion": "a/v1"},
                "metric": {"name": name, "selector": {"matchLabels": {"a": "b"}}},
                "target": target,
            },
        },
        NAME,
        RAW | VALUE,
    ),
)


@pytest.mark.slow
@given(st.lists(METRICS, min_size=1, max_size=4))
def test_metrics_come_back(metrics: list[Object]) -> None:
    """Through v1, whatever they are."""
    type_ = load().types["io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler"]
    obj = normalize(autoscaler({"metrics": metrics}), type_)
    back = normalize(to_v2(to_v1(obj)), type_)
    assert back["spec"]["metrics"] == obj["spec"]["metrics"]


def budget(spec: Object, metadata: Object | None = None, status: Object | None = None) -> Object:
    """Return a PodDisruptionBudget."""
    obj = {"metadata": {"name": "b", "namespace": "ns", **(metadata or {})}, "spec": spec}
    return obj if status is None else {**obj, "status": status}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"minAvailable": "50%", "selector": {}}, []),
        (
            {"minAvailable": 1, "maxUnavailable": 1},
            [
                'spec: Invalid value: {"MinAvailable":1,"Selector":null,"MaxUnavailable":1,'
                '"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both'
                " set"
            ],
        ),
        (
            {"maxUnavailable": "101%"},
            ['spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%'],
        ),
        (
            {"minAvailable": -1},
            ["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            {"unhealthyPodEvictionPolicy": "x"},
            [
                'spec.unhealthyPodEvictionPolicy: Unsupported value: "x":'
                ' supported values: "AlwaysAllow", "IfHealthyBudget"'
            ],
        ),
    ],
)
def test_budgets(spec: Object, expected: list[str]) -> None:
    assert refusals(DISRUPTION_BUDGETS, budget(spec)) == expected


def test_a_label_of_a_removed_version() -> None:
    """It stands alone, or is dropped."""
    old_empty = {
        "key": "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match",
        "operator": "Exists",
    }
    other = {"key": "a", "operator": "Exists"}
    none = {"selector": {"matchExpressions": [old_empty]}}
    assert prepared_object(DISRUPTION_BUDGETS, budget(none))["spec"] == none
    both = {"selector": {"matchExpressions": [old_empty, other]}}
    assert prepared_object(DISRUPTION_BUDGETS, budget(both))["spec"]["selector"] == {
        "matchExpressions": [other]
    }
    labels = {"matchLabels": {"a": "b"}, "matchExpressions": [old_empty]}
    found = prepared_object(DISRUPTION_BUDGETS, budget({"selector": labels}))
    assert found["spec"]["selector"] == {"matchLabels": {"a": "b"}}
    assert changed(DISRUPTION_BUDGETS, budget(both), budget(both))["spec"] == both


def test_changes_of_budgets() -> None:
    old = prepared_object(DISRUPTION_BUDGETS, budget({"minAvailable": 1}))
    new = patched(old, {"spec": {"minAvailable": 2}})
    found = changed(DISRUPTION_BUDGETS, {**new, "status": {"expectedPods": 1}}, old)
    assert (found["metadata"]["generation"], found["status"]) == (2, {})
    expression = {"key": "a", "operator": "In", "values": ["-"]}
    odd = budget({"selector": {"matchExpressions": [expression]}})
    assert change_refusals(DISRUPTION_BUDGETS, odd, odd) == []
    assert len(refusals(DISRUPTION_BUDGETS, odd)) == 1


def test_status_of_budgets() -> None:
    status = {
        "disruptionsAllowed": -1,
        "expectedPods": -1,
        "conditions": [{"type": "A", "status": "x", "reason": "R", "lastTransitionTime": NOW}],
    }
    new = budget({}, status=status)
    errors = change_refusals(DISRUPTION_BUDGETS.subresources["status"], new, budget({}))
    assert [each.partition(":")[0] for each in errors] == [
        "status.conditions[0].status",
        "status.disruptionsAllowed",
        "status.expectedPods",
    ]


def test_the_condition_of_budgets() -> None:
    """Its time changes with its value; others stay."""
    other = {"type": "A"}
    status: Object = {"disruptionsAllowed": 1, "conditions": [other], "observedGeneration": 3}
    set_disruption_allowed(status, "2026-01-01T00:00:00Z")
    assert status["conditions"][0] is other
    assert status["conditions"][1]["reason"] == "SufficientPods"
    assert status["conditions"][1]["observedGeneration"] == 3
    set_disruption_allowed(status, NOW)
    assert status["conditions"][1]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    status["disruptionsAllowed"] = 0
    set_disruption_allowed(status, NOW)
    condition = status["conditions"][1]
    assert (condition["status"], condition["lastTransitionTime"]) == ("False", NOW)
