"""What claims and volumes are told, and who protects them: the rules of the storage controllers."""

from typing import Any

import pytest

from kvstack.agents.client.built_in import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    VOLUME_ATTRIBUTES_CLASSES,
)
from kvstack.agents.controllers.options import VolumeOptions
from kvstack.agents.controllers.storage.attributes_classes import AttributesClassProtection
from kvstack.agents.controllers.storage.binder import MisboundError, VolumeBinder
from kvstack.agents.controllers.storage.ephemeral_volumes import EphemeralVolumes, NotOwnedError
from kvstack.agents.controllers.storage.expansion import Expander
from kvstack.agents.controllers.storage.protection import ClaimProtection, VolumeProtection
from kvstack.agents.reconcile.plan import Action, Again, Create, Delete, ListLive, Record, Update
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.plans import Answer, drive, refusal, view_of

OPTIONS = VolumeOptions()
SELECTED = {"volume.kubernetes.io/selected-node": "n1"}
COMPLETED = {"pv.kubernetes.io/bind-completed": "yes"}
BY_CONTROLLER = {"pv.kubernetes.io/bound-by-controller": "yes"}
OURS = {"namespace": "n", "name": "c", "uid": "u-c"}


def claim(phase: str = "Pending", annotations: Object | None = None, **spec: Any) -> Object:
    meta = {"name": "c", "namespace": "n", "uid": "u-c", "resourceVersion": "3"}
    if annotations:
        meta["annotations"] = annotations  # type: ignore[assignment]
    asked = {"resources": {"requests": {"storage": "2Gi"}}, "accessModes": ["ReadWriteOnce"]}
    return {"metadata": meta, "spec": {**asked, **spec}, "status": {"phase": phase}}


def volume(
    phase: str = "Available", annotations: Object | None = None, name: str = "v", **spec: Any
) -> Object:
    given = {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], **spec}
    meta = {"name": name, "uid": f"u-{name}", "resourceVersion": "4"}
    if annotations:
        meta["annotations"] = annotations  # type: ignore[assignment]
    return {"metadata": meta, "spec": given, "status": {"phase": phase}}


def storage_class(name: str = "s", mode: str = "Immediate", **more: Any) -> Object:
    meta = {"name": name, "creationTimestamp": "2024-01-01T00:00:00Z", **more}
    return {"metadata": meta, "provisioner": "p.example", "volumeBindingMode": mode}


def pod(name: str, node: str = "", phase: str = "Pending") -> Object:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    meta = {"name": name, "namespace": "n", "uid": f"u-{name}"}
    spec = {"volumes": volumes, **({"nodeName": node} if node else {})}
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


def bound(
    key: str,
    claims: list[Object],
    volumes: list[Object],
    classes: list[Object] | None = None,
    pods: list[Object] | None = None,
    options: VolumeOptions = OPTIONS,
) -> tuple[list[Action], Any]:
    """Return what the binder does for a key."""
    view = view_of(
        {
            PERSISTENT_VOLUME_CLAIMS: claims,
            PERSISTENT_VOLUMES: volumes,
            PODS: pods or [],
            STORAGE_CLASSES: classes or [],
        },
        VolumeBinder.indexes,
    )
    return drive(VolumeBinder(options).reconcile(key, view, 0.0), written)


def written(action: Action) -> Answer:
    return action.obj if isinstance(action, Update) else refusal(404)


def recorded_events(asked: list[Action]) -> list[tuple[str, str, str]]:
    return [(each.type, each.reason, each.message) for each in asked if isinstance(each, Record)]


def updates(asked: list[Action]) -> list[Object]:
    return [each.obj for each in asked if isinstance(each, Update)]


FIRST = "waiting for first consumer to be created before binding"
EXTERNAL = (
    "Waiting for a volume to be created either by the external provisioner 'p.example' or manually"
    " by the system administrator. If volume creation is delayed, please verify that the"
    " provisioner is running and correctly registered."
)
LATE = "WaitForFirstConsumer"


@pytest.mark.parametrize(
    ("given", "classes", "pods", "event"),
    [
        (
            claim(storageClassName=""),
            [],
            [],
            (
                "Normal",
                "FailedBinding",
                "no persistent volumes available for this claim and no storage class is set",
            ),
        ),
        (
            claim(storageClassName="s"),
            [],
            [],
            ("Warning", "ProvisioningFailed", 'storageclass.storage.k8s.io "s" not found'),
        ),
        (
            claim(storageClassName="s"),
            [storage_class()],
            [],
            ("Normal", "ExternalProvisioning", EXTERNAL),
        ),
        (claim(storageClassName="s"), [storage_class(mode=LATE)], [], ("Normal", LATE, FIRST)),
        (
            claim(storageClassName="s"),
            [storage_class(mode=LATE)],
            [pod("p")],
            ("Normal", "WaitForPodScheduled", "waiting for pod p to be scheduled"),
        ),
        (
            claim(storageClassName="s"),
            [storage_class(mode=LATE)],
            [pod("q"), pod("p"), pod("r", node="n1")],
            ("Normal", "WaitForPodScheduled", "waiting for pods p,q to be scheduled"),
        ),
        (
            claim(storageClassName="s"),
            [storage_class(mode=LATE)],
            [pod("p", phase="Failed")],
            ("Normal", LATE, FIRST),
        ),
        (
            claim(storageClassName="s", annotations=SELECTED),
            [storage_class(mode=LATE)],
            [pod("p")],
            ("Normal", "ExternalProvisioning", EXTERNAL),
        ),
    ],
)
def test_why_a_claim_waits(
    given: Object, classes: list[Object], pods: list[Object], event: tuple[str, str, str]
) -> None:
    asked, after = bound("claim/n/c", [given], [], classes, pods)
    assert recorded_events(asked) == [event]
    assert after == Again(15.0, is_routine=True)


def test_a_claim_that_waits_is_looked_at_as_often_as_set_and_not_provisioned() -> None:
    given, options = claim(storageClassName="s"), VolumeOptions(30.0, provisions=False)
    asked, after = bound("claim/n/c", [given], [], [storage_class()], options=options)
    assert (asked, after) == ([], Again(30.0, is_routine=True))


def test_a_provisioner_is_named_by_both_annotations() -> None:
    asked, _ = bound("claim/n/c", [claim(storageClassName="s")], [], [storage_class()])
    [changed] = updates(asked)
    assert changed["metadata"]["annotations"] == {
        "volume.beta.kubernetes.io/storage-provisioner": "p.example",
        "volume.kubernetes.io/storage-provisioner": "p.example",
    }


@pytest.mark.parametrize(("annotations", "is_bound"), [(None, False), (SELECTED, True)])
def test_a_late_claim_takes_any_volume_once_a_node_was_chosen(
    annotations: Object | None, *, is_bound: bool
) -> None:
    given = claim(storageClassName="s", annotations=annotations)
    free = volume(storageClassName="s")
    asked, _ = bound("claim/n/c", [given], [free], [storage_class(mode=LATE)])
    phases = [each["status"]["phase"] for each in updates(asked)]
    assert (phases[-1:] == ["Bound"]) is is_bound


def test_the_newest_default_class_is_given_later() -> None:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    classes = [
        storage_class("an-old-one", annotations=default),
        storage_class("new", annotations=default, creationTimestamp="2025-01-01T00:00:00Z"),
        storage_class("other", creationTimestamp="2026-01-01T00:00:00Z"),
    ]
    asked, after = bound("claim/n/c", [claim()], [], classes)
    assert [each["spec"]["storageClassName"] for each in updates(asked)] == ["new"]
    assert after is None
    asked, _ = bound("claim/n/c", [claim(storageClassName="")], [], classes)
    assert recorded_events(asked)[0][1] == "FailedBinding"


@pytest.mark.parametrize(
    ("spec", "event"),
    [
        (
            {"capacity": {"storage": "1Gi"}},
            (
                "Warning",
                "VolumeMismatch",
                'Cannot bind to requested volume "v": requested PV is too small',
            ),
        ),
        (
            {"storageClassName": "x"},
            (
                "Warning",
                "VolumeMismatch",
                'Cannot bind to requested volume "v": storageClassName does not match',
            ),
        ),
        (
            {"claimRef": {**OURS, "uid": "other"}},
            ("Warning", "FailedBinding", 'volume "v" already bound to a different claim.'),
        ),
    ],
)
def test_a_claim_that_names_what_it_cannot_have(spec: Object, event: tuple[str, str, str]) -> None:
    asked, after = bound("claim/n/c", [claim(volumeName="v")], [volume(**spec)])
    assert recorded_events(asked) == [event]
    assert after == Again(15.0, is_routine=True)


def test_a_claim_that_we_bound_to_anothers_volume_is_an_error() -> None:
    theirs = volume(claimRef={**OURS, "uid": "other"})
    with pytest.raises(MisboundError):
        bound("claim/n/c", [claim(volumeName="v", annotations=BY_CONTROLLER)], [theirs])


@pytest.mark.parametrize(
    ("volumes", "event"),
    [
        (
            [],
            ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"),
        ),
        (
            [volume(claimRef={**OURS, "uid": "other"})],
            (
                "ClaimMisbound",
                "Two claims are bound to the same volume, this one is bound incorrectly",
            ),
        ),
    ],
)
def test_a_bound_claim_that_lost_its_volume(volumes: list[Object], event: tuple[str, str]) -> None:
    given = claim("Bound", COMPLETED, volumeName="v")
    asked, _ = bound("claim/n/c", [given], volumes)
    assert recorded_events(asked) == [("Warning", *event)]
    assert [each["status"]["phase"] for each in updates(asked)] == ["Lost"]


@pytest.mark.parametrize(
    ("annotations", "reference"), [(BY_CONTROLLER, None), (None, {**OURS, "uid": ""})]
)
def test_a_volume_whose_claim_took_another_is_given_free(
    annotations: Object | None, reference: Object | None
) -> None:
    """What a user wrote of a claim stays."""
    left = volume("Bound", annotations, claimRef=OURS)
    asked, _ = bound("volume/v", [claim("Bound", COMPLETED, volumeName="w")], [left])
    freed, available = updates(asked)
    assert freed["spec"].get("claimRef") == reference
    assert not freed["metadata"].get("annotations")
    assert available["status"]["phase"] == "Available"


def test_a_provisioned_volume_whose_claim_took_another_is_left_to_its_provisioner() -> None:
    provisioned = {"pv.kubernetes.io/provisioned-by": "p.example"}
    left = volume("Bound", provisioned, claimRef=OURS, persistentVolumeReclaimPolicy="Delete")
    asked, _ = bound("volume/v", [claim("Bound", COMPLETED, volumeName="w")], [left])
    assert [each["status"]["phase"] for each in updates(asked)] == ["Released"]


DELETER = 'error getting deleter volume plugin for volume "v": no'


@pytest.mark.parametrize(
    ("policy", "source", "reason", "text"),
    [
        (
            "Delete",
            {"hostPath": {"path": "/data/x"}},
            "VolumeFailedDelete",
            "host_path deleter only supports /tmp/.+ but received provided /data/x",
        ),
        ("Delete", {"nfs": {}}, "VolumeFailedDelete", f"{DELETER} deletable volume plugin matched"),
        (
            "Delete",
            {"local": {}},
            "VolumeFailedDelete",
            f"{DELETER} deletable volume plugin matched",
        ),
        ("Delete", {"csi": {}}, "VolumeFailedDelete", f"{DELETER} volume plugin matched"),
        ("Recycle", {"csi": {}}, "VolumeFailedRecycle", "No recycler plugin found for the volume!"),
    ],
)
def test_what_cannot_be_reclaimed_is_reported(
    policy: str, source: Object, reason: str, text: str
) -> None:
    left = volume("Bound", claimRef=OURS, persistentVolumeReclaimPolicy=policy, **source)
    asked, _ = bound("volume/v", [], [left])
    assert recorded_events(asked) == [("Warning", reason, text)]
    assert updates(asked)[-1]["status"] == {"phase": "Failed", "message": text}


# Ephemeral volumes.


def with_template(**more: Any) -> Object:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    volumes = [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]
    meta = {"name": "p", "namespace": "n", "uid": "u-p", **more}
    return {"metadata": meta, "spec": {"volumes": volumes}, "status": {}}


def ephemeral(given: Object, claims: list[Object], answer: Answer = None) -> list[Action]:
    view = view_of({PODS: [given], PERSISTENT_VOLUME_CLAIMS: claims})
    asked, _ = drive(EphemeralVolumes().reconcile("n/p", view, 0.0), lambda action: answer)
    return asked


def test_a_claim_of_a_pods_template_is_made() -> None:
    [made] = ephemeral(with_template(), [])
    assert isinstance(made, Create)
    assert made.obj["metadata"]["name"] == "p-v"
    assert made.obj["metadata"]["labels"] == {"a": "b"}
    assert made.obj["spec"] == {"accessModes": ["ReadWriteOnce"]}
    [owner] = made.obj["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", "u-p", True)
    owned = {"metadata": {"name": "p-v", "namespace": "n", "ownerReferences": [owner]}}
    assert ephemeral(with_template(), [owned]) == []
    assert ephemeral(with_template(deletionTimestamp="t"), []) == []


def test_a_claim_of_somebody_else_is_reported() -> None:
    theirs = {"metadata": {"name": "p-v", "namespace": "n"}}
    view = view_of({PODS: [with_template()], PERSISTENT_VOLUME_CLAIMS: [theirs]})
    plan = EphemeralVolumes().reconcile("n/p", view, 0.0)
    [event] = next(plan)  # type: ignore[misc]
    assert isinstance(event, Record)
    assert (event.type, event.reason, event.message) == (
        "Warning",
        "FailedBinding",
        "ephemeral volume v: PVC n/p-v was not created for pod n/p (pod is not owner)",
    )
    with pytest.raises(NotOwnedError):
        plan.send([])


# Expansion.


@pytest.mark.parametrize(
    ("phase", "capacity", "uid", "is_reported"),
    [
        ("Bound", "1Gi", "u-c", True),
        ("Bound", "2Gi", "u-c", False),
        ("Pending", "1Gi", "u-c", False),
        ("Bound", "1Gi", "other", False),
    ],
)
def test_a_claim_that_is_to_grow(phase: str, capacity: str, uid: str, *, is_reported: bool) -> None:
    given = claim(phase, volumeName="v")
    given["status"]["capacity"] = {"storage": capacity}
    view = view_of(
        {
            PERSISTENT_VOLUME_CLAIMS: [given],
            PERSISTENT_VOLUMES: [volume(claimRef={**OURS, "uid": uid})],
        }
    )
    asked, _ = drive(Expander().reconcile("n/c", view, 0.0))
    text = "waiting for an external controller to expand this PVC"
    assert recorded_events(asked) == (
        [("Normal", "ExternalExpanding", text)] if is_reported else []
    )


# Protection.


def test_new_claims_and_volumes_are_protected() -> None:
    controller = ClaimProtection()
    view = view_of({PERSISTENT_VOLUME_CLAIMS: [claim()], PODS: []}, controller.indexes)
    asked, _ = drive(controller.reconcile("n/c", view, 0.0))
    assert [each["metadata"]["finalizers"] for each in updates(asked)] == [
        ["kubernetes.io/pvc-protection"]
    ]
    view = view_of({PERSISTENT_VOLUMES: [volume()]})
    asked, _ = drive(VolumeProtection().reconcile("v", view, 0.0))
    assert [each["metadata"]["finalizers"] for each in updates(asked)] == [
        ["kubernetes.io/pv-protection"]
    ]


@pytest.mark.parametrize(("phase", "goes"), [("Bound", False), ("Released", True)])
def test_a_volume_goes_when_it_is_not_bound(phase: str, *, goes: bool) -> None:
    going = volume(phase)
    going["metadata"] |= {"deletionTimestamp": "t", "finalizers": ["kubernetes.io/pv-protection"]}
    view = view_of({PERSISTENT_VOLUMES: [going]})
    asked, _ = drive(VolumeProtection().reconcile("v", view, 0.0))
    rest = [each["metadata"]["finalizers"] for each in updates(asked)]
    assert rest == ([[]] if goes else [])


@pytest.mark.parametrize(
    ("pods", "status", "reason", "message"),
    [
        ([], "True", "NoPodsUsingPVC", "No pods are currently referencing this PVC"),
        ([pod("p")], "False", "PodUsingPVC", "A pod is currently referencing this PVC"),
        (
            [pod("p", phase="Succeeded")],
            "True",
            "NoPodsUsingPVC",
            "No pods are currently referencing this PVC",
        ),
    ],
)
def test_a_bound_claim_tells_whether_it_is_unused(
    pods: list[Object], status: str, reason: str, message: str
) -> None:
    given = claim("Bound")
    given["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    controller = ClaimProtection()
    view = view_of({PERSISTENT_VOLUME_CLAIMS: [given], PODS: pods}, controller.indexes)

    def answer(action: Action) -> Answer:
        return {"items": pods} if isinstance(action, ListLive) else written(action)

    asked, _ = drive(controller.reconcile("n/c", view, 0.0), answer)
    [changed] = updates(asked)
    [condition] = changed["status"]["conditions"]
    assert condition["type"] == "Unused"
    assert (condition["status"], condition["reason"], condition["message"]) == (
        status,
        reason,
        message,
    )


def attributes_class(*finalizers: str, is_going: bool = False) -> Object:
    meta: Object = {"name": "gold", "uid": "u", "finalizers": list(finalizers)}
    return {"metadata": {**meta, **({"deletionTimestamp": "t"} if is_going else {})}}


PROTECTED = "kubernetes.io/vac-protection"


def classes(found: Object, claims: list[Object], volumes: list[Object]) -> list[list[str]]:
    """Return what the finalizers of a class become."""
    controller = AttributesClassProtection()
    objects = {
        VOLUME_ATTRIBUTES_CLASSES: [found],
        PERSISTENT_VOLUME_CLAIMS: claims,
        PERSISTENT_VOLUMES: volumes,
    }
    asked, _ = drive(controller.reconcile("gold", view_of(objects, controller.indexes), 0.0))
    assert not any(isinstance(each, Delete) for each in asked)
    return [each["metadata"]["finalizers"] for each in updates(asked)]


def named(**status: Any) -> Object:
    return {**claim(), "status": status}


@pytest.mark.parametrize(
    ("claims", "volumes"),
    [
        ([claim(volumeAttributesClassName="gold")], []),
        ([named(currentVolumeAttributesClassName="gold")], []),
        ([named(modifyVolumeStatus={"targetVolumeAttributesClassName": "gold"})], []),
        ([], [volume(volumeAttributesClassName="gold")]),
    ],
)
def test_an_attributes_class_stays_while_it_is_named(
    claims: list[Object], volumes: list[Object]
) -> None:
    assert classes(attributes_class(PROTECTED, is_going=True), claims, volumes) == []


def test_an_attributes_class_is_protected_and_goes_when_nobody_names_it() -> None:
    silver = [claim(volumeAttributesClassName="silver")]
    assert classes(attributes_class("x"), silver, []) == [["x", PROTECTED]]
    assert classes(attributes_class("x", PROTECTED), silver, []) == []
    assert classes(attributes_class("x", PROTECTED, is_going=True), silver, []) == [["x"]]


def test_who_no_longer_names_an_attributes_class_has_it_looked_at() -> None:
    before, after = (claim(volumeAttributesClassName=name) for name in ("gold", "silver"))
    view = view_of({})
    watch = next(
        each
        for each in AttributesClassProtection().watches
        if each.resource == PERSISTENT_VOLUME_CLAIMS
    )
    assert list(watch.keys(None, before, view)) == []
    assert list(watch.keys(before, after, view)) == ["gold"]
    assert list(watch.keys(after, None, view)) == ["silver"]
