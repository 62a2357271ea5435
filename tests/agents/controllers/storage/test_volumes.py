"""Volumes: which fits, and what becomes of claims and volumes that lose each other."""

from typing import Any

import pytest

from kvstack.agents.client.built_in import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from kvstack.agents.controllers.options import VolumeOptions
from kvstack.agents.controllers.storage.binder import VolumeBinder
from kvstack.agents.controllers.storage.protection import ClaimProtection
from kvstack.agents.controllers.storage.volume_rules import best_match, misfit
from kvstack.agents.reconcile.plan import Action, Get, ListLive, Record, Update
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.plans import Answer, drive, refusal, view_of


def claim(name: str = "c", size: str = "2Gi", **spec: Any) -> Object:
    meta = {"name": name, "namespace": "n", "uid": f"u-{name}", "resourceVersion": "3"}
    asked = {"resources": {"requests": {"storage": size}}, "accessModes": ["ReadWriteOnce"]}
    return {"metadata": meta, "spec": {**asked, **spec}, "status": {"phase": "Pending"}}


def volume(name: str, size: str = "2Gi", phase: str = "Available", **spec: Any) -> Object:
    given = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], **spec}
    meta = {"name": name, "uid": f"u-{name}", "resourceVersion": "4"}
    return {"metadata": meta, "spec": given, "status": {"phase": phase}}


def chosen(volumes: list[Object], *, is_delayed: bool = False, **spec: Any) -> str:
    found = best_match(claim(**spec), volumes, is_delayed=is_delayed)
    return "" if found is None else found["metadata"]["name"]


def test_the_smallest_that_is_large_enough() -> None:
    assert chosen([volume("s", "1Gi"), volume("l", "9Gi"), volume("m", "3Gi")]) == "m"


def test_few_access_modes_before_size() -> None:
    many = volume("many", accessModes=["ReadWriteOnce", "ReadOnlyMany"])
    assert chosen([many, volume("one", "5Gi")]) == "one"


def test_one_that_names_the_claim_wins() -> None:
    own = volume("own", "9Gi", claimRef={"name": "c", "namespace": "n"})
    others = volume("theirs", claimRef={"name": "c", "namespace": "n", "uid": "older"})
    assert chosen([volume("a"), own]) == "own"
    assert chosen([volume("a"), own], is_delayed=True) == "own"
    assert chosen([others]) == ""
    assert chosen([volume("a")], is_delayed=True) == ""


@pytest.mark.parametrize(
    "spec", [{"storageClassName": "x"}, {"volumeMode": "Block"}, {"accessModes": ["ReadWriteMany"]}]
)
def test_what_does_not_fit(spec: Object) -> None:
    assert chosen([volume("a")], **spec) == ""
    assert misfit(volume("a"), claim(**spec))


def world(claims: list[Object], volumes: list[Object], pods: list[Object] | None = None) -> Any:
    objects = {
        PERSISTENT_VOLUME_CLAIMS: claims,
        PERSISTENT_VOLUMES: volumes,
        PODS: pods or [],
        STORAGE_CLASSES: [],
    }
    return view_of(objects, VolumeBinder(VolumeOptions()).indexes)


def written(action: Action) -> Answer:
    return action.obj if isinstance(action, Update) else refusal(404)


def test_binding_in_four_writes() -> None:
    view = world([claim()], [volume("a")])
    asked, _ = drive(VolumeBinder(VolumeOptions()).reconcile("claim/n/c", view, 0.0), written)
    assert [(each.resource, each.subresource) for each in asked if isinstance(each, Update)] == [
        (PERSISTENT_VOLUMES, ""),
        (PERSISTENT_VOLUMES, "status"),
        (PERSISTENT_VOLUME_CLAIMS, ""),
        (PERSISTENT_VOLUME_CLAIMS, "status"),
    ]
    last = asked[-1]
    assert isinstance(last, Update)
    assert last.obj["status"]["phase"] == "Bound"
    assert last.obj["spec"]["volumeName"] == "a"


def test_a_bind_that_broke_off_is_finished() -> None:
    reference = {"name": "c", "namespace": "n", "uid": "u-c"}
    half = volume("a", phase="Bound", claimRef=reference)
    asked, _ = drive(
        VolumeBinder(VolumeOptions()).reconcile("claim/n/c", world([claim()], [half]), 0.0), written
    )
    assert [each.resource for each in asked if isinstance(each, Update)] == [
        PERSISTENT_VOLUME_CLAIMS,
        PERSISTENT_VOLUME_CLAIMS,
    ]


def test_a_lost_volume_is_reported_once() -> None:
    bound = claim(volumeName="a")
    bound["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    bound["status"] = {"phase": "Bound"}
    asked, _ = drive(
        VolumeBinder(VolumeOptions()).reconcile("claim/n/c", world([bound], []), 0.0), written
    )
    assert [each.reason for each in asked if isinstance(each, Record)] == ["ClaimLost"]
    bound["status"] = {"phase": "Lost"}
    assert drive(VolumeBinder(VolumeOptions()).reconcile("claim/n/c", world([bound], []), 0.0)) == (
        [],
        None,
    )


@pytest.mark.parametrize(
    ("policy", "phases"), [("Retain", ["Released"]), ("Delete", ["Released", "Failed"])]
)
def test_a_volume_without_its_claim(policy: str, phases: list[str]) -> None:
    """The server is asked whether the claim is really gone."""
    reference = {"name": "c", "namespace": "n", "uid": "u-c"}
    left = volume("a", phase="Bound", claimRef=reference, persistentVolumeReclaimPolicy=policy)
    asked, _ = drive(
        VolumeBinder(VolumeOptions()).reconcile("volume/a", world([], [left]), 0.0), written
    )
    assert isinstance(asked[0], Get)
    told = [each.obj["status"]["phase"] for each in asked if isinstance(each, Update)]
    assert told == phases


# Protection.


def user(*, node: str = "n1") -> Object:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    meta = {"name": "p", "namespace": "n", "uid": "u-p"}
    return {"metadata": meta, "spec": {"nodeName": node, "volumes": volumes}, "status": {}}


@pytest.mark.parametrize(
    ("known", "live", "goes"),
    [
        ([], [], True),
        ([user()], [], False),
        ([], [user()], False),
        ([user(node="")], [user(node="")], True),
    ],
)
def test_a_claim_goes_when_nobody_uses_it(
    known: list[Object], live: list[Object], *, goes: bool
) -> None:
    """A pod that no watch has shown counts; one without a node does not."""
    going = claim()
    going["metadata"] |= {
        "deletionTimestamp": "t",
        "finalizers": ["kubernetes.io/pvc-protection", "mine"],
    }
    controller = ClaimProtection()
    view = view_of({PERSISTENT_VOLUME_CLAIMS: [going], PODS: known}, controller.indexes)

    def answer(action: Action) -> Answer:
        return {"items": live} if isinstance(action, ListLive) else {}

    asked, _ = drive(controller.reconcile("n/c", view, 0.0), answer)
    rest = [each.obj["metadata"]["finalizers"] for each in asked if isinstance(each, Update)]
    assert rest == ([["mine"]] if goes else [])
