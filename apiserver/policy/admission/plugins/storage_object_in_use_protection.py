"""StorageObjectInUseProtection: finalizers on storage objects, so that they are not removed in use.

A finalizer keeps volumes, claims and attributes classes until a controller sees that they are
unused.
"""

from typing import Final

from kvstack.apimachinery.objects.core.group_resources import ATTRIBUTES_CLASSES, CLAIMS, VOLUMES
from kvstack.apimachinery.well_known import (
    ATTRIBUTES_CLASS_FINALIZER,
    CLAIM_FINALIZER,
    VOLUME_FINALIZER,
)
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, AdmissionRequest

_FINALIZERS: Final = {
    ATTRIBUTES_CLASSES: ATTRIBUTES_CLASS_FINALIZER,
    CLAIMS: CLAIM_FINALIZER,
    VOLUMES: VOLUME_FINALIZER,
}


class StorageObjectInUseProtection(Listed):
    """Adds finalizers to new storage objects."""

    name = "StorageObjectInUseProtection"
    calls = frozenset().union(*(calls((CREATE,), each) for each in _FINALIZERS))

    def mutate(self, request: AdmissionRequest) -> None:
        """Add the finalizer of the kind."""
        finalizer = _FINALIZERS[request.resource]
        finalizers = request.new["metadata"].get("finalizers") or ()
        if finalizer not in finalizers:
            request.own("metadata")["finalizers"] = [*finalizers, finalizer]
