"""Which volume fits a claim, and which claim a volume is bound to.

Shapes: claims are PersistentVolumeClaims, volumes PersistentVolumes, both plain objects.
"""

import re
from collections.abc import Iterable
from typing import Final

from kvstack.agents.controllers.ownership import is_deleting
from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import Quantity, parse
from kvstack.apimachinery.well_known import (
    STORAGE_CLASS_ANNOTATION,
)

PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"

_UNDELETABLE: Final = ("local", "nfs")
"""Kinds of volumes that upstream's controllers know, and do not delete."""
_TEMPORARY: Final = re.compile(r"/tmp/.+")


def annotations_of(obj: Object) -> dict[str, str]:
    """Return the annotations of an object."""
    return obj["metadata"].get("annotations") or {}


def class_of(obj: Object) -> str:
    """Return the class of a claim or a volume; empty: none."""
    found = annotations_of(obj).get(STORAGE_CLASS_ANNOTATION)
    return found if found is not None else obj["spec"].get("storageClassName") or ""


def requested(claim: Object) -> Quantity:
    """Return the storage that a claim asks for."""
    resources = claim["spec"].get("resources") or {}
    return parse((resources.get("requests") or {}).get("storage", "0"))


def capacity(volume: Object) -> Quantity:
    """Return the storage of a volume."""
    return parse((volume["spec"].get("capacity") or {}).get("storage", "0"))


def is_claimed_by(volume: Object, claim: Object) -> bool:
    """Whether a volume refers to a claim; a reference without a uid matches by name."""
    reference = volume["spec"].get("claimRef")
    meta = claim["metadata"]
    if not reference:
        return False
    if reference.get("name") != meta["name"] or reference.get("namespace") != meta["namespace"]:
        return False
    uid = reference.get("uid")
    return not uid or uid == meta["uid"]


def misfit(volume: Object, claim: Object) -> str:
    """Return why a volume that a claim names does not satisfy it; empty: it does."""
    if is_deleting(volume):
        return f'the volume is marked for deletion "{volume["metadata"]["name"]}"'
    if capacity(volume) < requested(claim):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if not _has_attributes_class(volume, claim):
        return "volumeAttributesClassName does not match"
    if not _has_mode(volume, claim):
        return "incompatible volumeMode"
    return "" if _has_access(volume, claim) else "incompatible accessMode"


def undeletable(volume: Object) -> str:
    """Return why a volume without a provisioner is not deleted; texts are upstream's.

    Upstream removes directories below /tmp from the machine of its controller manager. That is for
    tests of its own, and is not done here.
    """
    spec = volume["spec"]
    path = (spec.get("hostPath") or {}).get("path", "")
    if "hostPath" in spec and not _TEMPORARY.search(path):
        return f"host_path deleter only supports /tmp/.+ but received provided {path}"
    known = "deletable " if any(each in spec for each in _UNDELETABLE) else ""
    name = volume["metadata"]["name"]
    return (
        f'error getting deleter volume plugin for volume "{name}": no {known}volume plugin matched'
    )


def best_match(claim: Object, volumes: Iterable[Object], *, is_delayed: bool) -> Object | None:
    """Return the volume to bind a claim to.

    One that refers to the claim comes first; of others the smallest that is large enough, of those
    with the fewest access modes. is_delayed: only one that refers to it, a scheduler decides.
    """
    requested_bytes = requested(claim)
    best: Object | None = None
    best_key: tuple[int, Quantity] | None = None
    for volume in volumes:
        if is_deleting(volume) or not _has_access(volume, claim):
            continue
        if not _has_mode(volume, claim) or not _has_attributes_class(volume, claim):
            continue
        size = capacity(volume)
        if volume["spec"].get("claimRef"):
            if is_claimed_by(volume, claim) and size >= requested_bytes:
                return volume
            continue
        if is_delayed or size < requested_bytes or not _may_be_chosen(volume, claim):
            continue
        key = (len(volume["spec"].get("accessModes") or ()), size)
        if best_key is None or key < best_key:
            best, best_key = volume, key
    return best


def _may_be_chosen(volume: Object, claim: Object) -> bool:
    if (volume.get("status") or {}).get("phase") != "Available":
        return False
    if class_of(volume) != class_of(claim):
        return False
    selector = claim["spec"].get("selector")
    own = volume["metadata"].get("labels") or {}
    return selector is None or labels.from_object(selector).matches(own)


def _has_access(volume: Object, claim: Object) -> bool:
    wanted = set(claim["spec"].get("accessModes") or ())
    return wanted <= set(volume["spec"].get("accessModes") or ())


def _has_mode(volume: Object, claim: Object) -> bool:
    modes = (each["spec"].get("volumeMode") or "Filesystem" for each in (volume, claim))
    return len(set(modes)) == 1


def _has_attributes_class(volume: Object, claim: Object) -> bool:
    name = "volumeAttributesClassName"
    return (volume["spec"].get(name) or "") == (claim["spec"].get(name) or "")
