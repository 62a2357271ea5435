"""PersistentVolumeClaimResize: a claim grows only if it is bound and its class allows expansion."""

from typing import Final

from kvstack.apimachinery.objects.core.group_resources import CLAIMS, STORAGE_CLASSES
from kvstack.apimachinery.objects.core.storage_class_names import class_of_claim
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import ZERO, Quantity, parse
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import ObjectView


class PersistentVolumeClaimResize(Listed):
    """Refuses to expand claims that cannot be."""

    name = "PersistentVolumeClaimResize"
    calls = calls((UPDATE,), CLAIMS)

    def __init__(self, view: ObjectView) -> None:
        self._view: Final = view

    def validate(self, request: AdmissionRequest) -> None:
        """Check a claim whose request has grown."""
        old, new = request.old or {}, request.new
        if _size(new) <= _size(old):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            raise request.forbidden("Only bound persistent volume claims can be expanded")
        name = class_of_claim(new)
        found = self._view.get(STORAGE_CLASSES, "", name) if name == class_of_claim(old) else None
        if not name or found is None or not found.get("allowVolumeExpansion"):
            raise request.forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that"
                " provisions the pvc must support resize"
            )


def _size(claim: Object) -> Quantity:
    resources = (claim.get("spec") or {}).get("resources") or {}
    storage = (resources.get("requests") or {}).get("storage")
    return ZERO if storage is None else parse(storage)
