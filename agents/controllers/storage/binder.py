"""PV binder: binds claims to volumes, requests new ones, and handles released ones.

    claim ─► volume that fits ─► volume.claimRef ─► volume Bound ─► claim.volumeName ─► claim Bound
          └► none: its class's provisioner is asked; or it waits for a pod, or for a volume

A missing write is repeated by the next sync, so an interrupted bind completes later. Volumes are
provisioned and deleted by other programs (CSI). Pending claims are checked again periodically.

Keys: `claim/<namespace>/<name>`, `volume/<name>`.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final

from kvstack.agents.client.built_in import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.options import VolumeOptions
from kvstack.agents.controllers.storage.pod_claims import CLAIMS_INDEX, claims_of_pod
from kvstack.agents.controllers.storage.volume_rules import (
    PROVISIONED_BY,
    annotations_of,
    best_match,
    class_of,
    is_claimed_by,
    misfit,
    undeletable,
)
from kvstack.agents.reconcile.plan import (
    Again,
    BaseController,
    Enqueue,
    Get,
    Identity,
    Index,
    Outcome,
    Plan,
    Record,
    Step,
    Update,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import (
    BETA_DEFAULT_STORAGE_CLASS_ANNOTATION,
    BIND_COMPLETED_ANNOTATION,
    BOUND_BY_CONTROLLER_ANNOTATION,
    DEFAULT_STORAGE_CLASS_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    STORAGE_CLASS_ANNOTATION,
    STORAGE_PROVISIONER_ANNOTATION,
)

_PROVISIONERS: Final = (
    "volume.beta.kubernetes.io/storage-provisioner",
    STORAGE_PROVISIONER_ANNOTATION,
)
_DEFAULT_CLASS: Final = (
    DEFAULT_STORAGE_CLASS_ANNOTATION,
    BETA_DEFAULT_STORAGE_CLASS_ANNOTATION,
)
_IN_TREE: Final = "kubernetes.io/"
_OVER: Final = frozenset(("Released", "Failed"))


class MisboundError(Exception):
    """A claim was bound by us to a volume that is another one's."""


class VolumeBinder(BaseController):
    """Binds claims and volumes."""

    workers = 1
    reads: Sequence[ResourceType] = (PODS, STORAGE_CLASSES)
    indexes: Sequence[Index] = (Index(PODS, CLAIMS_INDEX, claims_of_pod),)

    def __init__(self, options: VolumeOptions) -> None:
        """options: how often what waits is looked at, and whether volumes are provisioned."""
        self._options: Final = options
        self.identity: Identity = Identity(
            "persistentvolume-binder-controller",
            "persistent-volume-binder",
            "persistentvolume-controller",
        )
        self.watches: Sequence[Watch] = (
            Watch(PERSISTENT_VOLUMES, _keys_of_volume),
            Watch(PERSISTENT_VOLUME_CLAIMS, _keys_of_claim),
        )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for a claim or a volume."""
        what, _, name = key.partition("/")
        if what == "volume":
            volume = view.get(PERSISTENT_VOLUMES, name)
            if volume is not None:
                yield from self._volume(volume, view)
            return None
        claim = view.get(PERSISTENT_VOLUME_CLAIMS, name)
        if claim is None:
            return None
        if BIND_COMPLETED_ANNOTATION in annotations_of(claim):
            yield from self._bound(claim, view)
            return None
        is_waiting = yield from self._unbound(claim, view)
        return Again(self._options.sync_period_s, is_routine=True) if is_waiting else None

    # Claims.

    def _unbound(self, claim: Object, view: View) -> Generator[Step, list[Outcome], bool]:
        """Bind a claim; return whether it has to wait."""
        name = claim["spec"].get("volumeName")
        if name:
            return (yield from self._wanting(claim, view.get(PERSISTENT_VOLUMES, name)))
        storage_class = view.get(STORAGE_CLASSES, class_of(claim)) if class_of(claim) else None
        is_delayed = (
            storage_class is not None
            and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
            and SELECTED_NODE_ANNOTATION not in annotations_of(claim)
        )
        volume = best_match(claim, view.list(PERSISTENT_VOLUMES), is_delayed=is_delayed)
        if volume is not None:
            yield from self._bind(volume, claim)
            return False
        if (yield from self._give_default_class(claim, view)):
            return False
        if is_delayed:
            yield [_waiting_for_pods(claim, view)]
        elif class_of(claim):
            yield from self._provision(claim, storage_class)
            return True
        else:
            text = "no persistent volumes available for this claim and no storage class is set"
            yield [Record(claim, "Normal", "FailedBinding", text)]
        yield from self._set_claim_phase(claim, "Pending")
        return True

    def _wanting(
        self, claim: Object, volume: Object | None
    ) -> Generator[Step, list[Outcome], bool]:
        """Bind a claim that names its volume."""
        if volume is None:
            yield from self._set_claim_phase(claim, "Pending")
            return True
        name = volume["metadata"]["name"]
        if not volume["spec"].get("claimRef"):
            why = misfit(volume, claim)
            if not why:
                yield from self._bind(volume, claim)
                return False
            text = f'Cannot bind to requested volume "{name}": {why}'
            yield [Record(claim, "Warning", "VolumeMismatch", text)]
        elif is_claimed_by(volume, claim):
            yield from self._bind(volume, claim)
            return False
        else:
            text = f'volume "{name}" already bound to a different claim.'
            yield [Record(claim, "Warning", "FailedBinding", text)]
            if BOUND_BY_CONTROLLER_ANNOTATION in annotations_of(claim):
                raise MisboundError(
                    f'invalid binding of claim "{key_of(claim)}" to volume "{name}"'
                )
        yield from self._set_claim_phase(claim, "Pending")
        return True

    def _bound(self, claim: Object, view: View) -> Generator[Step, list[Outcome], None]:
        """Look after a claim that was bound."""
        name = claim["spec"].get("volumeName")
        volume = view.get(PERSISTENT_VOLUMES, name) if name else None
        reference = None if volume is None else volume["spec"].get("claimRef")
        if volume is not None and (
            not reference or reference.get("uid") == claim["metadata"]["uid"]
        ):
            yield from self._bind(volume, claim)
            return
        if volume is not None:
            reason = "ClaimMisbound"
            text = "Two claims are bound to the same volume, this one is bound incorrectly"
        else:
            reason = "ClaimLost"
            lost = "its PersistentVolume" if name else "reference to PersistentVolume"
            text = f"Bound claim has lost {lost}. Data on the volume is lost!"
        if (claim.get("status") or {}).get("phase") != "Lost":
            yield from self._set_claim_phase(claim, "Lost")
            yield [Record(claim, "Warning", reason, text)]

    def _give_default_class(
        self, claim: Object, view: View
    ) -> Generator[Step, list[Outcome], bool]:
        """Give a claim that says nothing of a class the default one, if there is one by now."""
        spec = claim["spec"]
        if spec.get("storageClassName") is not None:
            return False
        if STORAGE_CLASS_ANNOTATION in annotations_of(claim):
            return False
        defaults = [
            each
            for each in view.list(STORAGE_CLASSES)
            if any(annotations_of(each).get(name) == "true" for name in _DEFAULT_CLASS)
        ]
        if not defaults:
            return False
        # The newest, then the first by name: as admission chooses.
        defaults.sort(key=lambda each: str(each["metadata"]["name"]))
        defaults.sort(key=lambda each: str(each["metadata"]["creationTimestamp"]), reverse=True)
        name = defaults[0]["metadata"]["name"]
        changed = {**claim, "spec": {**spec, "storageClassName": name}}
        yield from do(Update(PERSISTENT_VOLUME_CLAIMS, changed))
        return True

    def _provision(
        self, claim: Object, storage_class: Object | None
    ) -> Generator[Step, list[Outcome], None]:
        """Request a volume from the provisioner of the claim's class."""
        if not self._options.provisions:
            return
        if storage_class is None:
            text = f'storageclass.storage.k8s.io "{class_of(claim)}" not found'
            yield [Record(claim, "Warning", "ProvisioningFailed", text)]
            return
        name = storage_class["provisioner"]
        if name.startswith(_IN_TREE):
            text = f"no volume plugin matched name: {name}"
            yield [Record(claim, "Warning", "ProvisioningFailed", text)]
            return
        known = annotations_of(claim)
        if any(known.get(each) != name for each in _PROVISIONERS):
            new = {**known, **dict.fromkeys(_PROVISIONERS, name)}
            meta = {**claim["metadata"], "annotations": new}
            claim = yield from do(Update(PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": meta}))
        text = (
            "Waiting for a volume to be created either by the external provisioner"
            f" '{name}' or manually by the system administrator. If volume creation is delayed,"
            " please verify that the provisioner is running and correctly registered."
        )
        yield [Record(claim, "Normal", "ExternalProvisioning", text)]

    # Binding.

    def _bind(self, volume: Object, claim: Object) -> Generator[Step, list[Outcome], None]:
        """Complete a binding."""
        wanted = _with_claim(volume, claim)
        if wanted is not volume:
            volume = yield from do(Update(PERSISTENT_VOLUMES, wanted))
        volume = yield from self._set_volume_phase(volume, "Bound")
        bound = _with_volume(claim, volume)
        if bound is not claim:
            claim = yield from do(Update(PERSISTENT_VOLUME_CLAIMS, bound))
        yield from self._set_claim_bound(claim, volume)

    def _set_claim_bound(
        self, claim: Object, volume: Object
    ) -> Generator[Step, list[Outcome], None]:
        status = claim.get("status") or {}
        spec = volume["spec"]
        desired = {**status, "phase": "Bound", "accessModes": spec.get("accessModes") or []}
        if status.get("phase") != "Bound" or not status.get("capacity"):
            desired["capacity"] = {"storage": spec["capacity"]["storage"]}
        attributes = spec.get("volumeAttributesClassName")
        if attributes and status.get("phase") != "Bound":
            desired["currentVolumeAttributesClassName"] = attributes
        if desired != status:
            yield from do(Update(PERSISTENT_VOLUME_CLAIMS, {**claim, "status": desired}, "status"))

    def _set_claim_phase(self, claim: Object, phase: str) -> Generator[Step, list[Outcome], None]:
        status = dict(claim.get("status") or {})
        if status.get("phase") == phase:
            return
        for name in ("accessModes", "capacity"):
            status.pop(name, None)
        wanted = {**claim, "status": {**status, "phase": phase}}
        yield from do(Update(PERSISTENT_VOLUME_CLAIMS, wanted, "status"))

    def _set_volume_phase(
        self, volume: Object, phase: str, message: str = ""
    ) -> Generator[Step, list[Outcome], Object]:
        status = dict(volume.get("status") or {})
        if status.get("phase") == phase and status.get("message", "") == message:
            return volume
        status["phase"] = phase
        status.pop("message", None)
        if message:
            status["message"] = message
        wanted = {**volume, "status": status}
        return (yield from do(Update(PERSISTENT_VOLUMES, wanted, "status")))

    # Volumes.

    def _volume(self, volume: Object, view: View) -> Generator[Step, list[Outcome], None]:
        reference = volume["spec"].get("claimRef")
        if not reference or not reference.get("uid"):
            yield from self._set_volume_phase(volume, "Available")
            return
        claim = yield from _claim_of(reference, view)
        if claim is None:
            yield from self._release(volume)
            return
        bound_to = claim["spec"].get("volumeName")
        if not bound_to:
            yield [Enqueue((f"claim/{key_of(claim)}",))]
        elif bound_to == volume["metadata"]["name"]:
            yield from self._set_volume_phase(volume, "Bound")
        elif (
            PROVISIONED_BY in annotations_of(volume)
            and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        ):
            yield from self._release(volume)
        else:
            yield from self._unbind(volume)

    def _unbind(self, volume: Object) -> Generator[Step, list[Outcome], None]:
        """Give a volume free that its claim did not take; what users wrote of it stays."""
        spec, annotations = dict(volume["spec"]), dict(annotations_of(volume))
        if annotations.pop(BOUND_BY_CONTROLLER_ANNOTATION, None) is not None:
            del spec["claimRef"]
        else:
            spec["claimRef"] = {**spec["claimRef"], "uid": ""}
        meta = {**volume["metadata"], "annotations": annotations}
        freed = yield from do(
            Update(PERSISTENT_VOLUMES, {**volume, "metadata": meta, "spec": spec})
        )
        yield from self._set_volume_phase(freed, "Available")

    def _release(self, volume: Object) -> Generator[Step, list[Outcome], None]:
        """Release a volume whose claim is gone."""
        if (volume.get("status") or {}).get("phase") not in _OVER:
            volume = yield from self._set_volume_phase(volume, "Released")
        policy = volume["spec"].get("persistentVolumeReclaimPolicy")
        if policy == "Recycle":
            reason, text = "VolumeFailedRecycle", "No recycler plugin found for the volume!"
        elif policy == "Delete" and PROVISIONED_BY not in annotations_of(volume):
            reason, text = "VolumeFailedDelete", undeletable(volume)
        else:
            return  # it is kept, or its provisioner deletes it
        if (volume.get("status") or {}).get("phase") != "Failed":
            yield from self._set_volume_phase(volume, "Failed", text)
            yield [Record(volume, "Warning", reason, text)]


def _with_claim(volume: Object, claim: Object) -> Object:
    """Return a volume that refers to a claim."""
    meta = claim["metadata"]
    reference = volume["spec"].get("claimRef") or {}
    if is_claimed_by(volume, claim) and reference.get("uid") == meta["uid"]:
        return volume
    changed = dict(volume)
    if not is_claimed_by(volume, claim):
        annotations = {**annotations_of(volume), BOUND_BY_CONTROLLER_ANNOTATION: "yes"}
        changed["metadata"] = {**volume["metadata"], "annotations": annotations}
    changed["spec"] = {
        **volume["spec"],
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
    }
    return changed


def _with_volume(claim: Object, volume: Object) -> Object:
    """Return a claim that is bound to a volume."""
    name = volume["metadata"]["name"]
    annotations = dict(annotations_of(claim))
    spec = claim["spec"]
    if spec.get("volumeName") == name and BIND_COMPLETED_ANNOTATION in annotations:
        return claim
    if spec.get("volumeName") != name:
        spec = {**spec, "volumeName": name}
        annotations[BOUND_BY_CONTROLLER_ANNOTATION] = "yes"
    annotations[BIND_COMPLETED_ANNOTATION] = "yes"
    meta = {**claim["metadata"], "annotations": annotations}
    return {**claim, "metadata": meta, "spec": spec}


def _claim_of(reference: Object, view: View) -> Generator[Step, list[Outcome], Object | None]:
    """Return the claim that a volume refers to; that there is none is asked of the server."""
    namespace, name, uid = (reference[each] for each in ("namespace", "name", "uid"))
    known = view.get(PERSISTENT_VOLUME_CLAIMS, f"{namespace}/{name}")
    if known is not None and known["metadata"]["uid"] == uid:
        return known
    [found] = yield [Get(PERSISTENT_VOLUME_CLAIMS, namespace, name)]
    if found.is_not_found:
        return None
    live = found.result()
    return live if live["metadata"]["uid"] == uid else None


def _waiting_for_pods(claim: Object, view: View) -> Record:
    """Return what a claim waits for: pods that are not scheduled yet, or the first one."""
    names = sorted(
        pod["metadata"]["name"]
        for pod in view.by_index(PODS, CLAIMS_INDEX, key_of(claim))
        if not pod["spec"].get("nodeName") and not is_ended(pod)
    )
    if not names:
        text = "waiting for first consumer to be created before binding"
        return Record(claim, "Normal", "WaitForFirstConsumer", text)
    pods = f"pods {','.join(names)}" if len(names) > 1 else f"pod {names[0]}"
    return Record(claim, "Normal", "WaitForPodScheduled", f"waiting for {pods} to be scheduled")


def _keys_of_volume(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    """Give a volume, and the claims that it may be for."""
    volume = new or old or {}
    if new is not None:
        yield f"volume/{key_of(volume)}"
    reference = volume["spec"].get("claimRef")
    if reference:
        yield f"claim/{reference['namespace']}/{reference['name']}"
    for claim in view.list(PERSISTENT_VOLUME_CLAIMS):
        wanted = claim["spec"].get("volumeName")
        if wanted == volume["metadata"]["name"] or (not wanted and not reference):
            yield f"claim/{key_of(claim)}"


def _keys_of_claim(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    claim = new or old or {}
    yield f"claim/{key_of(claim)}"
    if claim["spec"].get("volumeName"):
        yield f"volume/{claim['spec']['volumeName']}"
    if new is None:
        for volume in view.list(PERSISTENT_VOLUMES):
            reference = volume["spec"].get("claimRef") or {}
            if reference.get("uid") == claim["metadata"]["uid"]:
                yield f"volume/{key_of(volume)}"
