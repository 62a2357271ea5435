"""Pods and claims of ordinals, and who owns the claims."""

import json
from typing import Any

import pytest

from kvstack.agents.controllers.workloads import history
from kvstack.agents.controllers.workloads.stateful_sets import claims, pods
from kvstack.apimachinery.objects.json_object import Object


def _set(when_deleted: str = "Retain", when_scaled: str = "Retain", **spec: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web", "namespace": "default", "uid": "set"},
        "spec": {
            "replicas": 2,
            "serviceName": "web",
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"x": 1}}],
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": when_deleted,
                "whenScaled": when_scaled,
            },
            **spec,
        },
    }


def _pod(ordinal: int, uid: str = "pod") -> Object:
    meta = {"name": f"web-{ordinal}", "namespace": "default", "uid": uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}}


def _reference(kind: str, name: str, uid: str, *, is_controller: bool = True) -> Object:
    version = "v1" if kind == "Pod" else "apps/v1"
    return {
        "apiVersion": version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": is_controller,
        "blockOwnerDeletion": True,
    }


SET = _reference("StatefulSet", "web", "set")


def _claim(*references: Object) -> Object:
    return {"metadata": {"name": "data-web-0", "ownerReferences": list(references)}}


@pytest.mark.parametrize(
    ("policy", "ordinal", "owners"),
    [
        (("Retain", "Retain"), 0, []),
        (("Retain", "Retain"), 5, []),
        (("Delete", "Retain"), 0, ["set"]),
        (("Delete", "Retain"), 5, ["set"]),
        (("Retain", "Delete"), 0, []),
        (("Retain", "Delete"), 5, ["pod"]),
        (("Delete", "Delete"), 0, ["set"]),
        (("Delete", "Delete"), 5, ["pod"]),
    ],
)
def test_owners_of_claims(policy: tuple[str, str], ordinal: int, owners: list[str]) -> None:
    stateful_set, pod = _set(*policy), _pod(ordinal)
    before = _claim(_reference("Pod", f"web-{ordinal}", "pod"), SET)
    found = claims.desired_references(before, stateful_set, pod)
    assert found is not None
    assert [each["uid"] for each in found] == owners
    after = {"metadata": {"ownerReferences": found}}
    assert claims.desired_references(after, stateful_set, pod) is None


def test_claims_of_others_are_left_alone() -> None:
    stale = _claim(_reference("Pod", "web-0", "an earlier pod"))
    assert claims.desired_references(stale, _set("Delete", "Delete"), _pod(0)) is None
    assert claims.blocks_pod(_set("Retain", "Delete"), stale, _pod(0))
    assert not claims.blocks_pod(_set("Delete", "Retain"), stale, _pod(0))
    foreign = _reference("Other", "x", "x")
    assert claims.has_other_controller(_claim(foreign), _set("Delete"), _pod(0))
    assert not claims.has_other_controller(_claim(foreign), _set(), _pod(0))
    assert claims.desired_references(_claim(foreign), _set("Delete"), _pod(0)) is None
    both = claims.desired_references(_claim(foreign, SET), _set("Delete"), _pod(0))
    assert both == [foreign]


def test_a_reference_becomes_the_controller() -> None:
    weak = _reference("StatefulSet", "web", "set", is_controller=False)
    assert claims.desired_references(_claim(weak), _set("Delete"), _pod(0)) == [SET]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web-0", ("web", 0)),
        ("my-web-12", ("my-web", 12)),
        ("web", ("", -1)),
        ("web-x", ("", -1)),
        ("web-99999999999", ("web", -1)),
    ],
)
def test_ordinals_of_names(name: str, expected: tuple[str, int]) -> None:
    assert pods.parent_and_ordinal({"metadata": {"name": name}}) == expected


def test_a_pod_has_its_ordinal_everywhere() -> None:
    stateful_set = _set()
    pod = pods.new_pod(stateful_set, stateful_set["spec"]["template"], "web-abc", 1)
    assert pod["metadata"]["name"] == "web-1"
    assert pod["metadata"]["labels"] == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-1",
        "apps.kubernetes.io/pod-index": "1",
        "controller-revision-hash": "web-abc",
    }
    assert pod["spec"]["hostname"] == "web-1"
    assert pod["spec"]["subdomain"] == "web"
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}
    assert pod["spec"]["volumes"] == [volume]
    assert pods.has_identity(pod)
    assert pods.has_storage(stateful_set, pod)
    assert not pods.has_storage(stateful_set, _pod(1))
    claim = pods.new_claims(stateful_set, 1)["data"]
    assert claim["metadata"]["labels"] == {"app": "web"}
    assert claim["spec"] == {"x": 1}


def test_the_range_of_ordinals() -> None:
    stateful_set = _set(ordinals={"start": 5})
    assert [n for n in range(10) if pods.is_in_range(stateful_set, n)] == [5, 6]


def test_a_revision_keeps_its_template_sorted() -> None:
    """The API server sorts it in whatever a patch makes, and it may not change."""
    data = history.data_of({"spec": {"b": 1, "a": {"d": 1, "c": 2}}, "metadata": {}})
    text = (
        '{"spec":{"template":{"$patch":"replace","metadata":{},"spec":{"a":{"c":2,"d":1},"b":1}}}}'
    )
    assert json.dumps(data, separators=(",", ":")) == text


def test_revisions_are_named_by_their_bytes() -> None:
    data = history.data_of({"metadata": {"labels": {"a": "<&>"}}})
    # Sorted keys, no blanks, and these three escaped: so upstream hashes them.
    assert history.data_hash(data, 0) != history.data_hash(data, 1)
    again = history.data_of({"metadata": {"labels": {"a": "<&>"}}})
    assert history.data_hash(again, 0) == history.data_hash(data, 0)
    assert history.template_of({"data": data}) == {"metadata": {"labels": {"a": "<&>"}}}


def test_the_oldest_unused_revisions_go() -> None:
    revisions = [
        {"metadata": {"name": f"r{n}", "namespace": "default"}, "revision": n} for n in (3, 1, 2, 4)
    ]
    found = history.surplus(revisions, {"r1", "r4"}, 1)
    assert [each.name for each in found] == ["r2"]
    assert history.next_number(revisions) == 5
