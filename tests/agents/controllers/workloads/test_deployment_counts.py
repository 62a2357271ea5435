"""How many replicas the ReplicaSets of a Deployment may have."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.agents.controllers.workloads.deployments import counts, revisions
from kvstack.apimachinery.objects.json_object import Object


def _deployment(replicas: int, surge: int | str = "25%", unavailable: int | str = "25%") -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
            },
        },
    }


def _set(name: str, replicas: int, most: int | None = None, **annotations: Any) -> Object:
    if most is not None:
        annotations[counts.MAX_REPLICAS] = str(most)
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": f"2026-11-22T10:00:0{len(name)}Z",
            "annotations": annotations,
        },
        "spec": {"replicas": replicas},
    }


def _annotations(revision: str, history: str = "") -> dict[str, Any]:
    """Return the annotations of a set that has been of a revision."""
    older = {revisions.REVISION_HISTORY: history} if history else {}
    return {revisions.REVISION: revision, **older}


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (10, "25%", "25%", (10, 3, 2)),
        (10, 1, 0, (10, 1, 0)),
        (1, "25%", "25%", (1, 1, 0)),
        (3, 0, "25%", (3, 0, 1)),  # both come to 0: one may be missing, else nothing moves
        (2, 0, 5, (2, 0, 2)),
        (0, "25%", "25%", (0, 0, 0)),
    ],
)
def test_bounds(
    replicas: int, surge: int | str, unavailable: int | str, expected: tuple[int, int, int]
) -> None:
    assert counts.bounds(_deployment(replicas, surge, unavailable)) == expected


def test_recreate_has_no_room() -> None:
    deployment = _deployment(4)
    deployment["spec"]["strategy"] = {"type": "Recreate"}
    assert counts.bounds(deployment) == (4, 0, 0)
    assert counts.new_size(deployment, [_set("a", 4)], 0) == 4


def test_the_new_set_grows_as_far_as_there_is_room() -> None:
    deployment = _deployment(10)
    assert counts.new_size(deployment, [_set("a", 10)], 0) == 3
    assert counts.new_size(deployment, [_set("a", 13)], 0) == 0
    assert counts.new_size(deployment, [_set("a", 2), _set("b", 9)], 9) == 10


def test_a_change_of_size_is_spread() -> None:
    deployment = _deployment(15, surge=3)
    old, new = _set("a", 8, 13), _set("ab", 5, 13)
    sizes = {
        each["metadata"]["name"]: size for each, size in counts.proportional(deployment, [old, new])
    }
    assert sizes == {"a": 11, "ab": 7}


def test_all_shrink_to_nothing() -> None:
    found = counts.proportional(_deployment(0), [_set("a", 8, 13), _set("ab", 5, 13)])
    assert [size for _, size in found] == [0, 0]


@given(
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60)), min_size=1, max_size=5),
)
def test_what_is_spread_is_never_too_much(replicas: int, sizes: list[tuple[int, int]]) -> None:
    deployment = _deployment(replicas)
    sets = [_set("a" * (n + 1), size, most) for n, (size, most) in enumerate(sizes)]
    found = counts.proportional(deployment, sets)
    assert all(size >= 0 for _, size in found)
    limits = counts.bounds(deployment)
    if replicas and counts.total_size(sets) <= limits.most:
        assert sum(size for _, size in found) == limits.most


def test_the_new_set_is_the_oldest_with_the_template() -> None:
    deployment = _deployment(1)
    template = deployment["spec"]["template"]
    labelled = {
        **template,
        "metadata": {"labels": {"app": "web", revisions.HASH_LABEL: "x"}},
    }
    other = {**template, "spec": {"containers": [{"name": "c"}]}}
    sets = [_set("abc", 1), _set("ab", 1), _set("a", 1)]
    for each, made in zip(sets, (labelled, labelled, other), strict=True):
        each["spec"]["template"] = made
    new, old = revisions.split(deployment, sets)
    assert new is sets[1]
    assert old == [sets[2], sets[0]]


def test_a_revision_that_comes_back_remembers() -> None:
    deployment = _deployment(1)
    deployment["metadata"]["annotations"] = {
        "note": "kept",
        revisions.REVISION: "7",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    fresh = revisions.new_set_annotations(deployment, _set("a", 1), 3)
    assert fresh == {"note": "kept", revisions.REVISION: "3"}
    back = _set("a", 1, **_annotations("1", "0"))
    changed = revisions.new_set_annotations(deployment, back, 3)
    assert changed is not None
    assert changed[revisions.REVISION_HISTORY] == "0,1"
    newer = _set("a", 1, note="kept", **_annotations("9"))
    assert revisions.new_set_annotations(deployment, newer, 3) is None


def test_a_history_loses_its_oldest() -> None:
    long = ",".join(str(each) for each in range(1000, 1400))
    back = _set("a", 1, **_annotations("1400", long))
    changed = revisions.new_set_annotations(_deployment(1), back, 1401)
    assert changed is not None
    history = changed[revisions.REVISION_HISTORY]
    assert history.endswith(",1399,1400")
    assert 1990 < len(history) <= 2000
