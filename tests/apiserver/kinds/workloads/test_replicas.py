"""Deployments, ReplicaSets, ReplicationControllers, PodTemplates and their Scales."""

from typing import TYPE_CHECKING

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.decode import DecodeError
from kvstack.apiserver.kinds.strategy import Strategy
from kvstack.apiserver.kinds.workloads.counts import check_count, check_share, is_zero
from kvstack.apiserver.kinds.workloads.deployments import DEPLOYMENTS, ROLLBACK_TO
from kvstack.apiserver.kinds.workloads.pod_templates import POD_TEMPLATES
from kvstack.apiserver.kinds.workloads.replica_sets import REPLICA_SETS
from kvstack.apiserver.kinds.workloads.replication_controllers import REPLICATION_CONTROLLERS
from kvstack.apiserver.kinds.workloads.scales import scale_of, set_replicas
from tests.apiserver.kinds.hooks import (
    change_refusals,
    changed,
    patched,
    prepared_object,
    refusals,
    warnings_of,
    warnings_of_change,
)
from tests.apiserver.kinds.workloads.examples import TEMPLATE, workload

if TYPE_CHECKING:
    from kvstack.apimachinery.objects.field_errors import FieldError

PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or"
    " '93%', regex used for validation is '[0-9]+%')"
)


@pytest.mark.parametrize(
    ("value", "count", "share", "zero"),
    [
        (0, [], [], True),
        (3, [], [], False),
        (-1, ["p: Invalid value: -1: must be greater than or equal to 0"], [], False),
        ("0%", [], [], True),
        ("100%", [], [], False),
        ("101%", [], ['p: Invalid value: "101%": must not be greater than 100%'], False),
        ("00100%", [], [], False),
        (
            "9" * 5000 + "%",
            [],
            [f'p: Invalid value: "{"9" * 5000}%": must not be greater than 100%'],
            False,
        ),
        ("0" * 5000 + "%", [], [], True),
        ("5", [f'p: Invalid value: "5": {PERCENT}'], [], False),
        ("x", [f'p: Invalid value: "x": {PERCENT}'], [], True),
    ],
)
def test_counts(value: int | str, count: list[str], share: list[str], zero: bool) -> None:  # noqa: FBT001
    counts: list[FieldError] = []
    shares: list[FieldError] = []
    check_count(counts, "p", value)
    check_share(shares, "p", value)
    assert [str(each) for each in counts] == count
    assert [str(each) for each in shares] == share
    assert is_zero(value) is zero


def test_new_deployments() -> None:
    found = prepared_object(DEPLOYMENTS, workload(status={"replicas": 3}))
    spec = found["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"]) == (1, 10)
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert (found["status"], found["metadata"]["generation"]) == ({}, 1)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        (
            {"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}}},
            [
                "strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when"
                " `maxSurge` is 0"
            ],
        ),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {}}},
            [
                "strategy.rollingUpdate: Forbidden:"
                " may not be specified when strategy `type` is 'Recreate'"
            ],
        ),
        (
            {"strategy": {"type": "x"}},
            [
                'strategy: Unsupported value: {"Type":"x","RollingUpdate":null}:'
                ' supported values: "Recreate", "RollingUpdate"'
            ],
        ),
        (
            {"progressDeadlineSeconds": 5, "minReadySeconds": 5},
            ["progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"],
        ),
        (
            {"selector": {"matchLabels": None}},
            ["selector: Invalid value: {}: empty selector is invalid for deployment"],
        ),
        (
            {"selector": None},
            [
                "selector: Required value",
                'template.metadata.labels: Invalid value: {"app":"x"}:'
                " `selector` does not match template `labels`",
            ],
        ),
        (
            {"template": {"spec": {"restartPolicy": "Never", "activeDeadlineSeconds": 1}}},
            [
                'template.spec.restartPolicy: Unsupported value: "Never":'
                ' supported values: "Always"',
                "template.spec.activeDeadlineSeconds: Forbidden:"
                " activeDeadlineSeconds in ReplicaSet is not Supported",
            ],
        ),
    ],
)
def test_deployments(spec: Object, expected: list[str]) -> None:
    errors = refusals(DEPLOYMENTS, workload(spec))
    assert [each.removeprefix("spec.") for each in errors] == expected


def test_selectors_with_errors() -> None:
    """They are told, and that nothing can be said of the labels."""
    selector = {"matchExpressions": [{"key": "a", "operator": "x"}]}
    errors = refusals(REPLICA_SETS, workload({"selector": {**selector, "matchLabels": None}}))
    assert errors[-1] == (
        'spec.selector: Invalid value: {"matchExpressions":[{"key":"a","operator":"x"}]}:'
        " invalid label selector"
    )
    assert len(errors) == 2


def test_generations() -> None:
    """Raised by the spec, and of Deployments by annotations."""
    old = prepared_object(DEPLOYMENTS, workload())
    annotated = patched(old, {"metadata": {"annotations": {"a": "b"}}})
    labelled = patched(old, {"metadata": {"labels": {"a": "b"}}})
    scaled = patched(old, {"spec": {"replicas": 2}})
    for new, generation in ((annotated, 2), (labelled, 1), (scaled, 2)):
        assert changed(DEPLOYMENTS, new, old)["metadata"]["generation"] == generation
    old = prepared_object(REPLICA_SETS, workload())
    annotated = patched(old, {"metadata": {"annotations": {"a": "b"}}})
    assert changed(REPLICA_SETS, annotated, old)["metadata"]["generation"] == 1


def test_status_of_deployments() -> None:
    """It cannot change labels, nor the counters to nonsense."""
    status = DEPLOYMENTS.subresources["status"]
    old = workload(metadata={"labels": {"a": "b"}}, status={"collisionCount": 2})
    new = workload(
        {"replicas": 5},
        {"labels": {"c": "d"}, "annotations": {"e": "f"}},
        {"replicas": 1, "readyReplicas": 2, "availableReplicas": 3, "collisionCount": 1},
    )
    found = changed(status, new, old)
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["metadata"]["annotations"] == {"e": "f"}
    assert found["spec"]["replicas"] == 1
    assert change_refusals(status, new, old) == [
        "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        "status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas",
        "status.availableReplicas: Invalid value: 3: cannot be greater than readyReplicas",
        "status.collisionCount: Invalid value: 1: cannot be decremented",
    ]


def test_rollbacks() -> None:
    """What was a field once must still be a number; only a write of the object changes it."""
    annotated = workload(metadata={"annotations": {ROLLBACK_TO: "+3"}})
    assert prepared_object(DEPLOYMENTS, annotated)["metadata"]["annotations"] == {ROLLBACK_TO: "3"}
    empty = workload(metadata={"annotations": {ROLLBACK_TO: ""}})
    assert prepared_object(DEPLOYMENTS, empty)["metadata"]["annotations"] == {}
    with pytest.raises(DecodeError, match=r"failed to parse annotation\[.*\]=x as int64: strconv"):
        prepared_object(DEPLOYMENTS, workload(metadata={"annotations": {ROLLBACK_TO: "x"}}))
    negative = workload(metadata={"annotations": {ROLLBACK_TO: "-1"}})
    assert refusals(DEPLOYMENTS, negative) == [
        "spec.rollback.version: Invalid value: -1: must be greater than or equal to 0"
    ]
    status = DEPLOYMENTS.subresources["status"]
    assert "annotations" not in changed(status, annotated, workload())["metadata"]
    assert changed(status, workload(), annotated)["metadata"]["annotations"] == {ROLLBACK_TO: "3"}


@pytest.mark.parametrize("strategy", [DEPLOYMENTS, REPLICA_SETS])
def test_selectors_stay(strategy: Strategy) -> None:
    new = workload({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}})
    new["spec"]["selector"].pop("matchLabels")
    assert change_refusals(strategy, new, workload()) == [
        'spec.selector: Invalid value: {"matchExpressions":[{"key":"app","operator":"Exists"}]}:'
        " field is immutable"
    ]


def test_warnings_follow_the_generation() -> None:
    """The template is only looked at again when something has changed."""
    template = {"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}}
    old = workload({"template": template})
    assert len(warnings_of(DEPLOYMENTS, old)) == 1
    assert (
        warnings_of_change(DEPLOYMENTS, patched(old, {"metadata": {"labels": {"a": "b"}}}), old)
        == []
    )
    assert len(warnings_of_change(DEPLOYMENTS, patched(old, {"spec": {"replicas": 2}}), old)) == 1
    (warning,) = warnings_of(REPLICA_SETS, workload(metadata={"name": "a.b"}))
    assert warning.startswith("metadata.name: this is used in Pod names and hostnames")


def controller(spec: Object | None = None, metadata: Object | None = None) -> Object:
    """Return a ReplicationController."""
    base = {"metadata": {"name": "r", "namespace": "ns"}, "spec": {"template": TEMPLATE}}
    return patched(base, {"spec": spec or {}, "metadata": metadata or {}})


def test_new_controllers() -> None:
    """Selector and labels come from the template."""
    found = prepared_object(REPLICATION_CONTROLLERS, controller())
    assert found["spec"]["selector"] == {"app": "x"}
    assert found["metadata"]["labels"] == {"app": "x"}
    assert found["spec"]["replicas"] == 1
    assert "minReadySeconds" not in found["spec"]  # 0 is not written


@pytest.mark.parametrize(
    ("spec", "metadata", "expected"),
    [
        ({}, {}, []),
        (
            {"template": None},
            {},
            ["spec.selector: Required value", "spec.template: Required value"],
        ),
        (
            {"replicas": -1, "minReadySeconds": -1, "selector": {"app": "y"}},
            {},
            [
                'spec.template.metadata.labels: Invalid value: {"app":"x"}:'
                " `selector` does not match template `labels`",
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            {},
            {"name": "a" * 254},
            [f'metadata.name: Invalid value: "{"a" * 254}": must be no more than 253 bytes'],
        ),
    ],
)
def test_controllers(spec: Object, metadata: Object, expected: list[str]) -> None:
    """Counts and the name are told last."""
    assert refusals(REPLICATION_CONTROLLERS, controller(spec, metadata)) == expected


def test_selectors_of_controllers_may_change() -> None:
    """Unless a removed version had said more with them."""
    labels = {"template": {"metadata": {"labels": {"app": "y"}}}, "selector": {"app": "y"}}
    old, new = controller({"selector": {"app": "x"}}), controller(labels)
    assert change_refusals(REPLICATION_CONTROLLERS, new, old) == []
    lost = {
        "non-convertible.kubernetes.io/spec.selector": "x",
        "non-convertible.kubernetes.io/other": "y",
    }
    old = controller({"selector": {"app": "x"}}, {"annotations": lost})
    assert change_refusals(REPLICATION_CONTROLLERS, new, old) == [
        'other: Not found: "y": unknown non-convertible field',
        'spec.selector: Invalid value: {"app":"y"}: cannot update non-convertible selector',
    ]


def test_warnings_of_controllers() -> None:
    """An update looks at the stored template."""
    template = {"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}}
    old = controller({"template": template})
    new = controller({"replicas": 2})
    assert len(warnings_of_change(REPLICATION_CONTROLLERS, new, old)) == 1
    assert warnings_of_change(REPLICATION_CONTROLLERS, old, new) == []


def test_pod_templates() -> None:
    base = {"metadata": {"name": "t", "namespace": "ns"}, "template": TEMPLATE}
    old = prepared_object(POD_TEMPLATES, base)
    assert old["metadata"]["generation"] == 1
    assert old["template"]["spec"]["restartPolicy"] == "Always"
    assert refusals(POD_TEMPLATES, base) == []
    new = patched(base, {"template": {"spec": {"containers": []}}})
    assert change_refusals(POD_TEMPLATES, new, old) == ["template.spec.containers: Required value"]
    warned = patched(base, {"template": {"spec": {"nodeSelector": {"beta.kubernetes.io/os": "l"}}}})
    assert len(warnings_of_change(POD_TEMPLATES, warned, old)) == 1
    assert (
        warnings_of_change(POD_TEMPLATES, patched(old, {"metadata": {"labels": {"a": "b"}}}), old)
        == []
    )


def test_scales() -> None:
    owner = {
        **workload({"replicas": 3}, {"labels": {"a": "b"}}, {"replicas": 2}),
        "kind": "ReplicaSet",
    }
    assert scale_of(owner) == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {"replicas": 3},
        "status": {"replicas": 2, "selector": "app=x"},
    }
    set_replicas(owner, {"spec": {"replicas": 7}})
    assert owner["spec"]["replicas"] == 7
    set_replicas(owner, {"spec": {}})
    assert scale_of(owner)["spec"] == {}
    with pytest.raises(ApiError, match=r'Scale\.autoscaling "w" is invalid: spec\.replicas'):
        set_replicas(owner, {"spec": {"replicas": -1}})
    old = {**controller({"selector": {"b": "2", "a": "1"}}), "kind": "ReplicationController"}
    assert scale_of(old)["status"]["selector"] == "a=1,b=2"
    owner["spec"]["selector"] = {"matchExpressions": [{"key": "a", "operator": "x"}]}
    with pytest.raises(ApiError) as caught:
        scale_of(owner)
    assert caught.value.code == 400


def test_selectable_fields() -> None:
    assert REPLICA_SETS.selectable is not None
    assert REPLICA_SETS.selectable(workload(status={"replicas": 2})) == {"status.replicas": "2"}
    assert REPLICA_SETS.selectable(workload()) == {"status.replicas": "0"}
