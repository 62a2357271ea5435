"""The roles and bindings that every cluster has."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.authorization.rbac.bootstrap import (
    CREATE,
    RECREATE,
    UPDATE,
    Step,
    default_objects,
    reconcile,
)
from kvstack.apiserver.policy.authorization.rbac.grants import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
)
from tests.apiserver.policy.authorization.roles import group, rule, user

AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"


def _default(name: str, kind: str) -> Object:
    for _, obj in default_objects():
        if obj["metadata"]["name"] == name and obj["kind"] == kind:
            return obj
    raise AssertionError(name)


def _stored(obj: Object, **changes: Any) -> Object:
    metadata = {**obj["metadata"], "uid": "u", "resourceVersion": "7"}
    return {**obj, "metadata": metadata, **changes}


def test_what_there_is() -> None:
    objects = default_objects()
    resources = [resource for resource, _ in objects]
    assert [resources.count(each) for each in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)] == [73, 54]
    assert [resources.count(each) for each in (ROLES, ROLE_BINDINGS)] == [7, 7]
    assert resources.index(CLUSTER_ROLE_BINDINGS) == 73  # roles come first
    for resource, obj in objects:
        metadata = obj["metadata"]
        assert metadata["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        assert metadata["annotations"] == {AUTO_UPDATE: "true"}
        assert ("namespace" in metadata) is (resource in {ROLES, ROLE_BINDINGS})


@pytest.mark.parametrize("position", range(141))
def test_what_is_as_expected_stays(position: int) -> None:
    _, obj = default_objects()[position]
    assert reconcile(obj, None) == Step(CREATE, obj)
    assert reconcile(obj, _stored(obj)) is None


def test_missing_rules_are_added_and_others_kept() -> None:
    expected = _default("system:kube-dns", "ClusterRole")
    extra = rule("get", "core", "pods")
    step = reconcile(expected, _stored(expected, rules=[extra]))
    assert step is not None
    assert step.action == UPDATE
    assert step.object["rules"][0] == extra
    assert len(step.object["rules"]) > 1
    assert step.object["metadata"]["resourceVersion"] == "7"
    assert reconcile(expected, step.object) is None


def test_rules_are_compared_by_what_they_cover() -> None:
    expected = _default("system:kube-dns", "ClusterRole")
    assert reconcile(expected, _stored(expected, rules=[rule("*", "*", "*")])) is None


def test_labels_and_annotations_that_exist_win() -> None:
    expected = _default("view", "ClusterRole")
    existing = _stored(expected)
    existing["metadata"]["labels"] = {"kubernetes.io/bootstrapping": "mine", "a": "b"}
    step = reconcile(expected, existing)
    assert step is not None
    assert step.object["metadata"]["labels"] == {
        **expected["metadata"]["labels"],
        "kubernetes.io/bootstrapping": "mine",
        "a": "b",
    }


def test_who_asked_to_be_left_alone_is() -> None:
    expected = _default("view", "ClusterRole")
    existing = _stored(expected, aggregationRule=None)
    existing["metadata"]["annotations"] = {AUTO_UPDATE: "false"}
    assert reconcile(expected, existing) is None


def test_selectors_of_aggregation() -> None:
    expected = _default("view", "ClusterRole")
    own = {"matchLabels": {"mine": "true"}}
    step = reconcile(expected, _stored(expected, aggregationRule={"clusterRoleSelectors": [own]}))
    assert step is not None
    assert step.object["aggregationRule"]["clusterRoleSelectors"] == [
        own,
        *expected["aggregationRule"]["clusterRoleSelectors"],
    ]
    plain = _default("system:kube-dns", "ClusterRole")
    step = reconcile(plain, _stored(plain, aggregationRule={"clusterRoleSelectors": [own]}))
    assert step is not None
    assert "aggregationRule" not in step.object


def test_missing_subjects_are_added() -> None:
    expected = _default("cluster-admin", "ClusterRoleBinding")
    step = reconcile(expected, _stored(expected, subjects=[user("me")]))
    assert step is not None
    assert step.object["subjects"] == [user("me"), group("system:masters")]
    assert reconcile(expected, step.object) is None


def test_a_binding_to_another_role_is_made_anew() -> None:
    expected = _default("cluster-admin", "ClusterRoleBinding")
    existing = _stored(expected, roleRef={**expected["roleRef"], "name": "view"})
    assert reconcile(expected, existing) == Step(RECREATE, expected)
